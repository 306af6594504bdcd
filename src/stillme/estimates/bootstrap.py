"""Intervals by resampling portraits, from sums alone.

A replicate is a row of counts: how often each unit was drawn. Sums over the drawn units, and the sums of
squares that their standard error needs, are then one matrix product, however many edits there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import expit

from stillme.estimates.design import Comparison, Plan
from stillme.estimates.quantiles import normal_quantile, t_quantile, wilson
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.rounding import NOISE, interval, snapped
from stillme.estimates.rows import Flags
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable, digest

MAX_COUNTS = 2_000_000
"""Counts held at once: memory does not grow with the number of replicates."""

BATCH = 16
"""Quantities that share one pass over the resamples."""

MIN_UNITS = 8
"""Units on a side below which a bootstrap repeats itself too often; Student's t replaces it."""

LARGE = 500
"""Units on each side from which nothing is resampled: the estimate's distribution is then normal to three digits."""

SHARED_FREEDOM = 2.0
"""How many degrees of freedom a small group borrows from the design effect of all groups."""

MAX_DEGENERATE = 0.01
"""The share of resamples without any spread above which bootstrap-t is not trusted."""


@dataclass(frozen=True, slots=True)
class Resampled:
    """The results of resampling one quantity."""

    outcomes: tuple[Interval | NotEstimable, ...]
    """One per comparison of the plan."""
    groups: Floats
    """Replicates × levels: each level's value in each resample."""
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
        clustering = _Clustering.of([result.sides for result in results])
        yield Resampled(
            outcomes=tuple(_outcome(plan, quantity, result, clustering, settings.confidence) for result in results),
            groups=_stacked([result.values for result in results[:levels]], settings.replicates),
            values=np.array([result.sides.value for result in results[:levels]]),
            flat=any(result.sides.flat[0] for result in results[:levels]),
        )


