"""How carefully each rater worked, and how well raters agree. Flags are advice; people decide."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np
import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.answers import CANNOT_TELL, expectations, presented_items
from stillme.study.assignment import EXCLUDED
from stillme.study.checks import is_right
from stillme.study.config import Config
from stillme.study.items import NEITHER_PERSON, ROLE_AXIS, turned_back
from stillme.study.opening import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Rater:
    """One participant who holds or has finished a task."""

    name: str
    """The pseudonym."""
    slot: str
    participant: str
    batch: str
    state: str
    excluded: str
    """Why the researcher excluded this rater; empty if not."""
    begun: float
    ended: float | None
    asked: int
    version: int
    written: bool
    """Whether the answers have been written into the run; they stay there."""

    @property
    def finished(self) -> bool:
        """Whether every question was answered."""
        return self.ended is not None

    @property
    def counts(self) -> bool:
        """Whether the answers count towards k."""
        return self.finished and not self.excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One answer."""

    rater: str
    slot: str
    item: str
    """The drawn item, as in items.json."""
    kind: str
    repeats: str
    position: int
    side: int
    """0 for A: where the output stood, or the first of two people."""
    output: int
    """Which of the item's outputs stood there."""
    axis: str
    value: int
    """1 to 5; of two people 1, 2 or `pairs.NEITHER_PERSON`, in the order of the request; 0 for "cannot tell"."""
    at: float
    first: int | None
    """What was answered before it was corrected in the review; None if it was not."""
    expected: tuple[int, int] | None
    shown: int | None
    """The smallest side of the item's pictures on the screen, in CSS pixels without zoom."""

    @property
    def is_score(self) -> bool:
        """Whether it counts as a score: "cannot tell" and "neither of the two" do not."""
        return self.value != CANNOT_TELL and (self.axis, self.value) != (ROLE_AXIS, NEITHER_PERSON)


def pseudonym(study: Study, participant: str) -> str:
    """A rater's name in tables: stable within the study, unknown to the platform."""
    return "r-" + study.keys.pseudonym("rater", participant)[:10]


def raters(study: Study, connection: sa.Connection) -> list[Rater]:
    """Everybody who holds or has finished a task; those who were excluded too."""
    rows = connection.execute(
        sa.select(t.slot, t.participant.c.excluded, t.participant.c.written)
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .join(t.participant, t.participant.c.id == t.slot.c.participant)
        .where(
            t.batch.c.study == study.id,
            t.slot.c.state.in_(("held", "done")) | (t.slot.c.reason == EXCLUDED),
        )
        .order_by(t.slot.c.begun)
    ).all()
    shown = _shown(study, connection)
    return [
        Rater(
            name=pseudonym(study, row.participant),
            slot=row.id,
            participant=row.participant,
            batch=row.batch,
            state=row.state,
            excluded=row.excluded or "",
            begun=row.begun,
            ended=None if row.state == "held" else row.ended,
            asked=sum(sides * len(study.asked(questions, row.version)) for sides, questions in shown[row.batch]),
            version=row.version or 1,
            written=row.written is not None,
        )
        for row in rows
    ]


def ratings(study: Study, connection: sa.Connection, by: Sequence[Rater]) -> list[Rating]:
    """Every answer of these raters; the training is not kept."""
    expected = _expected(study, connection)
    originals = {row.id: row.drawn for row in connection.execute(sa.select(t.item.c.id, t.item.c.drawn))}
    kept: list[Rating] = []
    for rater in by:
        rows = connection.execute(
            sa.select(t.answer, t.presentation.c.swapped, t.item)
            .join(
                t.presentation,
                (t.presentation.c.slot == t.answer.c.slot) & (t.presentation.c.position == t.answer.c.position),
            )
            .join(t.item, t.item.c.id == t.presentation.c.item)
            .where(t.answer.c.slot == rater.slot, t.answer.c.value.is_not(None))
            .order_by(t.answer.c.position, t.answer.c.side, t.answer.c.question)
        )
        for row in rows:
            axis = study.asked(row.questions, rater.version)[int(row.question)]
            if axis == ROLE_AXIS:
                side, output = row.swapped, 0
                value, first = (turned_back(said) if row.swapped and said else said for said in (row.value, row.first))
            else:
                side, output = row.side, 1 - row.side if row.swapped else row.side
                value, first = row.value, row.first
            kept.append(
                Rating(
                    rater=rater.name,
                    slot=rater.slot,
                    item=row.drawn,
                    kind=row.kind,
                    repeats=originals.get(row.repeats, ""),
                    position=row.position,
                    side=side,
                    output=output,
                    axis=axis,
                    value=value,
                    first=first,
                    at=row.at,
                    shown=row.shown,
                    expected=expected.get((row.drawn, output, axis)),
                )
            )
    return kept


