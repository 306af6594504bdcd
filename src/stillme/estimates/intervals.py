"""Intervals: of rates, bounded scores, unbounded means, and of differences between them.

A side of a comparison is known from sums over its units, which are its portraits of one block:

- a rate, or each part of a bounded score, by Wilson (1927) on the effective number of edits (Kish 1965; Korn and
  Graubard 1998), which is never larger than what all groups together show, nor than a declared correlation allows;
- an unbounded mean by Student's t over units;
- a difference from both sides' limits and their correlation (MOVER: Newcombe 1998; Zou and Donner 2008);
- where prompts are a sample too, with the variance of two-way clusters (Cameron, Gelbach and Miller 2011).

Nothing is resampled, and nothing here depends on a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Interval, NotEstimable, Settings
from stillme.estimates.design import Plan, SideComparison
from stillme.estimates.quantities import NOISE, Floats, Part, Quantity, interval, snapped
from stillme.estimates.rows import Flags

ICC_FLOOR = 0.1
"""A convention: edits of one unit are taken to be correlated at least so much, however alike the rows look."""

MIN_SHARED = 6
"""Blocks that must hold both sides of a difference before their correlation is used."""

Outcome = Interval | NotEstimable
Confidence = float | Floats
"""One for all quantities, or one for each."""
Counts = NDArray[np.int64]


# -- scalars ---------------------------------------------------------------------------------------------------------


def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t."""
    return quantile(probability, freedom)


def t_tail(value: float, freedom: float) -> float:
    """How likely a value of Student's t is above this one."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -value))


def wilson(share: float, size: float, confidence: float) -> tuple[float, float]:
    """Wilson's score interval for a share of `size` independent answers; `size` may be an effective number."""
    low, high = wilson_limits(
        np.array(min(1.0, max(0.0, share))), np.array(size), np.array(quantile((1 + confidence) / 2, math.inf))
    )
    return float(low), float(high)


def wilson_limits(share: Floats, size: Floats, t: Floats) -> tuple[Floats, Floats]:
    """The same for arrays, with a quantile of Student's t for each."""
    return _wilson_low(share, size, t), 1 - _wilson_low(1 - share, size, t)


def _wilson_low(share: Floats, size: Floats, t: Floats) -> Floats:
    """Divide the product of both roots by the larger one: the usual difference cancels where the share is small."""
    high = share + t * t / (2 * size) + t * np.sqrt(share * (1 - share) / size + t * t / (4 * size * size))
    return np.divide(share * share, high, out=np.zeros_like(high), where=high > 0)


