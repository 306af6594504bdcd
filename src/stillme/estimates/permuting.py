"""Permutation tests: group labels are permuted over portraits, within blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from stillme.estimates.bootstrap import BATCH, MAX_COUNTS
from stillme.estimates.design import PermutationDesign, Plan
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.rounding import NOISE
from stillme.estimates.rows import Flags
from stillme.estimates.settings import Settings
from stillme.types import digest

PERMUTATIONS_PER_REPLICATE = 5
"""More permutations than bootstrap replicates: a p-value must be able to get small enough to survive Holm."""

Sides = tuple[Flags, Flags]
"""Which levels of the plan are on the one side, and which on the other."""

_TOLERANCE = 1e-9
"""Statistics that are equal up to rounding count as equal: the same permutation may add up in another order."""
_MAX_T = 1e12
"""The t-value of a difference without any spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationTest:
    """How often permuted labels set two sides as far apart as observed."""

    p: float
    """With the labels of these two sides permuted between them."""
    max_t: float
    """How often the largest difference of the family is as large when all labels are permuted.

    Exact when no group differs; where some do, Holm over `p` is valid for the others.
    """


def permutations(design: PermutationDesign, settings: Settings) -> Iterator[NDArray[np.intp]]:
    """Chunks of permutations × units: each unit's label after permuting labels within its block."""
    stream = np.random.default_rng(int(digest([settings.seed, "permute", list(design.names)]), 16))
    size = len(design.level)
    by_block = np.argsort(design.within, kind="stable")
    chunk = max(1, MAX_COUNTS // max(1, size * (1 + int(design.level.max()))))
    total = PERMUTATIONS_PER_REPLICATE * settings.replicates
    for start in range(0, total, chunk):
        rows = min(chunk, total - start)
        shuffled = np.argsort(design.within + stream.random((rows, size)), axis=1)
        permuted = np.empty((rows, size), dtype=np.intp)
        # Sorting by block number plus a random fraction keeps blocks together and shuffles inside.
        permuted[:, by_block] = design.level[shuffled]
        yield permuted


def smallest_permuted_p(design: PermutationDesign) -> float:
    """The smallest p-value that permuting these labels can give: one in all arrangements that differ."""
    arrangements = symmetric = 0.0
    for block in np.unique(design.within).tolist():
        sizes = np.bincount(design.level[design.within == block])
        arrangements += float(gammaln(sizes.sum() + 1) - gammaln(sizes + 1).sum())
    sizes = np.bincount(design.level)
    if len(set(sizes.tolist())) == 1:
        # Groups of one size may swap their labels: the difference between them stays the same.
        symmetric = float(gammaln(len(sizes) + 1))
    return min(1.0, math.exp(symmetric - arrangements))


def p_value(permuted: Floats, observed: float) -> float:
    """The share of permutations whose statistic reaches the observed one, which counts as one of them."""
    extreme = int(np.count_nonzero(permuted >= _threshold(np.array(observed))))
    return (1 + extreme) / (1 + len(permuted))


def _threshold(observed: Floats) -> Floats:
    return observed * (1 - _TOLERANCE) - NOISE


def permutation_tests(
    plan: Plan, quantities: Sequence[Quantity], family: Sequence[Sides], settings: Settings
) -> Iterator[tuple[PermutationTest, ...]]:
    """For each quantity: the test of each comparison of a family."""
    design = plan.permutation
    if design is None or not family:
        yield from [()] * len(quantities)
        return
    for start in range(0, len(quantities), BATCH):
        moments = [_moments(design, quantity) for quantity in quantities[start : start + BATCH]]
        extreme, family_extreme = _count_extreme(design, moments, family, settings)
        for place, sides in enumerate(family):
            if not (sides[0] | sides[1]).all():
                extreme[:, place] = _between_two(design, moments, sides, settings)
        total = 1 + PERMUTATIONS_PER_REPLICATE * settings.replicates
        for row in range(len(moments)):
            yield tuple(
                PermutationTest(p=(1 + alone) / total, max_t=(1 + together) / total)
                for alone, together in zip(extreme[row].tolist(), family_extreme[row].tolist(), strict=True)
            )


def sign_flip_p(units: Floats, settings: Settings, names: Sequence[str]) -> float:
    """The p-value of a sum of independent parts, each symmetric around 0 under the null: their signs are flipped."""
    flipped = [np.abs(signs @ units) for signs in sign_flips(len(units), settings, names)]
    return p_value(np.concatenate(flipped), abs(float(units.sum())))


def sign_flips(size: int, settings: Settings, names: Sequence[str]) -> Iterator[Floats]:
    """Chunks of flips × units: each unit's sign."""
    stream = np.random.default_rng(int(digest([settings.seed, "flip", list(names)]), 16))
    total, chunk = PERMUTATIONS_PER_REPLICATE * settings.replicates, max(1, MAX_COUNTS // max(1, size))
    for start in range(0, total, chunk):
        yield 2.0 * stream.integers(0, 2, size=(min(chunk, total - start), size)) - 1.0


def smallest_p(units: Floats) -> float:
    """The smallest p-value that flipping the signs of these units can give: only units that differ from 0 count."""
    return min(1.0, 2.0 ** (1 - int(np.count_nonzero(np.abs(units) > NOISE))))


def _between_two(
    design: PermutationDesign, moments: Sequence[Floats], sides: Sides, settings: Settings
) -> NDArray[np.int64]:
    inside = (sides[0] | sides[1])[design.level]
    part = replace(
        design,
        level=sides[1][design.level[inside]].astype(np.intp),
        within=design.within[inside],
        names=tuple(name for name, keep in zip(design.names, inside, strict=True) if keep),
    )
    two = (np.array([True, False]), np.array([False, True]))
    return _count_extreme(part, [unit_moments[inside] for unit_moments in moments], [two], settings)[0][:, 0]


def _count_extreme(
    design: PermutationDesign, moments: Sequence[Floats], family: Sequence[Sides], settings: Settings
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By quantity and comparison, count permutations that reach the observed t: there, and anywhere in the family."""
    levels = len(family[0][0])
    observed_labels = _membership(design.level[None, :], levels)
    thresholds = [_threshold(_t_values(observed_labels, unit_moments, family)[:, 0]) for unit_moments in moments]
    extreme = np.zeros((len(moments), len(family)), dtype=np.int64)
    family_extreme = np.zeros_like(extreme)
    for permuted in permutations(design, settings):
        membership = _membership(permuted, levels)
        for row, unit_moments in enumerate(moments):
            t = _t_values(membership, unit_moments, family)
            extreme[row] += np.count_nonzero(t >= thresholds[row][:, None], axis=1)
            family_extreme[row] += np.count_nonzero(t.max(axis=0) >= thresholds[row][:, None], axis=1)
    return extreme, family_extreme


def _membership(labels: NDArray[np.intp], levels: int) -> Floats:
    """Levels × permutations × units: 1 where the unit has the level."""
    return np.stack([labels == level for level in range(levels)]).astype(np.float64)


def _t_values(membership: Floats, moments: Floats, family: Sequence[Sides]) -> Floats:
    """Comparisons × permutations: the absolute difference of the sides in standard errors."""
    # Levels × permutations × moments, one column at a time for the reason given in `bootstrap`.
    levels = np.stack([membership @ moments[:, column] for column in range(moments.shape[1])], axis=2)
    return np.stack([_t_value(levels, sides) for sides in family])


def _t_value(levels: Floats, sides: Sides) -> Floats:
    """Compare two sides, each a union of levels, by their difference over its standard error."""
    difference, variance = np.zeros(levels.shape[1]), np.zeros(levels.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        for sign, side in zip((1.0, -1.0), sides, strict=True):
            sums, counts, squares, products, squared_counts, units = np.moveaxis(levels[side].sum(axis=0), -1, 0)
            mean = sums / counts
            residuals = squares - 2 * mean * products + mean * mean * squared_counts
            # What is left where the terms cancel is rounding error.
            residuals = np.where(residuals > NOISE * (squares + mean * mean * squared_counts), residuals, 0.0)
            difference += sign * mean
            variance += residuals / counts**2 * units / (units - 1)
        t = np.abs(difference) / np.sqrt(variance)
    # Without any spread a difference is either none or beyond all chance; a side without a value shows none.
    none = ~(np.abs(difference) >= NOISE) | np.isnan(t)
    return np.where(none, 0.0, np.minimum(t, _MAX_T))


def _moments(design: PermutationDesign, quantity: Quantity) -> Floats:
    inside = design.unit >= 0
    unit, size = design.unit[inside], len(design.level)
    counts = sums_by(unit, quantity.counts[inside], size)
    mean = quantity.sums[inside].sum() / max(1.0, quantity.counts[inside].sum())
    # Subtracted from every value, so that squares do not cancel.
    sums = sums_by(unit, quantity.sums[inside], size) - mean * counts
    columns = [sums, counts, sums * sums, sums * counts, counts * counts, counts > 0]
    return np.asfortranarray(np.stack(columns, axis=1).astype(np.float64))
