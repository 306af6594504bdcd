"""How far a study has come, whether its pay is as promised, and how well its raters agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.types import ImageFile, Interval, Portrait, Prompt
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings
from stillme.estimates.agreement import Agreement, agreement
from stillme.study.assignment import expire
from stillme.study.opening import Study
from stillme.study.quality import RaterQuality, Rating, rater_qualities, raters, ratings
from stillme.web.database import Transaction

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


def ids_held(study: Study) -> IdsHeld:
    """How many participants could still be found, and since when."""
    with study.database.reading() as connection:
        ids = connection.value("SELECT count(*) FROM identity")
        known = "SELECT count(*), min(entered) FROM participant WHERE ext_hmac NOT LIKE ?"
        hashes, oldest = connection.execute(known, (f"{PURGED}%",)).fetchone()
    since = f"{datetime.fromtimestamp(oldest, UTC):%Y-%m-%d}" if oldest else ""
    return IdsHeld(ids=ids, hashes=hashes, since=since)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """How far a study has come."""

    state: str
    slots: Mapping[str, int]
    needed: int
    """Tasks that must be finished so that every item has its raters."""
    counting: int
    """Finished tasks whose answers count."""
    under_way: int
    """Tasks under way whose answers will count."""
    raters_needed: int
    """How many people must still come."""
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


def progress(study: Study, connection: Transaction) -> StudyProgress:
    """Counts, and whether the pay is as promised."""
    state, k, withdrawn, unshredded = connection.execute("SELECT state, k, withdrawn, unshredded FROM study").fetchone()
    slots, participants = (
        dict(connection.execute(f"SELECT state, count(*) FROM {table} GROUP BY state").fetchall())
        for table in ("slot", "participant")
    )
    active = raters(study, connection)
    counting = [rater for rater in active if rater.counts]
    minutes = [rater.minutes for rater in active if rater.minutes is not None]
    median_minutes = median(minutes) if minutes else None
    pay = study.config.pay
    per_hour = 60 * pay.amount / max(median_minutes, 0.1) if median_minutes is not None and pay.amount else None
    alarm = ""
    if per_hour is not None and per_hour < pay.floor:
        alarm = (
            f"The median pay is {per_hour:.2f} {pay.currency} per hour, below the floor of {pay.floor:.2f}: "
            "raise the reward, or pay the difference as a bonus."
        )
    needed, under_way = k * study.drawn.batches, sum(not rater.finished and not rater.excluded for rater in active)
    return StudyProgress(
        state=state,
        slots=slots,
        needed=needed,
        counting=len(counting),
        under_way=under_way,
        raters_needed=max(0, needed - len(counting) - under_way),
        excluded=sum(bool(rater.excluded) for rater in active),
        answers=len(ratings(study, connection, counting)),
        participants=participants,
        withdrawn=withdrawn,
        median_minutes=median_minutes,
        per_hour=per_hour,
        alarm=alarm,
        deletion_pending=bool(unshredded),
        version=study.version,
    )


def agreements(study: Study, connection: Transaction) -> list[dict[str, Any]]:
    """Alpha (interval; of a choice, nominal) and Fleiss' kappa of every question, each with its interval or a reason.

    Over real items and raters who are not excluded.
    """
    included = [rater for rater in raters(study, connection) if not rater.excluded]
    rows = [row for row in ratings(study, connection, included) if row.is_real_score]
    shown = sorted({(row.item.id, row.output) for row in rows})
    measures = agreement(_edits(study, shown), list(_scores(rows, shown)), Settings(factors=()), among="people")
    by_name = {(measure.axis, measure.measure): measure for measure in measures}
    tables: list[dict[str, Any]] = []
    for axis in study.questions:
        if kappa := by_name.get((axis, "fleiss_kappa")):
            alpha = by_name[axis, "alpha_nominal" if rubric.load().is_nominal(axis) else "alpha_interval"]
            method = alpha.outcome.method if isinstance(alpha.outcome, Interval) else ""
            numbers = _numbers(alpha, "alpha", "") | _numbers(kappa, "kappa", "kappa_")
            counts = {"units": alpha.items, "ratings": alpha.ratings}
            tables.append({"axis": axis, **numbers, "method": method, **counts})
    return tables


def _numbers(measure: Agreement, name: str, prefix: str) -> dict[str, Any]:
    outcome = measure.outcome
    if isinstance(outcome, Interval):
        values = outcome.value, outcome.low, outcome.high, ""
    else:
        values = None, None, None, outcome.reason
    return dict(zip((name, f"{prefix}low", f"{prefix}high", f"{prefix}reason"), values, strict=True))


def _edits(study: Study, shown: Sequence[tuple[str, int]]) -> Edits:
    """The rated outputs as `estimates` takes edits: only which ones share a portrait matters."""
    items = study.drawn.by_id
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
        column = columns.setdefault((row.rater.name, row.axis), np.full(len(shown), np.nan))
        column[index_of[row.item.id, row.output]] = row.value
    for (rater, axis), value in columns.items():
        state = np.where(np.isnan(value), RatingState.MISSING, RatingState.RATED).astype(np.int32)
        yield Scores(judge=rater, axis=axis, value=value, state=state)


def _portrait(name: str) -> Portrait:
    no_image = ImageFile(path=Path(name), sha256="")
    return Portrait(id=name, image=no_image, attributes={}, label_origin="", licence="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Progress, agreement and the raters' quality."""

    progress: StudyProgress
    agreement: list[dict[str, Any]]
    raters: list[RaterQuality]
    ids_held: IdsHeld

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
        for axis in self.agreement:
            alpha = _measured(axis["alpha"], axis["low"], axis["high"], axis["reason"])
            kappa = _measured(axis["kappa"], axis["kappa_low"], axis["kappa_high"], axis["kappa_reason"])
            title = rubric.load().title(axis["axis"])
            lines.append(f"  {title:<20} alpha {alpha}, Fleiss' kappa {kappa}, {axis['units']} outputs")
        if self.ids_held:
            lines.append(str(self.ids_held))
        lines += [f"  flag {rater.rater}: {', '.join(rater.flags)}" for rater in self.raters if rater.flags]
        return "\n".join(lines)


def _measured(value: float | None, low: float | None, high: float | None, reason: str) -> str:
    """`0.31 (0.22 to 0.40)`, or why there is no number."""
    return reason if value is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def overview_of(study: Study) -> Overview:
    """Summarise a study; places whose lease ran out are freed first."""
    with study.database.writing() as connection:
        expire(connection, time.time())
    with study.database.reading() as connection:
        return Overview(
            progress=progress(study, connection),
            agreement=agreements(study, connection),
            raters=rater_qualities(study, connection),
            ids_held=ids_held(study),
        )