def active_seconds(connection: sa.Connection, slot: str) -> dict[int, float]:
    """Active time by position, as the page measured it."""
    rows = connection.execute(
        sa.select(t.event.c.position, sa.func.sum(t.event.c.amount))
        .where(t.event.c.slot == slot, t.event.c.kind == "active")
        .group_by(t.event.c.position)
    )
    return {row[0]: row[1] / 1000 for row in rows}


def minutes_taken(connection: sa.Connection, rater: Rater) -> float | None:
    """How long a finished rater took. By the page's own clock where the server's was set back."""
    if rater.ended is None:
        return None
    active = sum(active_seconds(connection, rater.slot).values())
    return max(rater.ended - rater.begun, active) / 60


def _shown(study: Study, connection: sa.Connection) -> Mapping[str, Sequence[tuple[int, str]]]:
    """By batch, the sides and questions of its items."""
    rows = connection.execute(
        sa.select(t.batch_item.c.batch, t.item.c.sides, t.item.c.questions)
        .join(t.item, t.item.c.id == t.batch_item.c.item)
        .where(t.item.c.study == study.id)
    )
    shown: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        shown[row.batch].append((row.sides, row.questions))
    return shown


def _expected(study: Study, connection: sa.Connection) -> dict[tuple[str, int, str], tuple[int, int]]:
    rows = connection.execute(
        sa.select(t.item.c.drawn, t.image.c.role, t.image.c.expected_json)
        .join(t.item, t.item.c.id == t.image.c.item)
        .where(t.item.c.study == study.id, t.image.c.expected_json.is_not(None))
    )
    return {
        (row.drawn, row.role - 1, axis): (low, high)
        for row in rows
        for axis, (low, high) in json.loads(row.expected_json).items()
    }


SMALLEST = 320
"""CSS pixels below which pictures count as small."""
_FEWEST = 8
"""With fewer answers, agreement with others is not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterQuality:
    """One rater's measures; None where there is nothing to measure yet."""

    rater: str
    finished: bool
    counts: bool
    """Whether the answers count: finished and not excluded."""
    excluded: str
    version: int
    answered: int
    asked: int
    attention: tuple[int, int]
    """Attention items passed, and seen."""
    gold: float | None
    """Share of right answers among those with a known answer; "cannot tell" is neither right nor wrong."""
    cannot_tell: float | None
    """Share of real questions answered with "cannot tell"."""
    seconds: float | None
    """Median active seconds per item."""
    fast: float | None
    """Share of items under the study's limit."""
    straight: float | None
    """Share of outputs whose questions all got the same number."""
    entropy: float | None
    """Bits of the answers' distribution; 0 for somebody who always answers the same."""
    agreement: float | None
    """Correlation with the mean of the others on the same items."""
    repeat: float | None
    """Mean absolute difference between the first and the second time, where both times could tell."""
    side: float | None
    """Mean of A minus mean of B over all questions."""
    shown: int | None
    """The median of the smallest side of an item's pictures on the screen, in CSS pixels without zoom."""
    minutes: float | None
    per_hour: float | None
    """Pay per hour of this rater."""
    flags: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "attention": list(self.attention), "flags": list(self.flags)}


