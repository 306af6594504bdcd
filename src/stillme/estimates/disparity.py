"""The largest difference between groups, and how large chance alone makes it.

Of several noisy groups one is always highest and one lowest, so max - min is above zero even when no group
differs. It is therefore always given with its null band: the same number after permuting the group labels
over the portraits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.bootstrap import Resampled
from stillme.estimates.design import PermutationDesign, Plan
from stillme.estimates.permuting import (
    AT_ONCE,
    CLEARLY_LARGE,
    PERMUTATIONS_PER_REPLICATE,
    is_large,
    is_look,
    level_sums,
    normal_limit,
    normal_sums,
    p_value,
    permuted,
    smallest_permuted_p,
)
from stillme.estimates.quantiles import normal_quantile, quantile, t_quantile
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.rounding import interval as rounded_interval
from stillme.estimates.rounding import rounded
from stillme.estimates.settings import Settings
from stillme.types import Estimate, Interval, NotEstimable

_TOGETHER = 128
"""Quantities that share one pass over the permutations; all that is permuted is kept for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullBand:
    """max - min under permuted group labels."""

    mean: float
    high: float
    """Chance stays below this with the audit's confidence."""
    p: float
    """How often chance reached the observed max - min (permutation over portraits, within blocks)."""
    omnibus: float
    """How often chance made all groups together differ as much (sum of squares between groups).

    The test to rely on: it detects two groups that differ from five others better than the range does.
    """
    smallest_p: float = 0.0
    """The smallest p-value that so few units can give; a test that cannot reject is no part of a family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disparity(Estimate):
    """max - min over the groups of a factor."""

    null: NullBand | None = None
    highest: str = ""
    """The group with the largest value."""
    lowest: str = ""
    levels: tuple[str, ...] = field(default=())
    """The groups that have an estimate."""


def interval(plan: Plan, quantity: Quantity, resampled: Resampled, settings: Settings) -> Interval | NotEstimable:
    """The interval of max - min.

    The range of the groups can be wrong by no more than the range of their errors. So the observed range,
    plus and minus the bootstrap's quantile of that, covers the true one at least at the nominal rate, also
    when it is zero; percentiles of the resampled ranges themselves miss a true zero in every third audit.
    """
    usable = comparable(resampled)
    if usable.sum() < 2:
        return NotEstimable(reason=f"fewer than two groups of {plan.factor} can be estimated")
    values = resampled.values[usable]
    observed = float(np.ptp(values))
    # NaN where a group has no value.
    error_ranges = np.ptp(resampled.groups[usable] - values[:, None], axis=0)
    error_ranges = error_ranges[np.isfinite(error_ranges)]
    if len(error_ranges) < settings.replicates / 2:
        return NotEstimable(reason="too few rated edits to resample every group")
    error_range = quantile(error_ranges, settings.confidence)
    error_range *= _small_sample(plan, int(usable.sum()), settings.confidence)
    # Groups at 0 % or 100 % do not vary when resampled; their own limits allow for what was not seen.
    below, above = _beyond_extremes(resampled) if quantity.is_rate and resampled.flat else (0.0, 0.0)
    return rounded_interval(
        observed,
        max(0.0, observed - max(error_range, below)),
        min(observed + max(error_range, above), _widest(quantity)),
        confidence=settings.confidence,
        method=f"bootstrap of the range of errors over {'prompts and ' * (settings.prompts == 'sample')}{plan.noun}",
    )


def _widest(quantity: Quantity) -> float:
    return quantity.bounds[1] - quantity.bounds[0] if quantity.bounds else math.inf


def _small_sample(plan: Plan, levels: int, confidence: float) -> float:
    """Widen what a bootstrap of few units makes too narrow: by √(n/(n-1)), and by Student's heavier tails."""
    sizes = [len(units) for units in plan.strata]
    freedom = (sizes[0] - 1) * (levels - 1) if plan.paired else sum(sizes) - len(sizes)
    tail = (1 + confidence) / 2
    return math.sqrt(min(sizes) / (min(sizes) - 1)) * t_quantile(tail, freedom) / normal_quantile(tail)


def _beyond_extremes(resampled: Resampled) -> tuple[float, float]:
    """How far the highest and the lowest group's own limits let their difference move."""
    groups = [group for group in resampled.outcomes[: len(resampled.values)] if isinstance(group, Interval)]
    top, bottom = max(groups, key=lambda group: group.value), min(groups, key=lambda group: group.value)
    return (
        math.hypot(top.value - top.low, bottom.high - bottom.value),
        math.hypot(top.high - top.value, bottom.value - bottom.low),
    )


def comparable(resampled: Resampled) -> NDArray[np.bool_]:
    """Which levels have an estimate."""
    groups = resampled.outcomes[: len(resampled.values)]
    return np.array([isinstance(group, Interval) for group in groups], dtype=np.bool_)


