"""Which gaps between groups one editor or arm has that another has not: paired changes of all pairs of groups.

The difference of two ranges (max - min) is biased, because noise inflates the range of groups that are alike. So no
range is compared here. For every pair of groups the change of their gap is the difference of two paired changes, which
is unbiased. Its interval is Student's t over blocks that hold both groups, or Welch's where none does; Bonferroni's
correction makes the intervals of all pairs hold together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from stillme.core.types import Interval, Settings
from stillme.estimates import design
from stillme.estimates.design import Plan
from stillme.estimates.intervals import Batch, Side, batches, t_quantile, t_tail
from stillme.estimates.pairing import Paired, pair_arms
from stillme.estimates.quantities import NOISE, Columns, Quantity, interval, rounded
from stillme.estimates.rows import Edits, Scores

GapVerdict = Literal["grew", "shrank", "reversed", "unclear"]

MIN_BLOCKS = 5
"""Blocks that must hold both groups, or units of each where none does."""

_REVERSED = 0.5
"""A gap that changes its sign is reversed where the smaller of the two is at least this share of the larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChange:
    """How the gap between two groups changed."""

    one: str
    other: str
    before: float
    """`one` minus `other` under the first."""
    after: float
    outcome: Interval
    """The change, after minus before; the intervals of all pairs of a factor hold together."""
    p: float | None
    """After Bonferroni's correction for all pairs; None where no unit differs from the others."""

    @property
    def verdict(self) -> GapVerdict:
        """What is shown: a change whose interval excludes 0."""
        if self.outcome.low <= 0 <= self.outcome.high:
            return "unclear"
        smaller, larger = sorted((abs(self.before), abs(self.after)))
        if self.before * self.after < 0 and smaller >= _REVERSED * larger:
            return "reversed"
        return "grew" if abs(self.after) > abs(self.before) else "shrank"

    @property
    def growth(self) -> Interval:
        """How much larger the gap is, whichever group is ahead."""
        value = rounded(abs(self.after) - abs(self.before))
        ends = (self.outcome.low, self.outcome.high)
        low, high = ends if self.after + self.before >= 0 else (-ends[1], -ends[0])
        # Where the sign changed, the gap's size changed by less than the gap itself.
        return interval(
            value,
            min(low, value),
            max(high, value),
            confidence=self.outcome.confidence,
            method=self.outcome.method,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChanges:
    """Every pair of groups of one factor, for one quantity, editor and judge."""

    quantity: str
    editor: str
    judge: str
    factor: str
    pairs: tuple[PairChange, ...]
    """The clearest change first."""
    portraits: int
    edits: int

    @property
    def verdict(self) -> GapVerdict:
        """Of the clearest change; a gap that grew counts before one that shrank."""
        verdicts = {pair.verdict for pair in self.pairs}
        for verdict in _FIRST:
            if verdict in verdicts:
                return verdict
        return "unclear"

    @property
    def clearest(self) -> PairChange:
        """The pair that the verdict is about."""
        return next(pair for pair in self.pairs if pair.verdict == self.verdict)

    @property
    def largest(self) -> Interval:
        """The growth of whichever gap grew most: no pair grew by more than `high`, and one did by `low` or more."""
        growths = [pair.growth for pair in self.pairs]
        return interval(
            max(growth.value for growth in growths),
            max(growth.low for growth in growths),
            max(growth.high for growth in growths),
            confidence=growths[0].confidence,
            method=growths[0].method,
        )


_FIRST: tuple[GapVerdict, ...] = ("grew", "reversed", "shrank")


def gap_changes(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    arm: str,
    against: str,
    quantities: Collection[str] | None = None,
) -> list[GapChanges]:
    """For every factor and quantity that both arms have: how the gap of each pair of groups changed.

    Factors with fewer than two groups that have pairs in two units are left out.
    """
    columns = Columns.of(edits)
    pairs = [
        pair
        for pair in pair_arms(columns, scores, arm=arm, against=against)
        if quantities is None or pair.name in quantities
    ]
    size = (len(columns.portraits), len(edits.prompts))
    changes = [pair.change(size) for pair in pairs]
    return [
        change
        for factor in settings.factors
        for change in _of_plan(design.by_factor(columns, factor, settings), pairs, changes, settings)
    ]


def _of_plan(
    plan: Plan, pairs: Sequence[Paired], changes: Sequence[Quantity], settings: Settings
) -> Iterator[GapChanges]:
    if len(plan.levels) < 2 or not pairs:
        return
    done = 0
    for batch in batches(plan, changes, settings):
        for place, change in enumerate(batch.quantities):
            if found := _of_quantity(batch, place, pairs[done + place], change, settings):
                yield found
        done += len(batch.quantities)


def _of_quantity(batch: Batch, place: int, pair: Paired, change: Quantity, settings: Settings) -> GapChanges | None:
    """None where no pair of groups has limits."""
    plan = batch.plan
    members = {part.group: part.members for part in plan.comparisons if part.scope == "group"}
    sides = {name: batch.side(inside) for name, inside in members.items()}
    names = [name for name, side in sides.items() if side.values.units[place] >= MIN_BLOCKS]
    before, after = (
        {name: float(values[members[name][pair.rank]].mean()) for name in names} for values in (pair.before, pair.after)
    )
    compared: list[tuple[float, PairChange]] = []
    for one, other in combinations(names, 2):
        known = _change(batch, place, (sides[one], sides[other]), settings.confidence, math.comb(len(names), 2))
        if known is None:
            continue
        t, p, (value, low, high), method = known
        compared.append(
            (
                t,
                PairChange(
                    one=one,
                    other=other,
                    before=rounded(before[one] - before[other]),
                    after=rounded(after[one] - after[other]),
                    outcome=interval(value, low, high, confidence=settings.confidence, method=method),
                    p=p,
                ),
            )
        )
    if not compared:
        return None
    compared.sort(key=lambda entry: (-round(entry[0], 6), entry[1].one, entry[1].other))
    everyone = np.logical_or.reduce([members[name] for name in names])
    return GapChanges(
        quantity=pair.name,
        editor=pair.editor,
        judge=pair.judge,
        factor=plan.factor,
        pairs=tuple(changed for _, changed in compared),
        portraits=int(np.count_nonzero(change.counts[everyone])),
        edits=int(change.counts[everyone].sum()),
    )


_Change = tuple[float, float | None, tuple[float, float, float], str]
"""The t-value, the corrected p-value, the change with its limits, and how they were found."""


def _change(batch: Batch, place: int, sides: tuple[Side, Side], confidence: float, pairs: int) -> _Change | None:
    """How the gap between two groups changed; None where too few blocks hold both, or nothing bounds it."""
    one, other = (side.values for side in sides)
    each = 1 - (1 - confidence) / pairs
    value = float(sides[0].value[place] - sides[1].value[place])
    both = int(np.count_nonzero(one.present[place] & other.present[place]))
    if 0 < both < MIN_BLOCKS:
        return None
    if both:
        blocks = int(np.count_nonzero(one.present[place] | other.present[place]))
        difference = one.residuals[place] - other.residuals[place]
        variance, freedom = blocks / (blocks - 1) * float((difference**2).sum()), both - 1.0
        method = f"Student's t over {both} blocks"
    else:
        own = [(float(side.variance[place]), int(side.units[place])) for side in (one, other)]
        variance = sum(part for part, _ in own)
        parts = sum(part**2 / (units - 1) for part, units in own)
        freedom = variance**2 / parts if parts > 0 else 1.0
        method = f"Welch's t, {own[0][1]} and {own[1][1]} {batch.plan.noun}"
    # A bounded group that shows no spread may still have some, which t does not know of; an unbounded one is as it is.
    # Nor does t know of a gap that is the same in every block, because both groups changed in the same ones.
    bounded = bool(batch.is_bounded[place])
    smallest = min(float(side.variance[place]) for side in (one, other)) if bounded else variance
    if min(variance, smallest) > NOISE**2:
        error = math.sqrt(variance)
        half, t = t_quantile((1 + each) / 2, freedom) * error, abs(value) / error
        return t, min(1.0, 2 * pairs * t_tail(t, freedom)), (value, value - half, value + half), method
    if not bounded:
        return None
    # What no unit of a group showed may still happen.
    _, low, high = batch.difference(*sides, each)
    limits = (value, float(low[place]), float(high[place]))
    return math.inf if abs(value) > NOISE else 0.0, None, limits, "MOVER: Wilson on the effective number of edits"
