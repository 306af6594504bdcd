"""Intervals by resampling portraits, from sums alone.

A replicate is a row of counts: how often each unit was drawn. Sums over the drawn units, and the sums of
squares that their standard error needs, are then one matrix product, however many edits there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from stillme.estimates.compared import Collapsed, Compared, Linear, Sides
from stillme.estimates.design import Comparison, Places, Plan
from stillme.estimates.quantiles import logistic, normal_quantile, t_quantile, wilson
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.rounding import NOISE, interval
from stillme.estimates.rows import Flags
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable, digest

MAX_COUNTS = 2_000_000
"""Counts held at once: memory does not grow with the number of replicates."""

BATCH = 64
"""Quantities that share one pass over the resamples."""

AT_ONCE = 16_000
"""Values, resamples × quantities, that are worked on at once: about what a processor's cache holds."""

_KEPT, _KEPT_COUNTS = 8, 500_000
"""Designs whose resamples are kept for the next analysis, if they are few."""

MIN_UNITS = 8
"""Units on a side below which a bootstrap repeats itself too often; Student's t replaces it."""

MOST_EACH = 5.0
"""How many independent edits a person counts for at most in a group of fewer than `MIN_UNITS`: so few do not show how
far people of the group differ."""

LEAST_SPREAD = 0.7
"""The share of all groups' spread that the interval of a group's rate assumes at least. A dozen portraits that happen
to have few faults also happen to look alike; without this, their upper limit is too low."""

MAX_DEGENERATE = 0.01
"""The share of resamples without any spread above which bootstrap-t is not trusted."""


@dataclass(frozen=True, slots=True)
class Resampled:
    """The results of resampling one quantity."""

    outcomes: tuple[Interval | NotEstimable, ...]
    """One per comparison of the plan."""
    groups: Floats
    """Levels × replicates: each level's value in each resample."""
    values: Floats
    """Each level's value in the rows themselves; NaN where there is none."""
    flat: bool
    """Whether a level has the same value in all its units, so that resampling cannot move it."""


Limits = Callable[[float], Interval | NotEstimable]
"""An interval at any confidence."""