def null_bands(
    plan: Plan, quantities: Sequence[Quantity], resampled: Sequence[Resampled], settings: Settings
) -> Iterator[NullBand | None]:
    """The null band of each quantity's disparity."""
    design = plan.permutation
    if design is None:
        yield from [None] * len(quantities)
        return
    for start in range(0, len(quantities), _TOGETHER):
        end = start + _TOGETHER
        yield from _batch(design, plan, quantities[start:end], resampled[start:end], settings)


def _batch(
    design: PermutationDesign,
    plan: Plan,
    quantities: Sequence[Quantity],
    resampled: Sequence[Resampled],
    settings: Settings,
) -> Iterator[NullBand | None]:
    usable = np.stack([comparable(quantity) for quantity in resampled])
    units = np.stack(
        [_unit_sums(design, quantity, keep) for quantity, keep in zip(quantities, usable, strict=True)], axis=2
    )
    levels = len(plan.levels)
    observed = _differences(level_sums(design.level[None, :], levels, units), usable)[:, :, 0]
    under_chance = np.full((2, len(quantities), PERMUTATIONS_PER_REPLICATE * settings.replicates), np.nan)
    done, going = 0, np.flatnonzero(usable.sum(axis=1) >= 2)
    large = is_large(design)
    for drawn in permuted(design, levels, settings):
        if not len(going):
            break
        part = units[:, :, going]
        for start in range(0, len(drawn), rows := max(1, AT_ONCE // (levels * len(going)))):
            few = drawn[start : start + rows]
            sums = _normal_sums(design, levels, part, few) if large else level_sums(few, levels, part)
            under_chance[:, going, done : done + len(few)] = _differences(sums, usable[going])
            done += len(few)
        if is_look(done, settings):
            going = np.array([row for row in going if _is_open(observed[:, row], under_chance[:, row, :done])], np.intp)
    smallest = smallest_permuted_p(design)
    for row, keep in enumerate(usable):
        if keep.sum() < 2:
            yield None
            continue
        ranges, squares = (drawn[np.isfinite(drawn)] for drawn in under_chance[:, row])
        yield NullBand(
            mean=rounded(float(ranges.mean())),
            high=rounded(quantile(ranges, settings.confidence)),
            p=p_value(ranges, float(observed[0, row])),
            omnibus=p_value(squares, float(observed[1, row])),
            smallest_p=smallest,
        )


def _is_open(observed: Floats, under_chance: Floats) -> bool:
    """Whether one of the two p-values may still be small, so that it needs more permutations."""
    return any(
        p_value(drawn[np.isfinite(drawn)], float(value)) < CLEARLY_LARGE
        for drawn, value in zip(under_chance, observed, strict=True)
        if np.isfinite(value)
    )


def _normal_sums(design: PermutationDesign, levels: int, units: Floats, drawn: Floats) -> Floats:
    total: Floats = units.sum(axis=0)
    # Where nothing is counted there is nothing to sum either.
    ratio = total[0] / np.maximum(1.0, total[1])
    mean, root = normal_limit(design, levels, units[:, 0] - ratio * units[:, 1])
    counts = (np.bincount(design.level, minlength=levels)[:, None] / len(design.level) * total[1])[:, None]
    sums = mean[:, None] + normal_sums(root, drawn) + ratio * counts
    return np.stack([sums, np.broadcast_to(counts, sums.shape)], axis=2)


def _differences(level_sums: Floats, usable: NDArray[np.bool_]) -> Floats:
    """Two × quantities × permutations: range and weighted sum of squares of the usable levels' values.

    `level_sums` are levels × permutations × sum and count × quantities.
    """
    differences = np.full((2, len(usable), level_sums.shape[1]), math.nan)
    # Nearly always every level has an estimate, for every quantity.
    for keep in np.unique(usable, axis=0) if not usable.all() else usable[:1]:
        if keep.sum() < 2:
            continue
        places = np.flatnonzero((usable == keep).all(axis=1))
        part = level_sums if usable.all() else level_sums[keep][..., places]
        sums, counts = np.moveaxis(part, 2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = sums / counts
            differences[0, places] = np.ptp(values, axis=0).T
            values -= sums.sum(axis=0) / counts.sum(axis=0)
            values *= values
            values *= counts
            differences[1, places] = values.sum(axis=0).T
    return differences


def _unit_sums(design: PermutationDesign, quantity: Quantity, keep: NDArray[np.bool_]) -> Floats:
    """Units × sum and count."""
    inside = design.unit >= 0
    unit, size = design.unit[inside], len(design.level)
    both = [sums_by(unit, values[inside], size) for values in (quantity.sums, quantity.counts)]
    # Levels without an estimate of their own take no part.
    return np.stack(both, axis=1) * keep[design.level][:, None]