# -- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns × portraits (× prompts, where these are a sample): sums, and how many edits they are over."""

    sums: Floats
    counts: Floats

    def of_side(self, plan: Plan, mask: Flags) -> _Columns:
        """The same by unit: columns × blocks (× prompts), over the portraits of a side."""
        inside = np.flatnonzero(mask & (plan.unit >= 0))
        shape = (len(self.sums), len(plan.names), *self.sums.shape[2:])
        if not len(inside):
            return _Columns(np.zeros(shape), np.zeros(shape))
        order = inside[np.argsort(plan.unit[inside], kind="stable")]
        blocks, starts = np.unique(plan.unit[order], return_index=True)
        both: list[Floats] = []
        for column in (self.sums, self.counts):
            table = np.zeros(shape)
            table[:, blocks] = np.add.reduceat(column[:, order], starts, axis=1)
            both.append(table)
        return _Columns(*both)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Columns by unit: the mean of each, its variance between units, and each unit's residual."""

    mean: Floats
    variance: Floats
    units: Counts
    edits: Floats
    prompts: Counts | None
    present: Flags
    """Columns × blocks: whether the block has any edit here."""
    residuals: Floats
    """Columns × blocks: what each block adds to the error of the mean."""
    by_prompt: Floats | None
    cells: Floats | None

    @classmethod
    def of(cls, columns: _Columns, *, is_share: bool) -> _Spread:
        sums, counts = columns.sums, columns.counts
        two_way = sums.ndim == 3
        total = counts.sum(axis=(1, 2)) if two_way else counts.sum(axis=1)
        size = np.maximum(total, NOISE)
        over = (1, 2) if two_way else 1
        mean = sums.sum(axis=over) / size
        mean = np.clip(snapped(mean), 0.0, 1.0) if is_share else mean
        each = (slice(None), None, None) if two_way else (slice(None), None)
        cells = (sums - mean[each] * counts) / size[each]
        # What is left where the terms cancel is rounding error.
        cells = np.where(np.abs(cells) > NOISE * (np.abs(sums) / size[each] + NOISE), cells, 0.0)
        residuals = cells.sum(axis=2) if two_way else cells
        by_unit = counts.sum(axis=2) if two_way else counts
        present = by_unit > 0
        units = np.count_nonzero(present, axis=1)
        variance = _between(residuals, units)
        prompts = by_prompt = None
        if two_way:
            by_prompt, prompts = cells.sum(axis=1), np.count_nonzero(counts.sum(axis=1), axis=1)
            between = _between(by_prompt, prompts)
            within = _between(cells.reshape(len(cells), -1), np.count_nonzero(counts, axis=(1, 2)))
            variance = np.maximum(variance + between - within, np.maximum(variance, between))
        return cls(mean, variance, units, total, prompts, present, residuals, by_prompt, cells if two_way else None)

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom of the variance."""
        fewer = self.units if self.prompts is None else np.minimum(self.units, self.prompts)
        return np.maximum(1.0, fewer - 1.0)


def _between(residuals: Floats, units: Counts) -> Floats:
    return units / np.maximum(1, units - 1) * (residuals**2).sum(axis=1)


def _correlation(one: _Spread, other: _Spread, at: Counts, at_other: Counts) -> tuple[Floats, Counts]:
    """How strongly the means of columns are correlated, and over how many blocks (or prompts) that was seen."""
    a, b = one.residuals[at], other.residuals[at_other]
    product, squares = (a * b).sum(axis=1), ((a**2).sum(axis=1), (b**2).sum(axis=1))
    shared: Counts = np.count_nonzero(one.present[at] & other.present[at_other], axis=1)
    if one.by_prompt is not None and other.by_prompt is not None and one.cells is not None and other.cells is not None:
        c, d = one.by_prompt[at], other.by_prompt[at_other]
        product = product + (c * d).sum(axis=1) - (one.cells[at] * other.cells[at_other]).sum(axis=(1, 2))
        squares = _both_ways(a, c, one.cells[at]), _both_ways(b, d, other.cells[at_other])
        prompts: Counts = np.count_nonzero((c != 0) & (d != 0), axis=1)
        shared = np.where(shared >= MIN_SHARED, np.minimum(shared, prompts), prompts)
    scale = np.sqrt(squares[0] * squares[1])
    return np.divide(product, scale, out=np.zeros_like(product), where=scale > 0), shared


def _both_ways(units: Floats, prompts: Floats, cells: Floats) -> Floats:
    one, other = (units**2).sum(axis=1), (prompts**2).sum(axis=1)
    return np.maximum(one + other - (cells**2).sum(axis=(1, 2)), np.maximum(one, other))


def adjusted(correlation: Floats, shared: Counts) -> Floats:
    """A correlation of few blocks less what chance alone gives (Ezekiel 1930), and never below 0."""
    freedom = np.maximum(1, shared - 2)
    explained = 1 - (1 - np.minimum(1.0, correlation**2)) * (shared - 1) / freedom
    usable = (shared >= MIN_SHARED) & (correlation > 0)
    return np.where(usable, np.sqrt(np.maximum(0.0, explained)), 0.0)


def distance(one: Floats, other: Floats, correlation: Floats | float) -> Floats:
    """MOVER: how far a difference's limit lies from it, by how far the limits of its sides lie from theirs."""
    return np.sqrt(np.maximum(0.0, one * one + other * other - 2 * correlation * one * other))


# -- sides -----------------------------------------------------------------------------------------------------------


