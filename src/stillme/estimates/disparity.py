"""The largest difference between groups, and how large chance alone makes it.

Of several noisy groups one is always highest and one lowest, so max - min is above zero even when no group
differs. It is therefore never given without its null band: the same number after dealing the group labels
anew over the portraits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.bootstrap import BATCH, Resampled
from stillme.estimates.design import Permuting, Plan
from stillme.estimates.permuting import DEALS, deals, reached
from stillme.estimates.quantiles import normal, student
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.settings import Settings
from stillme.types import Estimate, Interval, NotEstimable


@dataclass(frozen=True, slots=True, kw_only=True)
class NullBand:
    """max - min when the groups are dealt at random."""

    mean: float
    high: float
    """Chance stays below this with the audit's confidence."""
    p: float
    """How often chance reached the observed max - min (permutation over portraits, within blocks)."""
    omnibus: float
    """How often chance made the groups differ as much taken together (sum of squares between groups).

    The test to go by: it sees two groups that stand apart from five better than the range does.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Disparity(Estimate):
    """max - min over the groups of a factor."""

    null: NullBand | None = None
    highest: str = ""
    """The group with the largest value."""
    lowest: str = ""
    levels: tuple[str, ...] = field(default=())
    """The groups that could be compared."""


def interval(plan: Plan, quantity: Quantity, found: Resampled, settings: Settings) -> Interval | NotEstimable:
    """Give max - min its limits.

    The range of the groups can be wrong by no more than the range of their errors. So the observed range,
    plus and minus the bootstrap's quantile of that, holds the true one at least as often as promised, also
    when it is zero; limits read off the resampled ranges themselves miss a true zero in every third audit.
    """
    usable = comparable(found)
    if usable.sum() < 2:
        return NotEstimable(reason=f"fewer than two groups of {plan.factor} can be estimated")
    values = found.values[usable]
    observed = float(np.ptp(values))
    resampled = found.groups[:, usable]
    resampled = resampled[np.isfinite(resampled).all(axis=1)]
    if len(resampled) < settings.replicates / 2:
        return NotEstimable(reason="too few rated edits to resample every group")
    error_range = float(np.quantile(np.ptp(resampled - values, axis=1), settings.confidence))
    error_range *= _small_sample(plan, int(usable.sum()), settings.confidence)
    # Groups at 0 % or 100 % do not vary when resampled; their own limits say what was not seen.
    below, above = _beyond_extremes(found) if quantity.is_rate and found.flat else (0.0, 0.0)
    return Interval(
        value=observed,
        low=max(0.0, observed - max(error_range, below)),
        high=min(observed + max(error_range, above), _widest(quantity)),
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
    return math.sqrt(min(sizes) / (min(sizes) - 1)) * student(tail, freedom) / normal(tail)


def _beyond_extremes(found: Resampled) -> tuple[float, float]:
    """How far the highest and the lowest group's own limits let their difference move."""
    groups = [each for each in found.outcomes[: len(found.values)] if isinstance(each, Interval)]
    top, bottom = max(groups, key=lambda each: each.value), min(groups, key=lambda each: each.value)
    return (
        math.hypot(top.value - top.low, bottom.high - bottom.value),
        math.hypot(top.high - top.value, bottom.value - bottom.low),
    )


def comparable(found: Resampled) -> NDArray[np.bool_]:
    """The levels whose value could be estimated."""
    count = len(found.values)
    return np.array([isinstance(each, Interval) for each in found.outcomes[:count]], dtype=np.bool_)


def null_bands(
    plan: Plan, quantities: Sequence[Quantity], resampled: Sequence[Resampled], settings: Settings
) -> Iterator[NullBand | None]:
    """The null band of each quantity's disparity."""
    permuting = plan.permuting
    if permuting is None:
        yield from [None] * len(quantities)
        return
    for start in range(0, len(quantities), BATCH):
        end = start + BATCH
        yield from _batch(permuting, plan, quantities[start:end], resampled[start:end], settings)


def _batch(
    permuting: Permuting,
    plan: Plan,
    quantities: Sequence[Quantity],
    resampled: Sequence[Resampled],
    settings: Settings,
) -> Iterator[NullBand | None]:
    usable = [comparable(found) for found in resampled]
    sums = [_unit_sums(permuting, quantity, keep) for quantity, keep in zip(quantities, usable, strict=True)]
    spread = np.empty((len(quantities), DEALS * settings.replicates))
    squares = np.empty_like(spread)
    done = 0
    for dealt in deals(permuting, settings):
        end = done + len(dealt)
        hands = np.stack([dealt == level for level in range(len(plan.levels))]).astype(np.float64)
        for row, (unit_sums, keep) in enumerate(zip(sums, usable, strict=True)):
            kept = hands if keep.all() else hands[keep]
            found = _differences(kept @ unit_sums[:, 0], kept @ unit_sums[:, 1])
            spread[row, done:end], squares[row, done:end] = found
        done = end
    as_labelled = np.stack([permuting.level == level for level in range(len(plan.levels))]).astype(np.float64)
    for row, (unit_sums, keep) in enumerate(zip(sums, usable, strict=True)):
        if keep.sum() < 2:
            yield None
            continue
        observed = _differences(*(as_labelled[keep][:, None, :] @ unit_sums[:, side] for side in (0, 1)))
        under_chance = spread[row][np.isfinite(spread[row])]
        yield NullBand(
            mean=float(under_chance.mean()),
            high=float(np.quantile(under_chance, settings.confidence)),
            p=reached(under_chance, float(observed[0][0])),
            omnibus=reached(squares[row][np.isfinite(squares[row])], float(observed[1][0])),
        )


def _differences(sums: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Range and weighted sum of squares of the levels' values; both arguments are levels × deals."""
    if len(sums) < 2:
        nothing = np.full(sums.shape[1], math.nan)
        return nothing, nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        values = sums / counts
        middle = sums.sum(axis=0) / counts.sum(axis=0)
    return np.ptp(values, axis=0), (counts * (values - middle) ** 2).sum(axis=0)


def _unit_sums(permuting: Permuting, quantity: Quantity, keep: NDArray[np.bool_]) -> Floats:
    inside = permuting.unit >= 0
    where, size = permuting.unit[inside], len(permuting.level)
    both = [sums_by(where, each[inside], size) for each in (quantity.sums, quantity.counts)]
    # Levels without an estimate of their own take no part.
    return np.asfortranarray(np.stack(both, axis=1) * keep[permuting.level][:, None])
