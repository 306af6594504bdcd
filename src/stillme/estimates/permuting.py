"""Permutation tests: group labels are permuted over portraits, within blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.bootstrap import MAX_COUNTS
from stillme.estimates.compared import LARGE
from stillme.estimates.design import PermutationDesign, Plan
from stillme.estimates.products import product
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

AT_ONCE = 200_000
"""Sums of levels that are worked on at once: about what a processor's cache holds."""

_KEPT, _KEPT_LABELS = 32, 1_000_000
"""Designs whose permutations are kept for the next analysis, if their labels, a byte each, are few."""

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


def permutations(design: PermutationDesign, settings: Settings) -> Iterator[NDArray[Any]]:
    """Chunks of permutations × units: each unit's label after permuting labels within its block.

    No chunk goes beyond a look, which is where tests may stop: what is decided there does not depend on memory.
    """
    few = len(design.level) * PERMUTATIONS_PER_REPLICATE * settings.replicates <= _KEPT_LABELS
    draw = _kept_permutations if few else _permutations
    return iter(draw(design.names, design.level.tobytes(), design.within.tobytes(), settings.replicates, settings.seed))


@lru_cache(maxsize=_KEPT)
def _kept_permutations(
    names: tuple[str, ...], level: bytes, within: bytes, replicates: int, seed: int
) -> list[NDArray[Any]]:
    kept = list(_permutations(names, level, within, replicates, seed))
    for labels in kept:
        labels.setflags(write=False)
    return kept


def _permutations(
    names: tuple[str, ...], level: bytes, within: bytes, replicates: int, seed: int
) -> Iterator[NDArray[Any]]:
    stream = np.random.default_rng(int(digest([seed, "permute", list(names)]), 16))
    labels, blocks = np.frombuffer(level, dtype=np.intp), np.frombuffer(within, dtype=np.intp)
    size, most = len(labels), int(labels.max())
    labels, by_block = labels.astype(np.min_scalar_type(most)), np.argsort(blocks, kind="stable")
    for rows in _chunks(replicates, MAX_COUNTS // max(1, size * (1 + most))):
        shuffled = np.argsort(blocks + stream.random((rows, size)), axis=1)
        permuted = np.empty((rows, size), dtype=labels.dtype)
        # Sorting by block number plus a random fraction keeps blocks together and shuffles inside.
        permuted[:, by_block] = labels[shuffled]
        yield permuted


def permuted(design: PermutationDesign, levels: int, settings: Settings) -> Iterator[NDArray[Any]]:
    """Chunks of `permutations`, or of `normals` for a design that is large."""
    return normals(design, levels, settings) if is_large(design) else permutations(design, settings)


def _chunks(replicates: int, most: int) -> Iterator[int]:
    """Sizes that add up to all permutations, none above `most`, with a boundary at each look."""
    total, look = PERMUTATIONS_PER_REPLICATE * replicates, _look(replicates)
    for start in range(0, total, look):
        left = min(look, total - start)
        while left:
            rows = max(1, min(most, left))
            left -= rows
            yield rows


def _look(replicates: int) -> int:
    return int(FIRST * PERMUTATIONS_PER_REPLICATE * replicates)


def is_look(done: int, settings: Settings) -> bool:
    """Whether tests may stop after so many permutations."""
    return done % _look(settings.replicates) == 0


def smallest_permuted_p(design: PermutationDesign) -> float:
    """The smallest p-value that permuting these labels can give: one in all arrangements that differ."""
    from scipy.special import gammaln

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
    plan: Plan, quantities: Sequence[Quantity], families: Sequence[Sequence[Sides]], settings: Settings
) -> list[list[tuple[PermutationTest, ...]]]:
    """For each family of comparisons and each quantity: the test of each comparison.

    Families share the permutations, and a comparison that is in several is tested once.
    """
    design = plan.permutation
    if design is None or not quantities:
        return [[()] * len(quantities) for _ in families]
    moments = _Moments.of(design, quantities)
    tallies = _tallies(design, moments, families, settings)
    between: dict[frozenset[tuple[bool, ...]], Floats] = {}
    tests: list[list[tuple[PermutationTest, ...]]] = []
    for family, tally in zip(families, tallies, strict=True):
        alone, together = tally.shares()
        for place, sides in enumerate(family):
            if (sides[0] | sides[1]).all():
                continue
            pair = frozenset((tuple(sides[0].tolist()), tuple(sides[1].tolist())))
            if pair not in between:
                between[pair] = _between_two(design, moments, sides, settings)
            alone[:, place] = between[pair]
        tests.append(
            [
                tuple(PermutationTest(p=p, max_t=max_t) for p, max_t in zip(*both, strict=True))
                for both in zip(alone.tolist(), together.tolist(), strict=True)
            ]
        )
    return tests


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