def rater_qualities(study: Study, connection: sa.Connection) -> list[RaterQuality]:
    """The measures of everybody who holds or has finished a task."""
    active = raters(study, connection)
    rows = ratings(study, connection, active)
    by_rater: defaultdict[str, list[Rating]] = defaultdict(list)
    for row in rows:
        by_rater[row.slot].append(row)
    others = _means(rows)
    return [
        quality_of(
            study.config,
            rater,
            by_rater[rater.slot],
            others,
            active_seconds(connection, rater.slot),
            minutes_taken(connection, rater),
        )
        for rater in active
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """One answer to an attention or gold item."""

    rater: str
    item: str
    kind: str
    output: int
    axis: str
    given: int
    """0 for "cannot tell"."""
    lowest: int
    highest: int
    """The right answers reach from `lowest` to `highest`."""
    right: bool

    def as_json(self) -> dict[str, Any]:
        """For exports."""
        return asdict(self)


def check_answers(study: Study, connection: sa.Connection) -> list[CheckAnswer]:
    """Every answer with a known right one, rater by rater."""
    return [
        CheckAnswer(
            rater=row.rater,
            item=row.item,
            kind=row.kind,
            output=row.output + 1,
            axis=row.axis,
            given=row.value,
            lowest=row.expected[0],
            highest=row.expected[1],
            right=_right(row),
        )
        for row in ratings(study, connection, raters(study, connection))
        if row.kind in ("attention", "gold") and row.expected
    ]


_ADVICE = {
    "attention": "Missed attention checks: look at the time per item before you decide; one slip is human.",
    "gold": "Many known answers missed: see which below. Perhaps a scale was misread.",
    "too fast": "Many items in less time than a look takes: compare with the answers' entropy.",
    "straight-lining": "The same number throughout many outputs: does that fit what the pictures show?",
    "inconsistent repeats": "Other answers to the same pictures: with few repeats this happens by chance.",
    "often cannot tell": "Often cannot tell: ask whether the pictures were shown well.",
    "small pictures": "Pictures were smaller than 320 pixels: look at the size of the window.",
    "side bias": "A and B are rated differently although sides are random: perhaps one side was not looked at.",
}


def advice(quality: RaterQuality) -> list[str]:
    """A sentence for each flag. Nobody is excluded by a flag."""
    return [_ADVICE[flag] for flag in quality.flags]


def fails_every_check(study: Study, connection: sa.Connection, participant: str) -> bool:
    """Whether every attention check of a finished task went wrong."""
    finished = (t.slot.c.state == "done") | (t.slot.c.reason == EXCLUDED)
    slot = connection.execute(sa.select(t.slot.c.id).where(t.slot.c.participant == participant, finished)).scalar()
    if slot is None:
        return False
    given = {
        (row.position, row.side, row.question): row.value
        for row in connection.execute(sa.select(t.answer).where(t.answer.c.slot == slot))
    }
    failed: list[bool] = []
    for position, item in enumerate(presented_items(study, connection, slot)):
        if item.kind == "attention":
            expected = expectations(connection, item)
            failed.append(
                any(
                    not is_right(expected[side], question, given.get((position, side, index)) or CANNOT_TELL)
                    for side in range(item.sides)
                    for index, question in enumerate(item.questions)
                )
            )
    return bool(failed) and all(failed)


Means = Mapping[tuple[str, int, str], tuple[float, int]]
"""By item, output and axis: the sum of all raters' answers, and how many."""


def _means(rows: Sequence[Rating]) -> Means:
    sums: defaultdict[tuple[str, int, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for row in rows:
        if row.kind == "real" and row.is_score:
            entry = sums[row.item, row.output, row.axis]
            entry[0] += row.value
            entry[1] += 1
    return {unit: (total, int(count)) for unit, (total, count) in sums.items()}


def quality_of(
    config: Config,
    rater: Rater,
    rows: Sequence[Rating],
    others: Means,
    seconds: Mapping[int, float],
    minutes: float | None,
) -> RaterQuality:
    """One rater's measures and flags, from their answers, everybody's means, and the time they took."""
    real = [row for row in rows if row.kind == "real" and row.is_score]
    known = [row for row in rows if row.kind == "gold" and row.expected and row.value != CANNOT_TELL]
    timed = [seconds.get(position, 0.0) for position in sorted({row.position for row in rows})] if seconds else []
    paid = config.pay.amount
    quality = RaterQuality(
        rater=rater.name,
        finished=rater.finished,
        counts=rater.counts,
        excluded=rater.excluded,
        version=rater.version,
        answered=len(rows),
        asked=rater.asked,
        attention=_attention(rows),
        gold=_share([_right(row) for row in known]),
        cannot_tell=_share([row.value == CANNOT_TELL for row in rows if row.kind == "real"]),
        seconds=median(timed) if timed else None,
        fast=_share([second < config.checks.seconds_per_item for second in timed]),
        straight=_straight(real),
        entropy=_entropy([row.value for row in real]),
        agreement=_agreement(real, others),
        repeat=_repeat(rows),
        side=_side(real),
        shown=round(median(sizes)) if (sizes := [row.shown for row in rows if row.shown]) else None,
        minutes=minutes,
        per_hour=60 * paid / minutes if minutes and paid else None,
        flags=(),
    )
    return _flagged(quality, sum(not _right(row) for row in known))


def _flagged(quality: RaterQuality, wrong: int) -> RaterQuality:
    """With flags; `wrong` counts known answers that were missed: one slip is human."""
    passed, seen = quality.attention
    flags = [
        ("attention", seen - passed >= 2 or (seen == 1 and passed == 0 and quality.finished)),
        ("gold", quality.gold is not None and quality.gold < 0.6 and wrong > 1),
        ("too fast", quality.fast is not None and quality.fast > 0.3),
        ("straight-lining", quality.straight is not None and quality.straight > 0.5),
        ("inconsistent repeats", quality.repeat is not None and quality.repeat > 1.0),
        ("often cannot tell", quality.cannot_tell is not None and quality.cannot_tell > 0.5),
        ("small pictures", quality.shown is not None and quality.shown < SMALLEST),
        ("side bias", quality.side is not None and abs(quality.side) > 0.5 and quality.answered >= 5 * _FEWEST),
    ]
    return replace(quality, flags=tuple(name for name, raised in flags if raised))


def _right(row: Rating) -> bool:
    low, high = row.expected or (0, 5)
    return low <= row.value <= high


def _attention(rows: Sequence[Rating]) -> tuple[int, int]:
    passed: dict[int, bool] = {}
    for row in rows:
        if row.kind == "attention":
            passed[row.position] = passed.get(row.position, True) and _right(row)
    return sum(passed.values()), len(passed)


def _share(flags: Sequence[bool]) -> float | None:
    return fmean(flags) if flags else None


def _straight(real: Sequence[Rating]) -> float | None:
    by_output: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row in real:
        by_output[row.position, row.side].append(row.value)
    return _share([len(set(values)) == 1 for values in by_output.values() if len(values) >= 3])


def _entropy(values: Sequence[int]) -> float | None:
    if not values:
        return None
    shares = [count / len(values) for count in Counter(values).values()]
    return -sum(share * math.log2(share) for share in shares) + 0.0


def _agreement(real: Sequence[Rating], others: Means) -> float | None:
    """Leave-one-out. Each axis is centred first: agreeing on which question runs high does not count."""
    scored: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in real:
        total, count = others[row.item, row.output, row.axis]
        if count > 1:
            scored[row.axis].append((row.value, (total - row.value) / (count - 1)))
    centred = [np.array(scores) - np.mean(scores, axis=0) for scores in scored.values()]
    if sum(map(len, centred)) < _FEWEST:
        return None
    mine, theirs = np.concatenate(centred).T
    spread = float(np.sqrt((mine**2).sum() * (theirs**2).sum()))
    return float((mine * theirs).sum()) / spread if spread > 1e-9 else None


def _repeat(rows: Sequence[Rating]) -> float | None:
    told = [row for row in rows if row.value != CANNOT_TELL]
    first = {(row.item, row.output, row.axis): row.value for row in told if row.kind == "real"}
    again = [
        _apart(row, first[row.repeats, row.output, row.axis])
        for row in told
        if row.kind == "repeat" and (row.repeats, row.output, row.axis) in first
    ]
    return fmean(again) if again else None


def _apart(again: Rating, first: int) -> float:
    """Points between two answers; naming somebody else is as much as two."""
    return 2.0 * (again.value != first) if again.axis == ROLE_AXIS else abs(again.value - first)


def _side(real: Sequence[Rating]) -> float | None:
    sides = [[row.value for row in real if row.side == side] for side in (0, 1)]
    return fmean(sides[0]) - fmean(sides[1]) if all(sides) else None
