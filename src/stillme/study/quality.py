"""How carefully each rater worked. Flags are advice; people decide."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np

from stillme.study.answers import CANNOT_TELL
from stillme.study.assignment import EXCLUDED
from stillme.study.config import StudyConfig
from stillme.study.items import NEITHER_PERSON, ROLE_AXIS, Item, turned_back
from stillme.study.opening import Study
from stillme.web.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Rater:
    """One participant who holds or has finished a task."""

    name: str
    """The pseudonym."""
    slot: str
    participant: str
    excluded: str
    """Why the researcher excluded this rater; empty if not."""
    begun: float
    ended: float | None
    asked: int
    version: int
    written: bool
    """Whether the answers have been written into the run; they stay there."""
    seconds: Mapping[int, float]
    """Active time by position, as the page measured it."""

    @property
    def finished(self) -> bool:
        """Whether every question was answered."""
        return self.ended is not None

    @property
    def counts(self) -> bool:
        """Whether the answers count towards k."""
        return self.finished and not self.excluded

    @property
    def minutes(self) -> float | None:
        """How long a finished rater took. By the page's own clock where the server's was set back."""
        return None if self.ended is None else max(self.ended - self.begun, sum(self.seconds.values())) / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One answer."""

    rater: Rater
    item: Item
    position: int
    side: int
    """0 for A: where the output stood, or the first of two people."""
    output: int
    """Which of the item's outputs stood there."""
    axis: str
    value: int
    """1 to 5; of two people 1, 2 or `NEITHER_PERSON`, in the order of the request; 0 for "cannot tell"."""
    at: float
    first: int | None
    """What was answered before it was corrected in the review; None if it was not."""
    shown: int | None
    """The smallest side of the item's pictures on the screen, in CSS pixels without zoom."""

    @property
    def is_score(self) -> bool:
        """Whether it counts as a score: "cannot tell" and "neither of the two" do not."""
        return self.value != CANNOT_TELL and (self.axis, self.value) != (ROLE_AXIS, NEITHER_PERSON)

    @property
    def is_real_score(self) -> bool:
        """Whether it is a score of a real item, the first time it was shown."""
        return self.item.kind == "real" and self.is_score

    @property
    def expected(self) -> tuple[int, int] | None:
        """The lowest and highest right answer, where one is known."""
        return self.item.outputs[self.output].expected.get(self.axis)

    @property
    def is_right(self) -> bool:
        """Whether it is among the right answers; true where none is known."""
        low, high = self.expected or (0, 5)
        return low <= self.value <= high


def pseudonym(study: Study, participant: str) -> str:
    """A rater's name in tables: stable within the study, unknown to the platform."""
    return "r-" + study.keys.pseudonym("rater", participant)[:10]


def raters(study: Study, connection: Transaction) -> list[Rater]:
    """All who hold or have finished a task; those who were excluded too."""
    rows = connection.execute(
        "SELECT s.*, p.excluded, p.written FROM slot s JOIN participant p ON p.id = s.participant "
        "WHERE s.state IN ('held', 'done') OR s.reason = ? ORDER BY s.begun",
        (EXCLUDED,),
    ).fetchall()
    seconds: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for slot, position, milliseconds in connection.execute(
        "SELECT slot, position, sum(amount) FROM event WHERE kind = 'active' GROUP BY slot, position"
    ):
        seconds[slot][position] = milliseconds / 1000
    batches: defaultdict[int, list[Item]] = defaultdict(list)
    for item in study.drawn.items:
        batches[item.batch].append(item)
    return [
        Rater(
            name=pseudonym(study, row["participant"]),
            slot=row["id"],
            participant=row["participant"],
            excluded=row["excluded"] or "",
            begun=row["begun"],
            ended=None if row["state"] == "held" else row["ended"],
            asked=sum(len(item.outputs) * len(study.asked(item, row["version"])) for item in batches[row["batch"]]),
            version=row["version"] or 1,
            written=row["written"] is not None,
            seconds=seconds[row["id"]],
        )
        for row in rows
    ]


def ratings(study: Study, connection: Transaction, by: Sequence[Rater]) -> list[Rating]:
    """Every answer of these raters; the training is not kept."""
    return [
        _rating(study, rater, row)
        for rater in by
        for row in connection.execute(
            "SELECT a.*, p.item, p.swapped FROM answer a JOIN presentation p USING (slot, position) "
            "WHERE a.slot = ? AND a.value IS NOT NULL ORDER BY a.position, a.side, a.question",
            (rater.slot,),
        )
    ]


def _rating(study: Study, rater: Rater, row: Any) -> Rating:
    item = study.drawn.by_id[row["item"]]
    axis = study.asked(item, rater.version)[int(row["question"])]
    side, value, first = row["side"], row["value"], row["first"]
    output = 1 - side if row["swapped"] else side
    if axis == ROLE_AXIS:
        side, output = row["swapped"], 0
        value, first = (turned_back(said) if row["swapped"] and said else said for said in (value, first))
    return Rating(
        rater=rater,
        item=item,
        position=row["position"],
        side=side,
        output=output,
        axis=axis,
        value=value,
        first=first,
        at=row["at"],
        shown=row["shown"],
    )


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
    """Bits of the answers' distribution; 0 for a rater who always answers the same."""
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