def _between_two(design: PermutationDesign, moments: _Moments, sides: Sides, settings: Settings) -> Floats:
    inside = (sides[0] | sides[1])[design.level]
    part = replace(
        design,
        level=sides[1][design.level[inside]].astype(np.intp),
        within=design.within[inside],
        names=tuple(name for name, keep in zip(design.names, inside, strict=True) if keep),
    )
    two = (np.array([True, False]), np.array([False, True]))
    (tally,) = _tallies(part, moments.within(inside), [[two]], settings)
    return tally.shares()[0][:, 0]


@dataclass(frozen=True, slots=True)
class _Moments:
    """What a t-value needs of each unit. Many quantities have the same edits counted, so counts are kept once."""

    own: Floats
    """Units × three × quantities: the sum, its square, and its product with the count."""
    counts: Floats
    """Units × three × patterns of counts: the count, its square, and whether there is any."""
    pattern: NDArray[np.intp]
    """Each quantity's pattern."""

    @classmethod
    def of(cls, design: PermutationDesign, quantities: Sequence[Quantity]) -> _Moments:
        inside = design.unit >= 0
        unit, size = design.unit[inside], len(design.level)
        patterns: dict[bytes, int] = {}
        counted: list[Floats] = []
        own: list[Floats] = []
        pattern: list[int] = []
        for quantity in quantities:
            counts = sums_by(unit, quantity.counts[inside], size)
            place = patterns.setdefault(counts.tobytes(), len(patterns))
            if place == len(counted):
                counted.append(np.stack([counts, counts * counts, (counts > 0).astype(np.float64)]))
            mean = quantity.sums[inside].sum() / max(1.0, quantity.counts[inside].sum())
            # Subtracted from every value, so that squares do not cancel.
            sums = sums_by(unit, quantity.sums[inside], size) - mean * counts
            own.append(np.stack([sums, sums * sums, sums * counts]))
            pattern.append(place)
        return cls(np.stack(own).T, np.stack(counted).T, np.array(pattern, dtype=np.intp))

    def within(self, units: Flags) -> _Moments:
        """Only these units."""
        return _Moments(self.own[units], self.counts[units], self.pattern)

    def only(self, places: NDArray[np.intp]) -> _Moments:
        """Only the quantities at these places."""
        if len(places) == len(self.pattern):
            return self
        kept, pattern = np.unique(self.pattern[places], return_inverse=True)
        return _Moments(self.own[:, :, places], self.counts[:, :, kept], pattern)


