"""Permutation tests: group labels are permuted over portraits, within blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from stillme.estimates.bootstrap import BATCH, LARGE, MAX_COUNTS
from stillme.estimates.design import PermutationDesign, Plan
from stillme.estimates.quantiles import normal_tail
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.rounding import NOISE
from stillme.estimates.rows import Flags
from stillme.estimates.settings import Settings
from stillme.types import digest

FIRST = 0.2
"""The share of permutations after which a test stops whose p-value is clearly large."""

CLEARLY_LARGE = 0.1
"""Such a p-value decides nothing, so it needs no more digits (Besag and Clifford's sequential test)."""

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
    total = PERMUTATIONS_PER_REPLICATE * settings.replicates
    chunk = max(1, min(int(FIRST * total), MAX_COUNTS // max(1, size * (1 + int(design.level.max())))))
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
        moments = np.stack([_moments(design, quantity) for quantity in quantities[start : start + BATCH]], axis=1)
        extreme, family_extreme = _shares(design, moments, family, settings)
        for place, sides in enumerate(family):
            if not (sides[0] | sides[1]).all():
                extreme[:, place] = _between_two(design, moments, sides, settings)
        for alone_by_place, together_by_place in zip(extreme.tolist(), family_extreme.tolist(), strict=True):
            yield tuple(
                PermutationTest(p=alone, max_t=together)
                for alone, together in zip(alone_by_place, together_by_place, strict=True)
            )


def sign_flip_p(units: Floats, settings: Settings, names: Sequence[str]) -> float:
    """The p-value of a sum of independent parts, each symmetric around 0 under the null: their signs are flipped."""
    if len(units) >= LARGE:
        # The sum of so many is normal.
        error = math.sqrt(float((units**2).sum()))
        t = abs(float(units.sum())) / error if error > 0 else 0.0
        return max(2 * normal_tail(t), 1 / (1 + PERMUTATIONS_PER_REPLICATE * settings.replicates))
    flipped = [np.abs(signs @ units) for signs in sign_flips(len(units), settings, names)]
    return p_value(np.concatenate(flipped), abs(float(units.sum())))


def sign_flips(size: int, settings: Settings, names: Sequence[str]) -> Iterator[Floats]:
    """Chunks of flips × units: each unit's sign."""
    stream = np.random.default_rng(int(digest([settings.seed, "flip", list(names)]), 16))
    total, chunk = PERMUTATIONS_PER_REPLICATE * settings.replicates, max(1, MAX_COUNTS // max(1, size))
    for start in range(0, total, chunk):
        heads = stream.integers(0, 2, size=(min(chunk, total - start), size))
        yield 2.0 * heads.astype(np.float64) - 1.0


def smallest_p(units: Floats) -> float:
    """The smallest p-value that flipping the signs of these units can give: only units that differ from 0 count."""
    return min(1.0, 2.0 ** (1 - int(np.count_nonzero(np.abs(units) > NOISE))))


def _between_two(design: PermutationDesign, moments: Floats, sides: Sides, settings: Settings) -> Floats:
    inside = (sides[0] | sides[1])[design.level]
    part = replace(
        design,
        level=sides[1][design.level[inside]].astype(np.intp),
        within=design.within[inside],
        names=tuple(name for name, keep in zip(design.names, inside, strict=True) if keep),
    )
    two = (np.array([True, False]), np.array([False, True]))
    return _shares(part, moments[inside], [two], settings)[0][:, 0]


def _shares(
    design: PermutationDesign, moments: Floats, family: Sequence[Sides], settings: Settings
) -> tuple[Floats, Floats]:
    """By quantity and comparison, the share of permutations that reach the observed t: there, and in the family.

    `moments` are units × quantities × six sums.
    """
    levels = len(family[0][0])
    observed = level_sums(design.level[None, :], levels, moments)
    thresholds = _threshold(np.stack([_t_value(observed, sides)[0] for sides in family], axis=1))
    extreme = np.zeros((moments.shape[1], len(family)), dtype=np.int64)
    family_extreme, done = np.zeros_like(extreme), np.zeros_like(extreme)
    going: NDArray[np.intp] = np.arange(moments.shape[1], dtype=np.intp)
    total = PERMUTATIONS_PER_REPLICATE * settings.replicates
    for sums in _permuted_sums(design, levels, moments, settings):
        t = np.stack([_t_value(sums[:, :, going], sides) for sides in family])
        largest = t.max(axis=0)
        for place in range(len(family)):
            extreme[going, place] += np.count_nonzero(t[place] >= thresholds[going, place], axis=0)
            family_extreme[going, place] += np.count_nonzero(largest >= thresholds[going, place], axis=0)
        done[going] += sums.shape[1]
        if done.max() >= FIRST * total:
            least = (extreme[going] / done[going]).min(axis=1)
            going = going[np.flatnonzero(least < CLEARLY_LARGE)]
            if not len(going):
                break
    return (1 + extreme) / (1 + done), (1 + family_extreme) / (1 + done)


def _permuted_sums(design: PermutationDesign, levels: int, moments: Floats, settings: Settings) -> Iterator[Floats]:
    """Chunks of levels × permutations × quantities × six sums."""
    if is_large(design):
        yield from _normal_sums(design, levels, moments, settings)
        return
    # In parts, so that memory does not grow with the number of quantities, and tests can stop early.
    rows = max(1, MAX_COUNTS // (levels * moments.shape[1] * moments.shape[2]))
    for permuted in permutations(design, settings):
        for start in range(0, len(permuted), rows):
            yield level_sums(permuted[start : start + rows], levels, moments)


def level_sums(labels: NDArray[np.intp], levels: int, moments: Floats) -> Floats:
    """Levels × permutations × further columns of `moments`: the sum of each level's units."""
    columns = np.ascontiguousarray(moments.reshape(len(moments), -1))
    sums = [(labels == level).astype(np.float64) @ columns for level in range(levels)]
    return np.stack(sums).reshape(levels, len(labels), *moments.shape[1:])


def is_large(design: PermutationDesign) -> bool:
    """Whether there are so many units that sums over permuted labels are normal."""
    return bool(np.bincount(design.level).min() >= LARGE)


def _normal_sums(design: PermutationDesign, levels: int, moments: Floats, settings: Settings) -> Iterator[Floats]:
    """The same from the normal limit: only the sums vary; the other moments stay at their mean."""
    mean, root = normal_limit(design, levels, moments[:, :, 0] - _ratio(moments) * moments[:, :, 1])
    share = np.bincount(design.level, minlength=levels) / len(design.level)
    fixed = share[:, None, None] * moments.sum(axis=0)
    for drawn in normal_draws(design, root, settings):
        sums = np.broadcast_to(fixed[:, None], (levels, drawn.shape[1], *fixed.shape[1:])).copy()
        sums[..., 0] = mean[:, None] + drawn + (_ratio(moments) * fixed[..., 1])[:, None]
        yield sums


def _ratio(moments: Floats) -> Floats:
    total = moments.sum(axis=0)
    return np.divide(total[:, 0], total[:, 1], out=np.zeros(len(total)), where=total[:, 1] > 0)


def normal_limit(design: PermutationDesign, levels: int, values: Floats) -> tuple[Floats, Floats]:
    """Mean of each level's sum under permuted labels (levels × quantities), and a root of the covariance.

    Labels are exchangeable within blocks: the covariance of the level sums is that of sampling without replacement.
    """
    mean = np.zeros((levels, values.shape[1]))
    scale = np.zeros((values.shape[1], levels, levels))
    order = np.argsort(design.within, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(design.within[order]) > 0])
    sizes = np.diff(np.r_[starts, len(order)])
    cells = np.zeros((len(starts), levels))
    np.add.at(cells, (np.repeat(np.arange(len(starts)), sizes), design.level[order]), 1.0)
    share = cells / sizes[:, None]
    totals = np.add.reduceat(values[order], starts, axis=0)
    squares = np.add.reduceat(values[order] ** 2, starts, axis=0) - totals**2 / sizes[:, None]
    mean = share.T @ totals
    spread = np.divide(
        squares * sizes[:, None], (sizes - 1)[:, None], out=np.zeros_like(squares), where=(sizes > 1)[:, None]
    )
    for one in range(levels):
        for other in range(levels):
            kernel = share[:, one] * ((one == other) - share[:, other])
            scale[:, one, other] = kernel @ spread
    eigenvalues, vectors = np.linalg.eigh(scale)
    return mean, vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[:, None, :]


def normal_draws(design: PermutationDesign, root: Floats, settings: Settings) -> Iterator[Floats]:
    """Chunks of levels × draws × quantities."""
    stream = np.random.default_rng(int(digest([settings.seed, "normal permutation", list(design.names)]), 16))
    quantities, levels, _ = root.shape
    total = PERMUTATIONS_PER_REPLICATE * settings.replicates
    chunk = max(1, MAX_COUNTS // max(1, levels * quantities * 6))
    for start in range(0, total, chunk):
        drawn = stream.standard_normal((min(chunk, total - start), levels))
        yield np.einsum("qlk,rk->lrq", root, drawn)


def _t_value(levels: Floats, sides: Sides) -> Floats:
    """Permutations × quantities: two sides, each a union of levels, by their difference over its standard error."""
    difference, variance = np.zeros(levels.shape[1:-1]), np.zeros(levels.shape[1:-1])
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
    return np.stack(columns, axis=1).astype(np.float64)