class Side:
    """One side of comparisons: a set of portraits, for all quantities of a batch."""

    def __init__(self, batch: Batch, mask: Flags) -> None:
        plan = batch.plan
        self.batch = batch
        self.values = _Spread.of(batch.values.of_side(plan, mask), is_share=False)
        self.parts = _Spread.of(batch.parts.of_side(plan, mask), is_share=True)
        self.value = np.where(batch.is_rate, snapped(self.values.mean), self.values.mean)
        self._limits: dict[float, tuple[Floats, Floats]] = {}

    @cached_property
    def _effective(self) -> tuple[Floats, Floats]:
        """Of each part: the effective number of edits, and the degrees of freedom of what it was learnt from."""
        parts, batch = self.parts, self.batch
        spread = parts.mean * (1 - parts.mean)
        own = np.divide(parts.edits * parts.variance, spread, out=np.zeros_like(spread), where=spread > 0)
        units = np.maximum(1, parts.units)
        floor = 1 + (parts.edits / units - 1) * ICC_FLOOR
        base = np.where(
            batch.part_is_rate,
            np.maximum(np.maximum(1.0, batch.pooled), floor),
            np.maximum(batch.pooled, batch.scatter * floor),
        )
        freedom = np.where(own > base, parts.freedom, np.maximum(batch.freedom, parts.freedom))
        if parts.prompts is not None:
            freedom = parts.freedom
        return np.maximum(units, parts.edits / np.maximum(own, base)), freedom

    def limits(self, confidence: Confidence) -> tuple[Floats, Floats]:
        """By quantity: both ends of its interval."""
        if not isinstance(confidence, float):
            return self._ends(confidence)
        if confidence not in self._limits:
            self._limits[confidence] = self._ends(confidence)
        return self._limits[confidence]

    def _ends(self, confidence: Confidence) -> tuple[Floats, Floats]:
        batch = self.batch
        tail = np.broadcast_to((1 + np.asarray(confidence)) / 2, len(batch.quantities))
        size, freedom = self._effective
        low, high = wilson_limits(self.parts.mean, size, quantiles(tail[batch.places], freedom))
        below, above = batch.scale * (self.parts.mean - low), batch.scale * (high - self.parts.mean)
        joined_below, joined_above = below[batch.first], above[batch.first]
        if len(batch.two):
            # What was seen of ups and downs together never makes the interval narrower.
            apart = np.minimum(0.0, self._up_and_down)
            up, down = batch.first[batch.two], batch.first[batch.two] + 1
            joined_below[batch.two] = distance(below[up], above[down], apart)
            joined_above[batch.two] = distance(above[up], below[down], apart)
        half = quantiles(tail, self._unbounded[1]) * np.sqrt(self._unbounded[0])
        lows = self.value - np.where(batch.is_bounded, joined_below, half)
        highs = self.value + np.where(batch.is_bounded, joined_above, half)
        return np.maximum(lows, batch.lowest), np.minimum(highs, batch.highest)

    @cached_property
    def _up_and_down(self) -> Floats:
        places = self.batch.first[self.batch.two]
        return _correlation(self.parts, self.parts, places, places + 1)[0]

    @cached_property
    def _unbounded(self) -> tuple[Floats, Floats]:
        """Variance and degrees of freedom of means without bounds; a side without spread has that of all groups."""
        values, batch = self.values, self.batch
        flat = values.variance <= 0
        pooled = batch.pooled_variance / np.maximum(1.0, values.edits)
        return np.where(flat, pooled, values.variance), np.where(flat, batch.value_freedom, values.freedom)

    def problem(self, place: int, noun: str) -> str:
        """Why a quantity has no interval on this side; empty where it has one."""
        units = int(self.values.units[place])
        if units < 2:
            edits = "no rated edit" if units == 0 else f"rated edits of only one of its {noun}"
            return f"has {edits}"
        prompts = self.values.prompts
        if prompts is not None and prompts[place] < 2:
            return "has only one prompt, which says nothing about others"
        if not self.batch.is_bounded[place] and self._unbounded[0][place] <= 0:
            return f"has {self.value[place]:.6g} for all its {noun}: no spread, so no interval"
        return ""