def resample(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[Resampled]:
    """Intervals of every comparison of a plan, for each quantity in turn."""
    levels = len(plan.levels)
    for quantity, results in _results(plan, quantities, settings):
        clustering = _Clustering.of(plan, quantity, [result.sides for result in results])
        yield Resampled(
            outcomes=tuple(_outcome(plan, quantity, result, clustering, settings.confidence) for result in results),
            groups=np.array([result.values for result in results[:levels]]).reshape(levels, settings.replicates),
            values=np.array([result.sides.value for result in results[:levels]]),
            flat=any(result.sides.flat[0] for result in results[:levels]),
        )


def limits(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[tuple[Limits, ...]]:
    """For each quantity and each comparison of a plan: its interval at any confidence, from the same resamples."""
    for quantity, results in _results(plan, quantities, settings):
        clustering = _Clustering.of(plan, quantity, [result.sides for result in results])
        yield tuple(partial(_outcome, plan, quantity, result, clustering) for result in results)


def _results(
    plan: Plan, quantities: Sequence[Quantity], settings: Settings
) -> Iterator[tuple[Quantity, list[_Result]]]:
    for start in range(0, len(quantities), BATCH):
        batch = quantities[start : start + BATCH]
        yield from zip(batch, _batch(plan, batch, settings) if plan.comparisons else [[] for _ in batch], strict=True)


def _batch(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[list[_Result]]:
    collapsed = Collapsed.of(quantities)
    table = [_Table.of(plan, collapsed, comparison, settings) for comparison in plan.comparisons]
    done = 0
    for counts in draws(plan, settings) if any(row.parts for row in table) else ():
        for row in table:
            row.add(counts, done)
        done += len(counts[0])
    for row in table:
        row.studentise(collapsed.is_rate)
    levels = len(plan.levels)
    for place in range(len(quantities)):
        results = [row.result(place) for row in table]
        yield [*_with_normal_levels(plan, table[:levels], results[:levels], place, settings), *results[levels:]]


@dataclass(slots=True)
class _Table:
    """One comparison of a batch of quantities, with a row of resamples for those that need any."""

    sides: list[Sides]
    residuals: list[Floats]
    """Of levels whose errors may be drawn from their normal limit."""
    parts: list[tuple[Places, Compared | Linear]]
    """Those that are resampled, and their rows."""
    row: Places
    """By quantity: its row among these, or -1."""
    values: Floats
    errors: Floats
    """The variances; after `studentise` the sorted t-values where any are needed, with NaN last for no error."""
    usable: Places
    """How many resamples have an error, by row."""

    @classmethod
    def of(cls, plan: Plan, collapsed: Collapsed, comparison: Comparison, settings: Settings) -> _Table:
        compared = Compared.of(plan, collapsed, comparison)
        sides = compared.sides(collapsed)
        large = [side.is_large for side in sides]
        small = np.flatnonzero(~np.array(large)) if not comparison.for_spread else np.zeros(0, dtype=np.intp)
        linear = compared.linear[small]
        parts = [
            (rows, build(small[rows]))
            for rows, build in (
                (np.flatnonzero(linear), compared.as_linear),
                (np.flatnonzero(~linear), compared.chosen),
            )
            if len(rows)
        ]
        row = np.full(len(sides), -1, dtype=np.intp)
        row[small] = np.arange(len(small))
        shape = (len(small), settings.replicates)
        return cls(
            sides=sides,
            residuals=compared.residuals() if comparison.against is None and any(large) else [],
            parts=parts,
            row=row,
            values=np.empty(shape),
            errors=np.empty(shape),
            usable=np.zeros(len(small), dtype=np.intp),
        )

    def add(self, counts: Sequence[Floats], done: int) -> None:
        rows, at_once = len(counts[0]), max(1, AT_ONCE // max(1, len(self.values)))
        for start in range(0, rows, at_once):
            few = [part[start : start + at_once] for part in counts]
            here = slice(done + start, done + start + len(few[0]))
            for places, part in self.parts:
                self.values[places, here], self.errors[places, here] = part.under(few)

    def studentise(self, is_rate: Flags) -> None:
        """Turn variances into t-values."""
        sides = [self.sides[place] for place in np.flatnonzero(self.row >= 0)]
        if not sides:
            return
        value = np.array([side.value for side in sides])[:, None]
        variance = np.array([side.variance for side in sides])[:, None]
        has_error = np.isfinite(self.values) & (self.errors > 1e-8 * variance)
        self.usable = np.count_nonzero(has_error, axis=1)
        # The limits of a single rate are on the logit scale and need no t-values.
        needed = ~is_rate[self.row >= 0] if sides[0].comparison.against is None else np.ones(len(sides), dtype=np.bool_)
        for row in np.flatnonzero(needed):
            t = self.errors[row]
            with np.errstate(divide="ignore", invalid="ignore"):
                np.divide(self.values[row] - value[row], np.sqrt(t, out=t), out=t)
            t[~has_error[row]] = math.nan
            t.sort()

    def result(self, place: int) -> _Result:
        row = int(self.row[place])
        if row < 0:
            nothing = np.full(self.values.shape[1], math.nan)
            return _Result(self.sides[place], nothing, nothing[:0], self.values.shape[1])
        return _Result(self.sides[place], self.values[row], self.errors[row, : self.usable[row]], self.values.shape[1])


def _with_normal_levels(
    plan: Plan, table: Sequence[_Table], levels: list[_Result], place: int, settings: Settings
) -> list[_Result]:
    """The levels that are too large to be resampled, drawn from their normal limit: max - min needs them jointly."""
    large = [level for level, result in enumerate(levels) if result.sides.is_large]
    if large:
        for level, values in zip(large, _normal(plan, [table[level] for level in large], place, settings), strict=True):
            levels[level] = replace(levels[level], values=values)
    return levels


def _normal(plan: Plan, table: Sequence[_Table], place: int, settings: Settings) -> Floats:
    influence = [np.concatenate([part[place] for part in row.residuals]) for row in table]
    value = np.array([row.sides[place].value for row in table])
    error = np.array([math.sqrt(row.sides[place].variance) for row in table])
    if plan.paired and len({len(part) for part in influence}) == 1:
        units = np.stack(influence, axis=1)
        units = units - units.mean(axis=0)
        scale = np.sqrt((units**2).sum(axis=0))
        correlation = (units.T @ units) / np.outer(scale, scale).clip(min=NOISE**2)
    else:
        correlation = np.eye(len(table))
    stream = np.random.default_rng(int(digest([settings.seed, "normal", list(plan.levels)]), 16))
    drawn = stream.standard_normal((settings.replicates, len(table)))
    root = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(table)))
    return value[:, None] + error[:, None] * (root @ drawn.T)


def draws(plan: Plan, settings: Settings) -> Iterator[list[Floats]]:
    """Chunks of resamples: for each stratum, replicates × units, how often each unit was drawn."""
    names = np.array(plan.names, dtype=np.object_)
    strata: tuple[tuple[str, ...], ...] = tuple(tuple(names[units].tolist()) for units in plan.strata)
    few = settings.replicates * sum(len(names) for names in strata) <= _KEPT_COUNTS
    draw = _kept_draws if few else _drawn
    return iter(draw(strata, settings.replicates, settings.seed))


@lru_cache(maxsize=_KEPT)
def _kept_draws(strata: tuple[tuple[str, ...], ...], replicates: int, seed: int) -> list[list[Floats]]:
    kept = list(_drawn(strata, replicates, seed))
    for counts in itertools.chain.from_iterable(kept):
        counts.setflags(write=False)
    return kept


def _drawn(strata: tuple[tuple[str, ...], ...], replicates: int, seed: int) -> Iterator[list[Floats]]:
    streams = [
        # Seeded by what is drawn from, so that a number does not depend on which others are computed.
        np.random.default_rng(int(digest([seed, "resample", list(names)]), 16))
        for names in strata
    ]
    chunk = max(1, MAX_COUNTS // max(1, sum(len(names) for names in strata)))
    for start in range(0, replicates, chunk):
        rows = min(chunk, replicates - start)
        yield [_counts(stream, rows, len(names)) for stream, names in zip(streams, strata, strict=True)]


def _counts(stream: np.random.Generator, rows: int, size: int) -> Floats:
    # The generator is what limits a large bootstrap, and it makes small integers faster.
    small = size <= np.iinfo(np.uint16).max
    drawn = stream.integers(0, size, size=(rows, size), dtype=np.uint16 if small else np.uint32).astype(np.int64)
    drawn += np.arange(rows)[:, None] * size
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)


def by_unit(plan: Plan, mask: Flags, values: Floats) -> Floats:
    """Sum the values of these portraits within each unit of the plan."""
    inside = mask & (plan.unit >= 0)
    return sums_by(plan.unit[inside], values[inside], len(plan.names))


@dataclass(frozen=True, slots=True)
class _Result:
    """One comparison of one quantity, in the rows and in every resample."""

    sides: Sides
    values: Floats
    """In every resample; NaN where nothing was resampled."""
    t: Floats
    """Sorted t-values of the resamples that have a standard error; of a single rate only their number counts."""
    replicates: int

    @property
    def is_stable(self) -> bool:
        """Whether bootstrap-t can be trusted here."""
        if min(self.sides.active) < MIN_UNITS or any(self.sides.flat) or not self.sides.has_spread:
            return False
        return self.sides.is_large or (self.replicates - len(self.t)) / self.replicates <= MAX_DEGENERATE


def _outcome(
    plan: Plan, quantity: Quantity, result: _Result, clustering: _Clustering, confidence: float
) -> Interval | NotEstimable:
    """Choose the interval that this much data supports."""
    sides, tail = result.sides, (1 + confidence) / 2
    if min(sides.active) < 2:
        return too_few_units(min(sides.active), sides.comparison)
    if sides.comparison.scale == "log ratio" and sides.rates[1] <= 0:
        return NotEstimable(reason="the rate of the other side is 0, so there is no ratio to it")
    error = math.sqrt(sides.variance)
    stable, people = result.is_stable, _people(plan, quantity, sides)
    if stable and quantity.is_rate and sides.comparison.against is None:
        (variance,) = clustering.variances(sides, people)
        low, high = logit_limits(sides.value, math.sqrt(variance), t_quantile(tail, sides.freedom))
        method = f"Student's t of the logit over {plan.noun}"
    elif stable and not sides.is_large and quantity.is_rate and sides.comparison.scale == "difference":
        by_logits = _logit_difference(sides, clustering.variances(sides, people), t_quantile(tail, sides.freedom))
        by_resamples = _bootstrap_t(sides.value, error, result.t, tail)
        low, high = min(by_logits[0], by_resamples[0]), max(by_logits[1], by_resamples[1])
        method = f"bootstrap-t and Student's t of both logits over {plan.noun}, the wider limits"
    elif stable and not sides.is_large:
        low, high = widest_limits(sides.value, error, result.t, sides.freedom, confidence)
        method = f"bootstrap-t and Student's t over {plan.noun}, the wider limits"
    elif quantity.is_rate and not stable:
        low, high = _score_interval(sides, people, clustering, confidence)
        method = f"Wilson on the effective number of edits, by {plan.noun}"
    elif not sides.has_spread:
        low = high = sides.value
        method = f"no spread between {plan.noun}"
    else:
        half = t_quantile(tail, sides.freedom) * error
        low, high = sides.value - half, sides.value + half
        method = f"Student's t over {plan.noun}"
    if sides.comparison.scale == "difference":
        low, high = clipped(low, high, quantity, sides.comparison)
    return interval(sides.value, low, high, confidence=confidence, method=method)


def logit_limits(rate: float, error: float, quantile: float) -> tuple[float, float]:
    """Symmetric limits on the logit scale, which keeps them between 0 and 1 and follows a rate's skewness."""
    logit, half = math.log(rate / (1 - rate)), quantile * error / (rate * (1 - rate))
    return logistic(logit - half), logistic(logit + half)


def widest_limits(value: float, error: float, t: Floats, freedom: float, confidence: float) -> tuple[float, float]:
    """On each side the wider of bootstrap-t's limit and Student's: with a dozen units either alone is too narrow.

    `t` is sorted.
    """
    tail = (1 + confidence) / 2
    half = t_quantile(tail, freedom) * error
    low, high = _bootstrap_t(value, error, t, tail)
    return min(low, value - half), max(high, value + half)


def _bootstrap_t(value: float, error: float, t: Floats, tail: float) -> tuple[float, float]:
    return value - _quantile(t, tail) * error, value - _quantile(t, 1 - tail) * error


def _logit_difference(sides: Sides, variances: Sequence[float], quantile: float) -> tuple[float, float]:
    """Zou's limits of a difference from both rates' own limits, which follow their skewness, and their correlation."""
    (a, b), own = sides.rates, sides.variances
    (low_a, high_a), (low_b, high_b) = (
        logit_limits(rate, math.sqrt(variance), quantile) for rate, variance in zip((a, b), variances, strict=True)
    )
    correlation = (own[0] + own[1] - sides.variance) / (2 * math.sqrt(own[0] * own[1]))
    correlation = min(1.0, max(-1.0, correlation))

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one + other * other - 2 * correlation * one * other))

    return a - b - distance(a - low_a, high_b - b), a - b + distance(high_a - a, b - low_b)


