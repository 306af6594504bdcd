"""How far a study has come, and whether its pay is as promised."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.types import ImageFile, Interval, Portrait, Prompt
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings
from stillme.estimates.agreement import Agreement, agreement
from stillme.study import schema as t
from stillme.study.assignment import expire
from stillme.study.opening import Study
from stillme.study.quality import RaterQuality, Rating, minutes_taken, rater_qualities, raters, ratings

PURGED = "purged-"
"""How the hash of a participant begins whose id can no longer be found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsHeld:
    """What could still lead to participants."""

    ids: int
    """Encrypted ids."""
    hashes: int
    """Participants who can be found again by a keyed hash of their id or link."""
    since: str
    """The day on which the oldest of them came; empty if none is held."""

    def __bool__(self) -> bool:
        return bool(self.hashes)

    def __str__(self) -> str:
        if not self:
            return "no ids held"
        return (
            f"{self.ids} ids and keyed hashes of {self.hashes} participants are held, the oldest since {self.since}. "
            "When all are paid and the study is closed, `stillme study purge` deletes them."
        )

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def ids_held(study: Study) -> IdsHeld:
    """How many participants could still be found, and since when."""
    with study.database.reading() as connection:
        ids = connection.execute(sa.select(sa.func.count()).select_from(t.identity)).scalar_one()
        known = sa.select(sa.func.count(), sa.func.min(t.participant.c.entered))
        hashes, oldest = connection.execute(known.where(t.participant.c.ext_hmac.not_like(f"{PURGED}%"))).one()
    since = f"{datetime.fromtimestamp(oldest, UTC):%Y-%m-%d}" if oldest else ""
    return IdsHeld(ids=ids, hashes=hashes, since=since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a study has come."""

    state: str
    slots: Mapping[str, int]
    needed: int
    """Tasks that must be finished so that every item has its raters."""
    counting: int
    """Finished tasks whose answers count."""
    under_way: int
    """Tasks that somebody is at whose answers will count."""
    excluded: int
    """Raters whose answers do not count."""
    answers: int
    """Answers that count."""
    participants: Mapping[str, int]
    withdrawn: int
    median_minutes: float | None
    per_hour: float | None
    alarm: str
    """What is wrong with the pay; empty if nothing."""
    deletion_pending: bool
    """Whether something deleted may still be read in the database's files."""
    version: int

    @property
    def raters_needed(self) -> int:
        """How many people must still come."""
        return max(0, self.needed - self.counting - self.under_way)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "raters_needed": self.raters_needed}