def limits(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[tuple[Limits, ...]]:
    """For each quantity and each comparison of a plan: its interval at any confidence, from the same resamples."""
    for quantity, results in _results(plan, quantities, settings):
        clustering = _Clustering.of([result.sides for result in results])
        yield tuple(partial(_outcome, plan, quantity, result, clustering) for result in results)


def _stacked(columns: Sequence[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.empty((rows, 0))


def _results(
    plan: Plan, quantities: Sequence[Quantity], settings: Settings
) -> Iterator[tuple[Quantity, list[_Result]]]:
    for start in range(0, len(quantities), BATCH):
        batch = quantities[start : start + BATCH]
        yield from zip(batch, _batch(plan, batch, settings) if plan.comparisons else [[] for _ in batch], strict=True)


def _batch(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[list[_Result]]:
    table = [[_Sides.of(plan, quantity, comparison) for comparison in plan.comparisons] for quantity in quantities]
    shape = (len(quantities), len(plan.comparisons), settings.replicates)
    value, variance = np.full(shape, np.nan), np.full(shape, np.nan)
    small = [
        (row, column, sides)
        for row, of_quantity in enumerate(table)
        for column, sides in enumerate(of_quantity)
        if not (sides.is_large or sides.comparison.for_spread)
    ]
    done = 0
    for counts in draws(plan, settings) if small else ():
        end = done + len(counts[0])
        for row, column, sides in small:
            value[row, column, done:end], variance[row, column, done:end] = sides.under(counts)
        done = end
    for row in range(len(quantities)):
        value[row] = _with_normal_levels(plan, table[row], value[row], settings)
        yield [_Result(*result) for result in zip(table[row], value[row], variance[row], strict=True)]


def _with_normal_levels(plan: Plan, table: Sequence[_Sides], values: Floats, settings: Settings) -> Floats:
    """The levels that are too large to be resampled, drawn from their normal limit: max - min needs them jointly."""
    large = [place for place, sides in enumerate(table[: len(plan.levels)]) if sides.is_large]
    if not large:
        return values
    influence = [np.concatenate(table[place].residuals()) for place in large]
    error = np.array([math.sqrt(table[place].variance) for place in large])
    if plan.paired and len({len(part) for part in influence}) == 1:
        units = np.stack(influence, axis=1)
        units = units - units.mean(axis=0)
        scale = np.sqrt((units**2).sum(axis=0))
        correlation = (units.T @ units) / np.outer(scale, scale).clip(min=NOISE**2)
    else:
        correlation = np.eye(len(large))
    stream = np.random.default_rng(int(digest([settings.seed, "normal", list(plan.levels)]), 16))
    drawn = stream.standard_normal((settings.replicates, len(large)))
    root = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(large)))
    values[large] = np.array([table[place].value for place in large])[:, None] + error[:, None] * (root @ drawn.T)
    return values


def draws(plan: Plan, settings: Settings) -> Iterator[list[Floats]]:
    """Chunks of resamples: for each stratum, replicates × units, how often each unit was drawn."""
    streams = [
        # Seeded by what is drawn from, so that a number does not depend on which others are computed.
        np.random.default_rng(int(digest([settings.seed, "resample", [plan.names[unit] for unit in units]]), 16))
        for units in plan.strata
    ]
    chunk = max(1, MAX_COUNTS // max(1, sum(len(units) for units in plan.strata)))
    for start in range(0, settings.replicates, chunk):
        rows = min(chunk, settings.replicates - start)
        yield [_counts(stream, rows, len(units)) for stream, units in zip(streams, plan.strata, strict=True)]


def _counts(stream: np.random.Generator, rows: int, size: int) -> Floats:
    # The generator is what limits a large bootstrap, and it makes small integers faster.
    small = size <= np.iinfo(np.uint16).max
    drawn = stream.integers(0, size, size=(rows, size), dtype=np.uint16 if small else np.uint32).astype(np.int64)
    drawn += np.arange(rows)[:, None] * size
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """One comparison of one quantity, reduced to what resampling needs."""

    comparison: Comparison
    is_rate: bool
    strata: tuple[tuple[int, int, Floats], ...]
    """Stratum, its number of units with any value, and for each of them the sums and their products."""
    seen: tuple[Flags | None, ...]
    """For each of these strata, which units have a value; None where all have."""
    sizes: tuple[int, ...]
    """Units of every stratum of the plan."""
    width: int
    """Two columns (sum and count) a side."""
    centre: float
    """Subtracted from every value, so that squares do not cancel."""
    active: tuple[int, ...]
    """Units with any value, per side."""
    portraits: tuple[int, ...]
    """Portraits with any value, per side."""
    edits: tuple[float, ...]
    flat: tuple[bool, ...]
    """Per side: whether all units have the same value."""
    value: float = math.nan
    variance: float = math.nan

    @classmethod
    def of(cls, plan: Plan, quantity: Quantity, comparison: Comparison) -> _Sides:
        masks = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
        edits = tuple(float(quantity.counts[mask].sum()) for mask in masks)
        either = comparison.everyone
        sums = quantity.sums_in.get(comparison.group, quantity.sums)
        centre = float(sums[either].sum() / max(1.0, quantity.counts[either].sum()))
        columns = [by_unit(plan, mask, values) for mask in masks for values in (sums, quantity.counts)]
        for place in range(0, len(columns), 2):
            columns[place] = columns[place] - centre * columns[place + 1]
        sides = np.stack(columns, axis=1)
        active = tuple(int(np.count_nonzero(columns[place])) for place in range(1, len(columns), 2))
        flat = tuple(_is_flat(columns[place], columns[place + 1], centre) for place in range(0, len(columns), 2))
        products = [sides[:, i] * sides[:, j] for i in range(sides.shape[1]) for j in range(i, sides.shape[1])]
        moments = np.column_stack([sides, *products])
        counted: Flags = (sides[:, 1::2] != 0).max(axis=1)
        strata = tuple(
            (place, int(np.count_nonzero(counted[units])), np.asfortranarray(moments[units[counted[units]]]))
            for place, units in enumerate(plan.strata)
            if counted[units].any()
        )
        bare = cls(
            comparison=comparison,
            is_rate=quantity.is_rate,
            strata=strata,
            seen=tuple(
                None if counted[plan.strata[place]].all() else counted[plan.strata[place]] for place, _, _ in strata
            ),
            sizes=tuple(len(units) for units in plan.strata),
            width=sides.shape[1],
            centre=centre,
            active=active,
            portraits=tuple(int(np.count_nonzero(quantity.counts[mask])) for mask in masks),
            edits=edits,
            flat=flat,
        )
        value, _ = bare.under([np.ones((1, size)) for size in bare.sizes])
        return replace(bare, value=float(value[0]), variance=sum(bare.variances(), 0.0))

    @property
    def has_spread(self) -> bool:
        """Whether units differ by more than rounding errors."""
        return not all(self.flat) and self.variance > (NOISE * (1 + abs(self.centre))) ** 2

    @property
    def is_large(self) -> bool:
        """Whether there are so many units that nothing needs to be resampled."""
        return min(self.active) >= LARGE

    def under(self, counts: Sequence[Floats]) -> tuple[Floats, Floats]:
        """The value and its linearised variance in each of these resamples."""
        sums = [
            (size, _totals(counts[place] if seen is None else counts[place][:, seen], moments))
            for (place, size, moments), seen in zip(self.strata, self.seen, strict=True)
        ]
        total = sum((part[:, : self.width] for _, part in sums), np.zeros((len(counts[0]), self.width)))
        with np.errstate(divide="ignore", invalid="ignore"):
            value, weights = self._linearised(total)
            variances = [_stratum_variance(size, part, weights) for size, part in sums]
        variance = np.maximum(sum(variances, np.zeros(len(value))), 0.0)
        if self.comparison.against is None:
            value = value + self.centre
            value = snapped(value) if self.is_rate else value
        return value, variance

    def freedom(self) -> float:
        """Degrees of freedom, after Welch where the strata vary unequally."""
        variances = self.variances()
        sizes = [size for _, size, _ in self.strata]
        scale = sum(variance * variance / max(1, size - 1) for variance, size in zip(variances, sizes, strict=True))
        return sum(variances) ** 2 / scale if scale > 0 else max(1.0, min(sizes) - 1.0)

    def variances(self) -> list[float]:
        """The variance in the rows themselves, stratum by stratum; from residuals, which do not cancel."""
        return [
            len(part) / max(1, len(part) - 1) * float(((part - part.mean()) ** 2).sum()) for part in self.residuals()
        ]

    def residuals(self) -> list[Floats]:
        """How far each unit moves the value, stratum by stratum."""
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.concatenate(self._linearised(self._total()[None, :])[1])
            return [moments[:, : self.width] @ weights for _, _, moments in self.strata]

    def rates(self) -> list[float]:
        """The rate of each side."""
        total = self._total()
        rates: list[float] = snapped(total[::2] / total[1::2] + self.centre).tolist()
        return rates

    def each(self) -> list[_Side]:
        """Each side by itself."""
        units = np.concatenate([moments[:, : self.width] for _, _, moments in self.strata])
        total = units.sum(axis=0)
        parts: list[_Side] = []
        for side, rate in enumerate(self.rates()):
            sums, counts = units[:, 2 * side], units[:, 2 * side + 1]
            active = self.active[side]
            residuals = (sums - total[2 * side] / total[2 * side + 1] * counts) / total[2 * side + 1]
            variance = active / (active - 1) * float((residuals**2).sum()) if active > 1 else math.inf
            parts.append(_Side(rate, variance, active, self.portraits[side], self.edits[side]))
        return parts

    def _total(self) -> Floats:
        return sum((moments[:, : self.width].sum(axis=0) for _, _, moments in self.strata), np.zeros(self.width))

    def _linearised(self, total: Floats) -> tuple[Floats, list[Floats]]:
        """The value of each row of totals, and how much it changes with each of their columns."""
        value = np.zeros(len(total))
        weights: list[Floats] = []
        for place in range(0, self.width, 2):
            sign = 1.0 if place == 0 else -1.0
            mean = total[:, place] / total[:, place + 1]
            slope = sign / total[:, place + 1]
            if self.comparison.scale == "log ratio":
                rate = snapped(mean + self.centre)
                value += sign * np.log(rate)
                slope = slope / rate
            else:
                value += sign * mean
            weights += [slope, -slope * mean]
        return value, weights


def _totals(counts: Floats, moments: Floats) -> Floats:
    """Multiply column by column.

    BLAS splits a tall product with few columns over threads that then wait for one another: on a busy machine
    one product took 35 times as long as its columns one at a time.
    """
    total = np.empty((len(counts), moments.shape[1]))
    for column in range(moments.shape[1]):
        np.matmul(counts, moments[:, column], out=total[:, column])
    return total


def _stratum_variance(size: int, part: Floats, weights: Sequence[Floats]) -> Floats:
    """The between-unit variance of the residuals' sum, from a stratum's sums and sums of products."""
    width = len(weights)
    first = sum((weights[i] * part[:, i] for i in range(width)), np.zeros(len(part)))
    second = np.zeros(len(part))
    column = width
    for i in range(width):
        for j in range(i, width):
            second += (1 if i == j else 2) * weights[i] * weights[j] * part[:, column]
            column += 1
    return size / max(1, size - 1) * (second - first * first / size)


def by_unit(plan: Plan, mask: Flags, values: Floats) -> Floats:
    """Sum the values of these portraits within each unit of the plan."""
    inside = mask & (plan.unit >= 0)
    return sums_by(plan.unit[inside], values[inside], len(plan.names))


def _is_flat(centred: Floats, counts: Floats, centre: float) -> bool:
    seen = counts > 0
    if not seen.any():
        return True
    means = centred[seen] / counts[seen]
    return bool(np.ptp(means) <= 1e-9 * (1 + abs(centre)))


@dataclass(frozen=True, slots=True)
class _Result:
    """One comparison of one quantity, in the rows and in every resample."""

    sides: _Sides
    values: Floats
    variances: Floats

    @property
    def has_error(self) -> Flags:
        """The resamples that have a standard error."""
        return np.isfinite(self.values) & (self.variances > 1e-8 * self.sides.variance)

    @property
    def is_stable(self) -> bool:
        """Whether bootstrap-t can be trusted here."""
        if min(self.sides.active) < MIN_UNITS or any(self.sides.flat) or not self.sides.has_spread:
            return False
        return self.sides.is_large or bool(np.mean(~self.has_error) <= MAX_DEGENERATE)


def _outcome(
    plan: Plan, quantity: Quantity, result: _Result, clustering: _Clustering, confidence: float
) -> Interval | NotEstimable:
    """Choose the interval that this much data supports."""
    sides, tail = result.sides, (1 + confidence) / 2
    if min(sides.active) < 2:
        return too_few_units(min(sides.active), sides.comparison)
    if sides.comparison.scale == "log ratio" and sides.rates()[1] <= 0:
        return NotEstimable(reason="the rate of the other side is 0, so there is no ratio to it")
    error = math.sqrt(sides.variance)
    if result.is_stable and quantity.is_rate and sides.comparison.against is None:
        low, high = logit_limits(sides.value, error, t_quantile(tail, sides.freedom()))
        method = f"Student's t of the logit over {plan.noun}"
    elif result.is_stable and not sides.is_large:
        keep = result.has_error
        t = (result.values[keep] - sides.value) / np.sqrt(result.variances[keep])
        low, high = widest_limits(sides.value, error, t, sides.freedom(), confidence)
        method = f"bootstrap-t and Student's t over {plan.noun}, the wider limits"
    elif quantity.is_rate and not result.is_stable:
        low, high = _score_interval(sides, clustering, confidence)
        method = f"Wilson on the effective number of edits, by {plan.noun}"
    elif not sides.has_spread:
        low = high = sides.value
        method = f"no spread between {plan.noun}"
    else:
        half = t_quantile(tail, sides.freedom()) * error
        low, high = sides.value - half, sides.value + half
        method = f"Student's t over {plan.noun}"
    if sides.comparison.scale == "difference":
        low, high = clipped(low, high, quantity, sides.comparison)
    return interval(sides.value, low, high, confidence=confidence, method=method)


def logit_limits(rate: float, error: float, quantile: float) -> tuple[float, float]:
    """Symmetric limits on the logit scale, which keeps them between 0 and 1 and follows a rate's skewness."""
    logit, half = math.log(rate / (1 - rate)), quantile * error / (rate * (1 - rate))
    return float(expit(logit - half)), float(expit(logit + half))


def widest_limits(value: float, error: float, t: Floats, freedom: float, confidence: float) -> tuple[float, float]:
    """On each side the wider of bootstrap-t's limit and Student's: with a dozen units either alone is too narrow."""
    tail = (1 + confidence) / 2
    # The quantiles of (B + 1): with 400 resamples the usual ones cut the tails too early.
    low_t, high_t = (float(quantile) for quantile in np.quantile(t, [1 - tail, tail], method="weibull"))
    student = t_quantile(tail, freedom)
    return value - max(high_t, student) * error, value - min(low_t, -student) * error


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
    """How strongly the edits of one portrait are correlated, pooled within groups."""

    design_effect: float
    """How many times larger the variance of a rate is than for independent edits; infinite if unknown."""
    freedom: float

    @classmethod
    def of(cls, sides: Sequence[_Sides]) -> _Clustering:
        groups = [group for group in sides if group.comparison.against is None and min(group.active) > 1]
        independent = sum(group.edits[0] * group.value * (1 - group.value) for group in groups)
        clustered = sum(group.edits[0] ** 2 * group.variance for group in groups)
        design_effect = clustered / independent if independent > 0 else math.inf
        return cls(design_effect, sum(group.active[0] - 1 for group in groups))

    def effective(self, side: _Side, confidence: float) -> float:
        """The number of independent edits that carry the same information: at least one a portrait."""
        design_effect, freedom = self._shrunk(side)
        if design_effect >= side.edits / side.portraits:
            return float(side.portraits)
        tail = (1 + confidence) / 2
        penalty = (normal_quantile(tail) / t_quantile(tail, freedom)) ** 2
        return max(float(side.portraits), side.edits / max(1.0, design_effect) * penalty)

    def _shrunk(self, side: _Side) -> tuple[float, float]:
        """The side's own design effect, drawn towards that of all groups, and never below it.

        A group of few portraits may be more volatile than the others. Its own design effect is hardly known, so it
        counts with its own few degrees of freedom, and only to make the interval wider.
        """
        spread = side.rate * (1 - side.rate)
        if spread <= NOISE or side.units < 2:
            return self.design_effect, self.freedom
        own, freedom = side.edits * side.variance / spread, side.units - 1
        shared = min(SHARED_FREEDOM, max(0.0, self.freedom - freedom))
        pooled = self.design_effect if math.isfinite(self.design_effect) else own
        return max(pooled, (freedom * own + shared * pooled) / (freedom + shared)), freedom + shared


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's rate, and what its spread between units is known from."""

    rate: float
    variance: float
    units: int
    portraits: int
    edits: float


def _score_interval(sides: _Sides, clustering: _Clustering, confidence: float) -> tuple[float, float]:
    """Wilson for one group; for two, Newcombe's squares of the distances to each one's limits."""
    both = sides.each()
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