def _quantile(ordered: Floats, share: float) -> float:
    """The quantile of (B + 1), Weibull's: with 400 resamples the usual one cuts the tails too early."""
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (place - below) * (high - low)


def too_few_units(units: int, comparison: Comparison) -> NotEstimable:
    """Why there is no interval for a side with fewer than two units."""
    side = "the group" if comparison.against is None else "one side"
    edits = "no rated edit" if units == 0 else "rated edits of only one portrait or block"
    return NotEstimable(reason=f"{side} has {edits}")


def clipped(low: float, high: float, quantity: Quantity, comparison: Comparison) -> tuple[float, float]:
    """Limits within what is possible for the quantity, or for a difference of two."""
    if quantity.bounds is None:
        return low, high
    lowest, highest = quantity.bounds
    if comparison.against is not None:
        lowest, highest = lowest - highest, highest - lowest
    return max(lowest, low), min(highest, high)


@dataclass(frozen=True, slots=True)
class _Clustering:
    """How strongly the edits of one person are correlated, pooled within groups."""

    design_effect: float
    """How many times larger the variance of a rate is than for independent edits; infinite if unknown."""
    spread: float
    """The variance of people's logits. Negative where they differ by less than chance, because prompts decide."""
    freedom: float

    @classmethod
    def of(cls, plan: Plan, quantity: Quantity, sides: Sequence[Sides]) -> _Clustering:
        groups = [group for group in sides if group.comparison.against is None and min(group.active) > 1]
        binomial = [group.value * (1 - group.value) for group in groups]
        independent = sum(group.edits[0] * one for group, one in zip(groups, binomial, strict=True))
        clustered = sum(group.edits[0] ** 2 * group.variance for group in groups)
        # A person's rate varies by the variance of the logits times the square of p (1 - p).
        beyond = sum(
            _people(plan, quantity, group)[0] * (group.variance - one / group.edits[0])
            for group, one in zip(groups, binomial, strict=True)
        )
        return cls(
            design_effect=clustered / independent if independent > 0 else math.inf,
            spread=beyond / sum(one * one for one in binomial) if independent > 0 else 0.0,
            freedom=sum(group.active[0] - 1 for group in groups),
        )

    def variances(self, sides: Sides, people: Sequence[int]) -> list[float]:
        """Each side's variance, but not far below what the spread in all groups makes of its rate."""
        floored: list[float] = []
        for rate, variance, edits, number in zip(sides.rates, sides.variances, sides.edits, people, strict=True):
            binomial = rate * (1 - rate)
            floored.append(max(variance, LEAST_SPREAD * (binomial / edits + self.spread * binomial**2 / number)))
        return floored

    def effective(self, side: _Side, confidence: float) -> float:
        """The number of independent edits that carry the same information: at least one a person."""
        design_effect, freedom = self._of(side)
        if design_effect >= side.edits / side.people:
            return float(side.people)
        tail = (1 + confidence) / 2
        penalty = (normal_quantile(tail) / t_quantile(tail, freedom)) ** 2
        size = max(float(side.people), side.edits / max(1.0, design_effect) * penalty)
        return min(size, MOST_EACH * side.people) if side.units < MIN_UNITS else size

    def _of(self, side: _Side) -> tuple[float, float]:
        """The side's own design effect, but never below that of all groups, and its degrees of freedom.

        A group may be more volatile than the others. Its own design effect is hardly known, so it counts with its own
        few degrees of freedom, and only to make the interval wider.
        """
        spread = side.rate * (1 - side.rate)
        if side.units < 2 or (spread <= NOISE and side.units >= MIN_UNITS):
            return self.design_effect, self.freedom
        own = side.edits * side.variance / spread if spread > NOISE else 0.0
        return max(self.design_effect, own), side.units - 1.0