def rater_qualities(study: Study, connection: Transaction) -> list[RaterQuality]:
    """The measures of all who hold or have finished a task."""
    active = raters(study, connection)
    rows = ratings(study, connection, active)
    by_slot: defaultdict[str, list[Rating]] = defaultdict(list)
    for row in rows:
        by_slot[row.rater.slot].append(row)
    others = _means(rows)
    return [quality_of(study.config, rater, by_slot[rater.slot], others) for rater in active]


def check_answers(study: Study, connection: Transaction) -> list[dict[str, Any]]:
    """Every answer with a known right one, rater by rater; `given` is 0 for "cannot tell"."""
    return [
        {
            "rater": row.rater.name,
            "item": row.item.id,
            "kind": row.item.kind,
            "output": row.output + 1,
            "axis": row.axis,
            "given": row.value,
            "lowest": row.expected[0],
            "highest": row.expected[1],
            "right": row.is_right,
        }
        for row in ratings(study, connection, raters(study, connection))
        if row.item.kind in ("attention", "gold") and row.expected
    ]


ADVICE = {
    "attention": "Missed attention checks: look at the time per item before you decide; one slip is human.",
    "gold": "Many known answers missed: see which below. Perhaps a scale was misread.",
    "too fast": "Many items in less time than a look takes: compare with the answers' entropy.",
    "straight-lining": "The same number throughout many outputs: does that fit what the pictures show?",
    "inconsistent repeats": "Other answers to the same pictures: with few repeats this happens by chance.",
    "often cannot tell": "Often cannot tell: ask whether the pictures were shown well.",
    "small pictures": "Pictures were smaller than 320 pixels: look at the size of the window.",
    "side bias": "A and B are rated differently although sides are random: perhaps one side was not looked at.",
}
"""What a researcher should look at, by flag. No one is excluded by a flag."""


def fails_every_check(study: Study, connection: Transaction, participant: str) -> bool:
    """Whether every attention check of a finished task went wrong."""
    mine = [rater for rater in raters(study, connection) if rater.participant == participant and rater.finished]
    passed, seen = _attention(ratings(study, connection, mine))
    return seen > 0 and passed == 0


Means = Mapping[tuple[str, int, str], tuple[float, int]]
"""By item, output and axis: the sum of all raters' answers, and how many."""


def _means(rows: Sequence[Rating]) -> Means:
    sums: defaultdict[tuple[str, int, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for row in rows:
        if row.is_real_score:
            entry = sums[row.item.id, row.output, row.axis]
            entry[0] += row.value
            entry[1] += 1
    return {unit: (total, int(count)) for unit, (total, count) in sums.items()}


def quality_of(config: StudyConfig, rater: Rater, rows: Sequence[Rating], others: Means) -> RaterQuality:
    """One rater's measures and flags, from their answers and the means of all."""
    real = [row for row in rows if row.is_real_score]
    known = [row for row in rows if row.item.kind == "gold" and row.expected and row.value != CANNOT_TELL]
    places = sorted({row.position for row in rows}) if rater.seconds else []
    timed = [rater.seconds.get(position, 0.0) for position in places]
    paid, minutes = config.pay.amount, rater.minutes
    quality = RaterQuality(
        rater=rater.name,
        finished=rater.finished,
        counts=rater.counts,
        excluded=rater.excluded,
        version=rater.version,
        answered=len(rows),
        asked=rater.asked,
        attention=_attention(rows),
        gold=_share([row.is_right for row in known]),
        cannot_tell=_share([row.value == CANNOT_TELL for row in rows if row.item.kind == "real"]),
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
    return _flagged(quality, sum(not row.is_right for row in known))


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


def _attention(rows: Sequence[Rating]) -> tuple[int, int]:
    passed: dict[int, bool] = {}
    for row in rows:
        if row.item.kind == "attention":
            passed[row.position] = passed.get(row.position, True) and row.is_right
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
        total, count = others[row.item.id, row.output, row.axis]
        if count > 1:
            scored[row.axis].append((row.value, (total - row.value) / (count - 1)))
    centred = [np.array(scores) - np.mean(scores, axis=0) for scores in scored.values()]
    if sum(map(len, centred)) < _FEWEST:
        return None
    mine, theirs = np.concatenate(centred).T
    spread = float(np.sqrt((mine**2).sum() * (theirs**2).sum()))
    return float((mine * theirs).sum()) / spread if spread > 1e-9 else None


def _repeat(rows: Sequence[Rating]) -> float | None:
    """Mean points between two answers to the same; naming the other person is as much as two."""
    told = [row for row in rows if row.value != CANNOT_TELL]
    first = {(row.item.id, row.output, row.axis): row.value for row in told if row.item.kind == "real"}
    pairs = [
        (row, first[key])
        for row in told
        if row.item.kind == "repeat" and (key := (row.item.repeats, row.output, row.axis)) in first
    ]
    apart = [2.0 * (row.value != was) if row.axis == ROLE_AXIS else abs(row.value - was) for row, was in pairs]
    return fmean(apart) if apart else None


def _side(real: Sequence[Rating]) -> float | None:
    sides = [[row.value for row in real if row.side == side] for side in (0, 1)]
    return fmean(sides[0]) - fmean(sides[1]) if all(sides) else None