@dataclass(frozen=True, slots=True)
class _LevelSums:
    """`_Moments` summed over the units of each level: levels × permutations (or one for all) × quantities."""

    sums: Floats
    squares: Floats
    products: Floats
    counts: Floats
    """This and the following: × patterns of counts."""
    squared_counts: Floats
    units: Floats

    def means_and_variances(self, side: Flags, pattern: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Of a side, a union of levels: its mean, and the mean's variance; permutations × quantities."""
        sums, squares, products = (_union(part, side) for part in (self.sums, self.squares, self.products))
        counts, squared_counts, units = (_union(part, side) for part in (self.counts, self.squared_counts, self.units))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = sums / counts[..., pattern]
            explained = mean * mean
            explained *= squared_counts[..., pattern]
            residuals = -2 * mean
            residuals *= products
            residuals += squares
            residuals += explained
            # What is left where the terms cancel is rounding error.
            residuals[~(residuals > NOISE * (squares + explained))] = 0.0
            residuals *= (units / (units - 1) / counts**2)[..., pattern]
            return mean, residuals


@dataclass(frozen=True, slots=True)
class _Tally:
    """One family: how often permutations reached each observed t, there and anywhere in the family."""

    pairs: Sequence[tuple[int, int]]
    """The two sides of each comparison, by their places."""
    thresholds: Floats
    """Quantities × comparisons."""
    alone: NDArray[np.int64]
    together: NDArray[np.int64]
    done: NDArray[np.int64]
    """By quantity; a test whose p-values are all clearly large stops."""
    going: Flags

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]], observed: Floats) -> _Tally:
        zeros = np.zeros(observed.shape, dtype=np.int64)
        size = len(observed)
        return cls(
            pairs, _threshold(observed), zeros, zeros.copy(), np.zeros(size, dtype=np.int64), np.ones(size, np.bool_)
        )

    def add(self, t_of: Mapping[tuple[int, int], Floats], places: NDArray[np.intp]) -> None:
        """Count t-values, permutations × quantities, of the quantities at these places."""
        rows = np.flatnonzero(self.going[places])
        if not len(rows):
            return
        here = places[rows]
        t = [t_of[pair] if len(rows) == len(places) else t_of[pair][:, rows] for pair in self.pairs]
        largest = np.maximum.reduce(t)
        for place, values in enumerate(t):
            threshold = self.thresholds[here, place]
            self.alone[here, place] += np.count_nonzero(values >= threshold, axis=0)
            self.together[here, place] += np.count_nonzero(largest >= threshold, axis=0)
        self.done[here] += len(largest)

    def stop(self) -> None:
        """End the tests that are clear by now."""
        least = (self.alone / np.maximum(1, self.done)[:, None]).min(axis=1)
        self.going[least >= CLEARLY_LARGE] = False

    def shares(self) -> tuple[Floats, Floats]:
        """Quantities × comparisons: the p-value alone, and that of the largest t of the family."""
        done = self.done[:, None]
        return (1 + self.alone) / (1 + done), (1 + self.together) / (1 + done)