def _people(plan: Plan, quantity: Quantity, sides: Sides) -> tuple[int, ...]:
    """How many different people are rated, per side."""
    if plan.person is None:
        return sides.portraits
    rated, comparison = quantity.counts > 0, sides.comparison
    both = (comparison.members,) if comparison.against is None else (comparison.members, comparison.against)
    return tuple(plan.people(side & rated) for side in both)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's rate, and what its spread between units is known from."""

    rate: float
    variance: float
    units: int
    people: int
    edits: float


def _score_interval(
    sides: Sides, people: Sequence[int], clustering: _Clustering, confidence: float
) -> tuple[float, float]:
    """Wilson for one group; for two, Newcombe's squares of the distances to each one's limits."""
    both = [
        _Side(*parts) for parts in zip(sides.rates, sides.variances, sides.active, people, sides.edits, strict=True)
    ]
    rates = [side.rate for side in both]
    limits = [wilson(side.rate, clustering.effective(side, confidence), confidence) for side in both]
    if len(rates) == 1:
        return limits[0]
    if sides.comparison.scale == "log ratio":
        return ratio_limits(rates, limits)
    difference = rates[0] - rates[1]
    (low_a, high_a), (low_b, high_b) = limits
    return (
        difference - math.hypot(rates[0] - low_a, high_b - rates[1]),
        difference + math.hypot(high_a - rates[0], rates[1] - low_b),
    )


def ratio_limits(rates: Sequence[float], limits: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Donner and Zou's ratio of two rates from each one's own limits, as logarithms."""
    (a, b), ((low_a, high_a), (low_b, high_b)) = rates, limits
    under, over = high_b * (2 * b - high_b), low_b * (2 * b - low_b)
    high = (a * b + math.sqrt(max(0.0, (a * b) ** 2 - high_a * (2 * a - high_a) * over))) / over
    # Where the other side's upper limit is beyond twice its rate, a ratio of 0 is the limit.
    if under <= 0 or low_a <= 0:
        return -math.inf, math.log(high)
    # Divided by the larger root: the difference of the two terms would cancel where `under` is small.
    low = low_a * (2 * a - low_a) / (a * b + math.sqrt(max(0.0, (a * b) ** 2 - low_a * (2 * a - low_a) * under)))
    return math.log(low), math.log(high)