class Batch:
    """Quantities side by side, and what the levels of their plan together show."""

    def __init__(self, plan: Plan, quantities: Sequence[Quantity], *, sample: bool) -> None:
        self.plan = plan
        self.quantities = quantities
        self.is_rate = np.array([quantity.is_rate for quantity in quantities], dtype=np.bool_)
        self.is_bounded = np.array([bool(quantity.parts) for quantity in quantities], dtype=np.bool_)
        bounds = [quantity.bounds or (-math.inf, math.inf) for quantity in quantities]
        self.lowest, self.highest = (np.array(ends) for ends in zip(*bounds, strict=True))
        cells = [quantity.by_prompt if sample else None for quantity in quantities]
        sums = [one.sums if cell is None else cell.sums for one, cell in zip(quantities, cells, strict=True)]
        counts = [one.counts if cell is None else cell.counts for one, cell in zip(quantities, cells, strict=True)]
        self.values = _Columns(np.stack(sums), np.stack(counts))
        # A quantity without bounds keeps a place among the parts, so that places are simple; nothing reads it.
        own = [quantity.parts or (_nothing(quantity),) for quantity in quantities]
        parts = [(place, part) for place, several in enumerate(own) for part in several]
        self.places = np.array([place for place, _ in parts], dtype=np.int64)
        self.first = np.searchsorted(self.places, np.arange(len(quantities)))
        self.two = np.flatnonzero([len(several) == 2 for several in own])
        self.part_is_rate = self.is_rate[self.places]
        self.scale = np.array([part.scale for _, part in parts])
        shares = [part.by_prompt if sample and part.by_prompt is not None else part.sums for _, part in parts]
        self.parts = _Columns(np.stack(shares), self.values.counts[self.places])
        self._squares = np.stack([part.squares for _, part in parts])
        self._sides: dict[bytes, Side] = {}

    def side(self, mask: Flags) -> Side:
        """These portraits."""
        key = mask.tobytes()
        if key not in self._sides:
            self._sides[key] = Side(self, mask)
        return self._sides[key]

    @cached_property
    def levels(self) -> list[Side]:
        """The groups, or everyone."""
        return [self.side(part.members) for part in self.plan.comparisons if part.against is None]

    @cached_property
    def pooled(self) -> Floats:
        """Of each part: how many times larger the variance is than of independent edits, over all levels."""
        clustered, independent = np.zeros(len(self.scale)), np.zeros(len(self.scale))
        for level in self.levels:
            parts = level.parts
            known = parts.units > 1
            clustered += np.where(known, parts.edits**2 * parts.variance, 0.0)
            independent += np.where(known, parts.edits * parts.mean * (1 - parts.mean), 0.0)
        return np.divide(clustered, independent, out=np.zeros_like(clustered), where=independent > 0)

    @cached_property
    def freedom(self) -> Floats:
        """Of what all levels together show, by part."""
        return np.sum([np.maximum(0.0, level.parts.freedom) for level in self.levels], axis=0)

    @cached_property
    def scatter(self) -> Floats:
        """Of each part: its scores' variance as a share of the largest possible, with one score at either end added."""
        inside = self.plan.unit >= 0
        counts = self.values.counts.reshape(len(self.quantities), len(inside), -1).sum(axis=2)[:, inside].sum(axis=1)
        size = counts[self.places] + 2
        sums = self.parts.sums.reshape(len(self.scale), len(inside), -1).sum(axis=2)[:, inside].sum(axis=1)
        mean = (sums + 1) / size
        variance = (self._squares[:, inside].sum(axis=1) + 1) / size - mean**2
        largest = np.maximum(NOISE, mean * (1 - mean))
        return np.clip(variance / largest, NOISE, 1.0)

    @cached_property
    def pooled_variance(self) -> Floats:
        """Of values without bounds: the variance of one edit's worth, over all levels."""
        total = sum((level.values.edits**2 * level.values.variance for level in self.levels), np.zeros(self._size))
        return total / np.maximum(1.0, sum((level.values.edits for level in self.levels), np.zeros(self._size)))

    @cached_property
    def value_freedom(self) -> Floats:
        """The same by quantity."""
        return np.sum([level.values.freedom for level in self.levels], axis=0)

    @property
    def _size(self) -> int:
        return len(self.quantities)

    def sides(self, comparison: SideComparison) -> tuple[Side, ...]:
        """Both, or the only one."""
        masks = (comparison.members,) if comparison.against is None else (comparison.members, comparison.against)
        return tuple(self.side(mask) for mask in masks)

    def numbers(self, comparison: SideComparison, confidence: Confidence) -> tuple[Floats, Floats, Floats]:
        """By quantity: value and limits of a comparison."""
        sides = self.sides(comparison)
        if len(sides) == 2:
            return self.difference(*sides, confidence)
        return sides[0].value, *sides[0].limits(confidence)

    def outcomes(self, comparison: SideComparison, confidence: float) -> list[Outcome]:
        """By quantity: the interval of a comparison, or why there is none."""
        sides, places = self.sides(comparison), range(len(self.quantities))
        value, low, high = self.numbers(comparison, confidence)
        return [_outcome(self, place, sides, (value[place], low[place], high[place]), confidence) for place in places]

    def difference(self, one: Side, other: Side, confidence: Confidence) -> tuple[Floats, Floats, Floats]:
        """Value and limits of one side minus the other."""
        every = np.arange(self._size)
        rho = adjusted(*_correlation(one.values, other.values, every, every))
        (low, high), (other_low, other_high) = one.limits(confidence), other.limits(confidence)
        value = one.value - other.value
        below = distance(one.value - low, other_high - other.value, rho)
        above = distance(high - one.value, other.value - other_low, rho)
        widest = self.highest - self.lowest
        return value, np.maximum(value - below, -widest), np.minimum(value + above, widest)


