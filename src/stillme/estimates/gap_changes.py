"""Which gaps between groups one editor or arm has that another has not: paired changes of all pairs of groups.

The difference of two ranges (max - min) is biased, because noise inflates the range of groups that are alike. So no
range is compared here. For every pair of groups the change of their gap is the difference of two paired changes, which
is unbiased. The intervals of all pairs hold together: signs of the units' residuals are flipped, and the largest
t-value of all pairs sets their width (max-T).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from stillme.estimates import design
from stillme.estimates.bootstrap import by_unit
from stillme.estimates.compared import LARGE
from stillme.estimates.design import Plan
from stillme.estimates.pairing import Paired, pair_arms
from stillme.estimates.permuting import PERMUTATIONS_PER_REPLICATE, p_value, sign_flips
from stillme.estimates.quantities import Columns, Floats, Quantity
from stillme.estimates.rounding import NOISE, interval, rounded
from stillme.estimates.rows import Edits, Scores
from stillme.estimates.settings import Settings
from stillme.types import Interval, digest

GapVerdict = Literal["grew", "shrank", "reversed", "unclear"]

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
    """How often flipped signs make the largest t-value of all pairs as large; None where no unit differs from the
    others, so that nothing can be flipped."""

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


@dataclass(frozen=True, slots=True)
class _Influence:
    """How far each unit moves the mean change of each level."""

    levels: tuple[int, ...]
    """Places of the levels that have pairs in at least two units."""
    means: Floats
    units: Floats
    """Units × levels: what each unit's residual adds to the level's mean, scaled so that squares sum to a variance."""
    sizes: Floats
    """Units of each level."""
    products: Floats
    paired: bool

    @classmethod
    def of(cls, plan: Plan, change: Quantity) -> _Influence:
        groups = [comparison for comparison in plan.comparisons if comparison.scope == "group"]
        sums = np.stack([by_unit(plan, group.members, change.sums) for group in groups], axis=1)
        counts = np.stack([by_unit(plan, group.members, change.counts) for group in groups], axis=1)
        sizes = np.count_nonzero(counts, axis=0).astype(np.float64)
        levels = tuple(np.flatnonzero(sizes >= 2).tolist())
        kept = list(levels)
        sums, counts, sizes = sums[:, kept], counts[:, kept], sizes[kept]
        means = sums.sum(axis=0) / counts.sum(axis=0)
        units = (sums - means * counts) / counts.sum(axis=0) * np.sqrt(sizes / (sizes - 1))
        return cls(levels, means, units, sizes, units.T @ units, plan.paired)

    @property
    def root(self) -> Floats:
        """A root of the covariance of the levels' means."""
        shared = self.products if self.paired else np.diag(np.diag(self.products))
        eigenvalues, vectors = np.linalg.eigh(shared)
        return (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))).T

    def errors(self, flipped: Floats | None = None) -> Floats:
        """Levels × levels: the variance of each difference; with `flipped`, in each of these sign flips."""
        own = np.diag(self.products)
        shared = self.products if self.paired else np.diag(own)
        variance = own[:, None] + own[None, :] - 2 * shared
        if flipped is None:
            return variance
        if self.paired:
            moved = (flipped[:, :, None] - flipped[:, None, :]) ** 2 / self.sizes.min()
        else:
            each = flipped**2 / self.sizes
            moved = each[:, :, None] + each[:, None, :]
        return np.maximum(variance - moved, NOISE * variance)


def _of_plan(
    plan: Plan, pairs: Sequence[Paired], changes: Sequence[Quantity], settings: Settings
) -> Iterator[GapChanges]:
    if len(plan.levels) < 2 or not pairs:
        return
    influences = [_Influence.of(plan, change) for change in changes]
    largest = _largest_t(plan, influences, settings)
    for pair, change, influence, chance in zip(pairs, changes, influences, largest, strict=True):
        if len(influence.levels) > 1 and (found := _of_quantity(plan, pair, change, influence, chance, settings)):
            yield found