def progress(study: Study, connection: sa.Connection) -> Progress:
    """Counts, and whether the pay is as promised."""
    row = connection.execute(sa.select(t.study).where(t.study.c.id == study.id)).one()
    by_slot = connection.execute(
        sa.select(t.slot.c.state, sa.func.count())
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .where(t.batch.c.study == study.id)
        .group_by(t.slot.c.state)
    )
    by_participant = connection.execute(
        sa.select(t.participant.c.state, sa.func.count())
        .where(t.participant.c.study == study.id)
        .group_by(t.participant.c.state)
    )
    active = raters(study, connection)
    counting = [rater for rater in active if rater.counts]
    minutes = [taken for rater in active if (taken := minutes_taken(connection, rater)) is not None]
    median_minutes = median(minutes) if minutes else None
    pay = study.config.pay
    per_hour = 60 * pay.amount / max(median_minutes, 0.1) if median_minutes is not None and pay.amount else None
    alarm = ""
    if per_hour is not None and per_hour < pay.floor:
        alarm = (
            f"The median pay is {per_hour:.2f} {pay.currency} per hour, below the floor of {pay.floor:.2f}: "
            "raise the reward, or pay the difference as a bonus."
        )
    slot_ids = [rater.slot for rater in counting]
    answers = connection.execute(
        sa.select(sa.func.count()).where(t.answer.c.slot.in_(slot_ids), t.answer.c.value.is_not(None))
    ).scalar_one()
    return Progress(
        state=row.state,
        slots={row[0]: row[1] for row in by_slot},
        needed=row.k * study.drawn.batches,
        counting=len(counting),
        under_way=sum(not rater.finished and not rater.excluded for rater in active),
        excluded=sum(bool(rater.excluded) for rater in active),
        answers=answers,
        participants={row[0]: row[1] for row in by_participant},
        withdrawn=row.withdrawn,
        median_minutes=median_minutes,
        per_hour=per_hour,
        alarm=alarm,
        deletion_pending=bool(row.unshredded),
        version=study.version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisAgreement:
    """Krippendorff's alpha and Fleiss' kappa on one question."""

    axis: str
    alpha: float | None
    low: float | None
    high: float | None
    reason: str
    """Why there is no alpha."""
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    kappa_reason: str
    """Why there is no kappa."""
    method: str
    units: int
    """Outputs with at least two ratings."""
    ratings: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def agreements(study: Study, connection: sa.Connection) -> list[AxisAgreement]:
    """Alpha (interval; of a choice, nominal) and kappa of every question, over real items and raters who count."""
    included = [rater for rater in raters(study, connection) if not rater.excluded]
    rows = [row for row in ratings(study, connection, included) if row.kind == "real" and row.is_score]
    shown = sorted({(row.item, row.output) for row in rows})
    measures = agreement(_edits(study, shown), list(_scores(rows, shown)), Settings(factors=()), among="people")
    by_name = {(measure.axis, measure.measure): measure for measure in measures}
    return [
        _of_axis(by_name[axis, "alpha_nominal" if rubric.load().is_nominal(axis) else "alpha_interval"], kappa)
        for axis in study.questions
        if (kappa := by_name.get((axis, "fleiss_kappa")))
    ]


def _edits(study: Study, shown: Sequence[tuple[str, int]]) -> Edits:
    """The rated outputs as `estimates` takes edits: only which ones share a portrait matters."""
    items = {item.id: item for item in study.drawn.items}
    names = [items[item].strata.get("portrait", item) for item, _ in shown]
    portraits = sorted(set(names))
    zeros = np.zeros(len(shown), dtype=np.int32)
    return Edits(
        keys=[f"{item}.{output}" for item, output in shown],
        portrait=np.array([portraits.index(name) for name in names], dtype=np.int32),
        prompt=zeros,
        editor=zeros,
        arm=zeros,
        state=np.full(len(shown), EditState.EDITED, dtype=np.int32),
        image=[""] * len(shown),
        portraits=tuple(_portrait(name) for name in portraits),
        prompts=(Prompt(id="", text="", category="", subcategory=""),),
        editors=("",),
        arms=("",),
    )


def _scores(rows: Sequence[Rating], shown: Sequence[tuple[str, int]]) -> Iterator[Scores]:
    """One column per rater and question."""
    index_of = {unit: index for index, unit in enumerate(shown)}
    columns: dict[tuple[str, str], NDArray[np.float64]] = {}
    for row in rows:
        column = columns.setdefault((row.rater, row.axis), np.full(len(shown), np.nan))
        column[index_of[row.item, row.output]] = row.value
    for (rater, axis), value in columns.items():
        state = np.where(np.isnan(value), RatingState.MISSING, RatingState.RATED).astype(np.int32)
        yield Scores(judge=rater, axis=axis, value=value, state=state)


def _of_axis(alpha: Agreement, kappa: Agreement) -> AxisAgreement:
    value, low, high, reason = _numbers(alpha)
    kappa_value, kappa_low, kappa_high, kappa_reason = _numbers(kappa)
    return AxisAgreement(
        axis=alpha.axis,
        alpha=value,
        low=low,
        high=high,
        reason=reason,
        kappa=kappa_value,
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        kappa_reason=kappa_reason,
        method=alpha.outcome.method if isinstance(alpha.outcome, Interval) else "",
        units=alpha.items,
        ratings=alpha.ratings,
    )


def _numbers(measure: Agreement) -> tuple[float | None, float | None, float | None, str]:
    outcome = measure.outcome
    if isinstance(outcome, Interval):
        return outcome.value, outcome.low, outcome.high, ""
    return None, None, None, outcome.reason


def _portrait(name: str) -> Portrait:
    no_image = ImageFile(path=Path(name), sha256="")
    return Portrait(id=name, image=no_image, attributes={}, label_origin="", licence="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Progress, agreement and the raters' quality."""

    progress: Progress
    agreements: tuple[AxisAgreement, ...]
    raters: tuple[RaterQuality, ...]
    ids: IdsHeld

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "progress": self.progress.as_json(),
            "agreement": [agreement.as_json() for agreement in self.agreements],
            "raters": [rater.as_json() for rater in self.raters],
            "ids_held": self.ids.as_json(),
        }

    def as_text(self) -> str:
        """For people."""
        now = self.progress
        tasks = f"{now.counting} of {now.needed} tasks finished that count, {now.under_way} under way"
        lost = f"{now.slots.get('void', 0)} places given up, {now.excluded} raters excluded, {now.withdrawn} withdrawn"
        lines = [f"{now.state}: {tasks}; {now.answers:,} answers", lost]
        if now.state == "open":
            lines.append(f"{now.raters_needed} raters still needed")
        if now.deletion_pending:
            lines.append("deletion of withdrawn data still to be finished: another program reads the database")
        if now.median_minutes is not None:
            pay = f", {now.per_hour:.2f} per hour" if now.per_hour is not None else ""
            lines.append(f"median {now.median_minutes:.1f} minutes per task{pay}")
        if now.alarm:
            lines.append(f"ALARM: {now.alarm}")
        for axis in self.agreements:
            alpha = _measured(axis.alpha, axis.low, axis.high, axis.reason)
            kappa = _measured(axis.kappa, axis.kappa_low, axis.kappa_high, axis.kappa_reason)
            title = rubric.load().title(axis.axis)
            lines.append(f"  {title:<20} alpha {alpha}, Fleiss' kappa {kappa}, {axis.units} outputs")
        if self.ids:
            lines.append(str(self.ids))
        lines += [f"  flag {rater.rater}: {', '.join(rater.flags)}" for rater in self.raters if rater.flags]
        return "\n".join(lines)


def _measured(value: float | None, low: float | None, high: float | None, reason: str) -> str:
    """`0.31 (0.22 to 0.40)`, or why there is no number."""
    return reason if value is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def overview_of(study: Study) -> Overview:
    """Summarise a study; places whose lease ran out are freed first."""
    with study.database.writing() as connection:
        expire(connection, study.id, time.time())
    with study.database.reading() as connection:
        return Overview(
            progress=progress(study, connection),
            agreements=tuple(agreements(study, connection)),
            raters=tuple(rater_qualities(study, connection)),
            ids=ids_held(study),
        )