def _tallies(
    design: PermutationDesign, moments: _Moments, families: Sequence[Sequence[Sides]], settings: Settings
) -> list[_Tally]:
    sides: dict[tuple[bool, ...], int] = {}
    paired = [[(_place(sides, one), _place(sides, other)) for one, other in family] for family in families]
    unions, levels = [np.array(side) for side in sides], len(next(iter(sides)))
    pairs = sorted({pair for family in paired for pair in family})
    observed = _t_values(_level_sums(design.level[None, :], levels, moments), moments.pattern, unions, pairs)
    tallies = [_Tally.of(family, np.stack([observed[pair][0] for pair in family], axis=1)) for family in paired]
    places: NDArray[np.intp] = np.arange(len(moments.pattern), dtype=np.intp)
    part, done = moments, 0
    large = is_large(design)
    for drawn in permuted(design, levels, settings):
        for start in range(0, len(drawn), rows := max(1, AT_ONCE // (levels * len(places)))):
            few = drawn[start : start + rows]
            sums = _normal_sums(design, levels, part, few) if large else _level_sums(few, levels, part)
            t_of = _t_values(sums, part.pattern, unions, pairs)
            for tally in tallies:
                tally.add(t_of, places)
        done += len(drawn)
        if is_look(done, settings):
            for tally in tallies:
                tally.stop()
            places = np.flatnonzero(np.logical_or.reduce([tally.going for tally in tallies]))
            if not len(places):
                break
            part = moments.only(places)
    return tallies


def _union(by_level: Floats, side: Flags) -> Floats:
    levels = np.flatnonzero(side)
    union: Floats = by_level[levels[0]]
    for level in levels[1:]:
        union = union + by_level[level]
    return union


def _place(sides: dict[tuple[bool, ...], int], side: Flags) -> int:
    return sides.setdefault(tuple(side.tolist()), len(sides))


def _level_sums(labels: NDArray[Any], levels: int, moments: _Moments) -> _LevelSums:
    own, counts = (level_sums(labels, levels, part) for part in (moments.own, moments.counts))
    return _LevelSums(*np.moveaxis(own, 2, 0), *np.moveaxis(counts, 2, 0))


def level_sums(labels: NDArray[Any], levels: int, moments: Floats) -> Floats:
    """Levels × permutations × further columns of `moments`: the sum of each level's units."""
    columns = np.ascontiguousarray(moments.reshape(len(moments), -1))
    sums = np.empty((levels, len(labels), columns.shape[1]))
    for level in range(levels - 1):
        product((labels == level).astype(np.float64), columns, out=sums[level])
    # Every unit has a label, so the last level has what the others leave.
    np.subtract(columns.sum(axis=0), sums[:-1].sum(axis=0), out=sums[-1])
    return sums.reshape(levels, len(labels), *moments.shape[1:])


def is_large(design: PermutationDesign) -> bool:
    """Whether there are so many units that sums over permuted labels are normal."""
    return bool(np.bincount(design.level).min() >= LARGE)


def _normal_sums(design: PermutationDesign, levels: int, moments: _Moments, drawn: Floats) -> _LevelSums:
    """The same from the normal limit: only the sums vary; the other moments stay at their mean."""
    total, counted = moments.own.sum(axis=0), moments.counts.sum(axis=0)
    ratio = total[0] / np.maximum(1.0, counted[0, moments.pattern])
    values = moments.own[:, 0] - ratio * moments.counts[:, 0, moments.pattern]
    mean, root = normal_limit(design, levels, values)
    share = (np.bincount(design.level, minlength=levels) / len(design.level))[:, None, None]
    _, squares, products = share * total[:, None, None]
    counts, squared_counts, units = share * counted[:, None, None]
    sums = mean[:, None] + normal_sums(root, drawn) + ratio * counts[..., moments.pattern]
    return _LevelSums(sums, squares, products, counts, squared_counts, units)


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


def normals(design: PermutationDesign, levels: int, settings: Settings) -> Iterator[Floats]:
    """Chunks of draws × levels, standard normal."""
    stream = np.random.default_rng(int(digest([settings.seed, "normal permutation", list(design.names)]), 16))
    for rows in _chunks(settings.replicates, MAX_COUNTS // levels):
        yield stream.standard_normal((rows, levels))


def normal_sums(root: Floats, drawn: Floats) -> Floats:
    """Levels × draws × quantities: what is drawn, with the covariance of the level sums."""
    return np.matmul(drawn, root.transpose(1, 2, 0))


def _t_values(
    sums: _LevelSums, pattern: NDArray[np.intp], sides: Sequence[Flags], pairs: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Floats]:
    """By pair of sides, permutations × quantities: their difference over its standard error."""
    mean, variance = zip(*(sums.means_and_variances(side, pattern) for side in sides), strict=True)
    t_of: dict[tuple[int, int], Floats] = {}
    for one, other in pairs:
        difference = np.abs(mean[one] - mean[other])
        t = variance[one] + variance[other]
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(difference, np.sqrt(t, out=t), out=t)
        # Without any spread a difference is either none or beyond all chance; a side without a value shows none.
        np.minimum(t, _MAX_T, out=t)
        t[~(difference >= NOISE)] = 0.0
        t_of[one, other] = np.fmax(t, 0.0, out=t)
    return t_of