def _nothing(quantity: Quantity) -> Part:
    zero = np.zeros_like(quantity.sums)
    by_prompt = np.zeros_like(quantity.by_prompt.sums) if quantity.by_prompt else None
    return Part(scale=1.0, sums=zero, squares=zero, by_prompt=by_prompt)


def jackknife(without: Floats) -> float:
    """The standard error of a number from its values without one unit each."""
    units = len(without)
    return math.sqrt((units - 1) / units * float(((without - without.mean()) ** 2).sum()))


# -- outcomes --------------------------------------------------------------------------------------------------------

BATCH = 256
"""Quantities that are worked on at once."""


def batches(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[Batch]:
    """The quantities of a plan, as many at once as memory holds."""
    size = 16 if settings.prompts == "sample" else BATCH
    for start in range(0, len(quantities), size):
        yield Batch(plan, quantities[start : start + size], sample=settings.prompts == "sample")


def outcomes(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> list[list[Outcome]]:
    """For each quantity: the interval of each comparison of the plan."""
    found: list[list[Outcome]] = []
    for batch in batches(plan, quantities, settings):
        by_comparison = [batch.outcomes(comparison, settings.confidence) for comparison in plan.comparisons]
        found += [[column[place] for column in by_comparison] for place in range(len(batch.quantities))]
    return found


def _outcome(batch: Batch, place: int, sides: Sequence[Side], numbers: Sequence[float], confidence: float) -> Outcome:
    if problem := problem_of(batch, place, sides):
        return NotEstimable(reason=problem)
    value, low, high = numbers
    return interval(value, low, high, confidence=confidence, method=method_of(batch, place, sides))


def problem_of(batch: Batch, place: int, sides: Sequence[Side]) -> str:
    """Why a comparison has no interval; empty where it has one."""
    problem = next((problem for side in sides if (problem := side.problem(place, batch.plan.noun))), "")
    return f"{'the group' if len(sides) == 1 else 'one side'} {problem}" if problem else ""


def method_of(batch: Batch, place: int, sides: Sequence[Side]) -> str:
    """How an interval was found, and over how many units."""
    units = " and ".join(str(int(side.values.units[place])) for side in sides)
    how = "Wilson on the effective number of edits" if batch.is_bounded[place] else "Student's t"
    both = "MOVER: " if len(sides) == 2 else ""
    over = "prompts and " if sides[0].values.prompts is not None else ""
    return f"{both}{how}, {over}{units} {batch.plan.noun}"


def largest_gaps(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> list[Outcome]:
    """For each quantity: max - min of the plan's levels, with limits that hold for all pairs together (Bonferroni).

    No pair differs by more than the largest upper limit, and one does by the largest lower limit.
    """
    return [
        outcome
        for batch in batches(plan, quantities, settings)
        for outcome in _largest_gaps(batch, batch.levels if plan.levels else [], settings.confidence)
    ]


def _largest_gaps(batch: Batch, levels: Sequence[Side], confidence: float) -> list[Outcome]:
    size, noun = len(batch.quantities), batch.plan.noun
    few = NotEstimable(reason=f"fewer than two groups of {batch.plan.factor} can be estimated")
    found: list[Outcome] = [few] * size
    usable = np.array([[not level.problem(place, noun) for level in levels] for place in range(size)], dtype=np.bool_)
    # Nearly always every level has an estimate, for every quantity.
    for pattern in np.unique(usable.reshape(size, len(levels)), axis=0):
        kept = [level for level, keep in zip(levels, pattern, strict=True) if keep]
        if len(kept) < 2:
            continue
        low, high = _together(batch, kept, confidence)
        values = np.stack([level.value for level in kept])
        for place in np.flatnonzero((usable == pattern).all(axis=1)).tolist():
            found[place] = interval(
                float(np.ptp(values[:, place])),
                low[place],
                high[place],
                confidence=confidence,
                method=f"Bonferroni over all pairs of groups, {method_of(batch, place, kept[:1])} or more",
            )
    return found


def _together(batch: Batch, levels: Sequence[Side], confidence: float) -> tuple[Floats, Floats]:
    """The largest limits of all pairs, whichever group is ahead."""
    pairs = list(combinations(levels, 2))
    each = 1 - (1 - confidence) / len(pairs)
    lows, highs = np.zeros(len(batch.quantities)), np.zeros(len(batch.quantities))
    for one, other in pairs:
        _, low, high = batch.difference(one, other, each)
        lows, highs = np.maximum(lows, np.maximum(low, -high)), np.maximum(highs, np.maximum(high, -low))
    return lows, highs


_MOST = 1_000
"""Degrees of freedom up to which sums are added up: they are right to 12 digits. scipy knows the rest."""
_STEPS = 100
_EXACT = 4e-16


def quantiles(probability: float | NDArray[np.float64], freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quantile of each probability with each number of degrees of freedom."""
    p, degrees = np.broadcast_arrays(np.asarray(probability, dtype=np.float64), freedom)
    return np.array(list(map(quantile, p.ravel().tolist(), degrees.ravel().tolist()))).reshape(p.shape)


@lru_cache(maxsize=4096)
def quantile(probability: float, freedom: float) -> float:
    """Below it lies this probability."""
    if freedom == math.inf:
        return NormalDist().inv_cdf(probability)
    if freedom != int(freedom) or not 0 < probability < 1 or freedom < 1 or freedom > _MOST:
        from scipy.special import stdtrit

        return float(stdtrit(freedom, probability))
    inside = abs(2 * probability - 1)
    value = math.sqrt(freedom) * math.tan(_angle(inside, int(freedom)))
    return math.copysign(value, probability - 0.5) if inside else 0.0


def _angle(inside: float, freedom: int) -> float:
    """The angle whose tangent is t / √freedom, where |t| stays below with probability `inside`.

    The probability is a concave function of the angle, so that Newton's steps from 0 never pass the root.
    """
    if freedom == 1:
        return math.pi / 2 * inside
    angle = 0.0
    for _ in range(_STEPS):
        found, slope = _inside(angle, freedom)
        step = (inside - found) / slope
        angle += step
        if step <= _EXACT * angle:
            break
    return angle


def _inside(angle: float, freedom: int) -> tuple[float, float]:
    """The probability that |t| stays below √freedom · tan(angle), and how fast it grows with the angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    coefficient = 1.0
    for number in range(3 if odd else 2, freedom - 1, 2):
        share = (number - 1) / number
        coefficient *= share
        term *= share * cosine * cosine
        total += term
    slope = coefficient * (freedom - 1) * cosine ** (freedom - 1)
    if odd:
        return 2 / math.pi * (angle + sine * total), 2 / math.pi * slope
    return sine * total, slope