def _largest_t(plan: Plan, influences: Sequence[_Influence], settings: Settings) -> list[Floats]:
    """For each quantity, the largest t-value of all pairs in every sign flip."""
    total = PERMUTATIONS_PER_REPLICATE * settings.replicates
    largest = [np.zeros(total) for _ in influences]
    if len(plan.names) >= LARGE * len(plan.levels):
        # Sums of so many are normal: flips need not be drawn.
        stream = np.random.default_rng(int(digest([settings.seed, "normal flips", list(plan.levels)]), 16))
        for place, influence in enumerate(influences):
            if len(influence.levels) > 1:
                drawn = stream.standard_normal((total, len(influence.levels)))
                largest[place] = _max_t(influence, drawn @ influence.root)
        return largest
    done = 0
    for signs in sign_flips(len(plan.names), settings, plan.names):
        end = done + len(signs)
        for place, influence in enumerate(influences):
            if len(influence.levels) > 1:
                flipped = [signs @ influence.units[:, level] for level in range(influence.units.shape[1])]
                largest[place][done:end] = _max_t(influence, np.stack(flipped, axis=1))
        done = end
    return largest


def _max_t(influence: _Influence, flipped: Floats) -> Floats:
    """From flips × levels, by how much each level's mean moved."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(flipped[:, :, None] - flipped[:, None, :]) / np.sqrt(influence.errors(flipped))
    # A pair without any spread says nothing about how large chance is.
    return np.where(influence.errors() > NOISE**2, t, 0.0).max(axis=(1, 2))


def _of_quantity(
    plan: Plan, pair: Paired, change: Quantity, influence: _Influence, chance: Floats, settings: Settings
) -> GapChanges | None:
    """None where no pair has limits."""
    names = [plan.levels[level] for level in influence.levels]
    members = [
        next(part.members for part in plan.comparisons if part.scope == "group" and part.group == name)[pair.rank]
        for name in names
    ]
    before, after = ([float(values[inside].mean()) for inside in members] for values in (pair.before, pair.after))
    width = float(np.quantile(chance, settings.confidence, method="weibull"))
    errors = influence.errors()
    compared: list[tuple[float, PairChange]] = []
    for one, other in combinations(range(len(names)), 2):
        value = float(influence.means[one] - influence.means[other])
        error = math.sqrt(errors[one, other])
        flat = error <= NOISE
        half = _unseen(pair, influence, (one, other), settings) if flat else width * error
        if half is None and abs(value) > NOISE:
            continue
        half = half or 0.0
        t = math.inf if flat and abs(value) > NOISE else 0.0 if flat else abs(value) / error
        method = f"exact limits of what {plan.noun} did not show" if flat else f"max-T of sign flips over {plan.noun}"
        compared.append(
            (
                t,
                PairChange(
                    one=names[one],
                    other=names[other],
                    before=rounded(before[one] - before[other]),
                    after=rounded(after[one] - after[other]),
                    outcome=interval(value, value - half, value + half, confidence=settings.confidence, method=method),
                    p=None if flat else p_value(chance, t),
                ),
            )
        )
    if not compared:
        return None
    compared.sort(key=lambda entry: (-round(entry[0], 6), entry[1].one, entry[1].other))
    everyone = np.logical_or.reduce([part.members for part in plan.comparisons if part.group in names])
    return GapChanges(
        quantity=pair.name,
        editor=pair.editor,
        judge=pair.judge,
        factor=plan.factor,
        pairs=tuple(changed for _, changed in compared),
        portraits=int(np.count_nonzero(change.counts[everyone])),
        edits=int(change.counts[everyone].sum()),
    )


def _unseen(pair: Paired, influence: _Influence, sides: tuple[int, int], settings: Settings) -> float | None:
    """What may still happen where no unit of either group differs from the others: it was only not seen in so few.

    The exact upper limit of the share of units that are unlike those seen, of both groups at once and for all pairs
    together. None where nothing bounds what such a unit would change.
    """
    if pair.bounds is None:
        return None
    count = len(influence.levels)
    tail = (1 - settings.confidence) / (count * (count - 1))
    shares = (1 - tail ** (1 / size) for size in influence.sizes[list(sides)].tolist())
    return sum(shares) * (pair.bounds[1] - pair.bounds[0])
