"""Permutation tests: what labels have to do with values, if they were given to units at random within blocks.

Only units with a rated edit take part, at levels that have at least two of them. The statistic is studentised (Chung
and Romano 2013), so that a group whose units vary more is no group that differs. All arrangements are tried where there
are few, else as many as a p-value needs are drawn, from a seed that depends on nothing but the design.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Settings
from stillme.estimates.design import PermutationDesign, Plan
from stillme.estimates.quantities import NOISE, Floats, Quantity, rounded, sums_by
from stillme.estimates.rows import Flags

EXACT = 20_000
"""Arrangements up to which all are tried."""
DRAWN = 9_999
"""Permutations that are drawn where there are more."""
FIRST = 999
"""Permutations after which a test stops whose p-value is clearly large: more digits would decide nothing."""
CLEARLY_LARGE = 0.1
LARGE = 500
"""Units of each level from which nothing is permuted: the statistic's distribution is known."""

_TOLERANCE = 1e-9
"""Statistics that are equal up to rounding count as equal: the same arrangement may add up in another order."""
_INFINITE = 1e12
"""The statistic where nothing varies within levels, and levels differ."""
_AT_ONCE = 100_000
"""Values, permutations × quantities, that are worked on at once: as many as a processor's cache holds."""

Labels = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationTest:
    """How often permuted labels set two sides as far apart as observed."""

    p: float
    holm: float
    """The same after Holm, over the family of comparisons with the same other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullBand:
    """max - min under permuted group labels."""

    mean: float
    high: float
    """Chance stays below this with the audit's confidence."""
    p: float
    """How often chance reached the observed max - min (permutation over units, within blocks)."""
    omnibus: float
    """How often chance made all groups together differ as much: the test to rely on."""
    smallest_p: float = 0.0
    """The smallest p-value that these units can give; a test that cannot reject is no part of a family."""


# -- tests of a plan -------------------------------------------------------------------------------------------------


def null_bands(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> list[NullBand | None]:
    """For each quantity: whether the levels of the plan differ; None where fewer than two can be compared."""
    bands: list[NullBand | None] = [None] * len(quantities)
    if plan.permutation is None:
        return bands
    for places, part, values in _patterns(plan.permutation, quantities):
        for place, found in zip(places, _tests(part, values), strict=True):
            bands[place] = NullBand(
                mean=rounded(float(found.ranges.mean())),
                high=rounded(float(np.quantile(found.ranges, settings.confidence))),
                p=found.range_p,
                omnibus=found.p,
                smallest_p=found.smallest,
            )
    return bands


Sides = tuple[Flags, Flags]
"""Of a comparison: sets of a plan's levels."""


def side_tests(
    plan: Plan, quantities: Sequence[Quantity], families: Sequence[Sequence[Sides]]
) -> list[list[list[PermutationTest | None]]]:
    """For each family and quantity the test of each comparison."""
    known: dict[frozenset[bytes], list[float | None]] = {}
    for sides in (sides for family in families for sides in family):
        if _key(sides) not in known:  # the same two sides may be in several families, either way around
            known[_key(sides)] = _side_p(plan, quantities, sides)
    return [
        [_after_holm([known[_key(sides)][place] for sides in family]) for place in range(len(quantities))]
        for family in families
    ]


def _key(sides: Sides) -> frozenset[bytes]:
    return frozenset(side.tobytes() for side in sides)


def _side_p(plan: Plan, quantities: Sequence[Quantity], sides: Sides) -> list[float | None]:
    p: list[float | None] = [None] * len(quantities)
    if plan.permutation is not None:
        for places, part, values in _patterns(_two_sided(plan.permutation, *sides), quantities):
            for place, found in zip(places, _tests(part, values, with_ranges=False), strict=True):
                p[place] = found.p
    return p


def _after_holm(p: Sequence[float | None]) -> list[PermutationTest | None]:
    known = [value for value in p if value is not None]
    adjusted = iter(holm(known))
    return [None if value is None else PermutationTest(p=value, holm=next(adjusted)) for value in p]


def _two_sided(design: PermutationDesign, one: Flags, other: Flags) -> PermutationDesign:
    """The same units with two labels; units of neither side have none."""
    side = np.where(one[design.level], 0, np.where(other[design.level], 1, -1)).astype(np.intp)
    kept = side >= 0
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    unit = np.where(design.unit >= 0, place[design.unit], -1)
    return PermutationDesign(unit=unit, level=side[kept], within=design.within[kept])


def _patterns(
    design: PermutationDesign, quantities: Sequence[Quantity]
) -> Iterator[tuple[list[int], PermutationDesign, Floats]]:
    """Quantities that have the same rated units: their places, the design of these units, and units × values."""
    inside = design.unit >= 0
    unit, size = design.unit[inside], len(design.level)
    patterns: dict[bytes, tuple[Flags, list[int], list[Floats]]] = {}
    for place, quantity in enumerate(quantities):
        counts = sums_by(unit, quantity.counts[inside], size)
        rated = _usable(design, counts > 0)
        if not rated.any():
            continue
        mean = sums_by(unit, quantity.sums[inside], size)[rated] / counts[rated]
        _, places, values = patterns.setdefault(rated.tobytes(), (rated, [], []))
        places.append(place)
        values.append(mean)
    for rated, places, values in patterns.values():
        level = np.unique(design.level[rated], return_inverse=True)[1].astype(np.intp)
        within = np.unique(design.within[rated], return_inverse=True)[1].astype(np.intp)
        yield places, PermutationDesign(unit=unit, level=level, within=within), np.stack(values, axis=1)


def _usable(design: PermutationDesign, rated: Flags) -> Flags:
    """Rated units at levels with two of them, in blocks with two levels; all or nothing, as one may need the other."""
    kept = rated
    while True:
        levels = np.bincount(design.level[kept], minlength=int(design.level.max(initial=0)) + 1)
        still = kept & (levels[design.level] >= 2)
        cells = np.unique(design.within[still] * len(levels) + design.level[still])
        several = np.bincount(cells // len(levels), minlength=int(design.within.max(initial=0)) + 1) > 1
        still &= several[design.within]
        if (still == kept).all():
            return kept
        kept = still


# -- one design ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    p: float
    smallest: float
    range_p: float
    ranges: Floats


def _tests(design: PermutationDesign, values: Floats, *, with_ranges: bool = True) -> list[_Found]:
    """For each column of units × values."""
    centred = _centred(design, values)
    sizes = np.bincount(design.level)
    (observed,), (ranges,) = _statistics(design.level[None, :], sizes, centred)
    if sizes.min() >= LARGE:
        return [
            _large(design, centred[:, column], observed[column], ranges[column]) for column in range(values.shape[1])
        ]
    arrangements, exact = _arrangements(design.level.tobytes(), design.within.tobytes())
    drawn = [np.empty((0, values.shape[1]))] * 2
    open_: list[int] = list(range(values.shape[1]))
    found = [_Found(1.0, 1.0, 1.0, np.zeros(1))] * values.shape[1]
    for part in (arrangements,) if exact else (arrangements[:FIRST], arrangements[FIRST:]):
        new = _in_chunks(part, sizes, centred[:, open_])
        drawn = [np.concatenate([old, more]) for old, more in zip(drawn, new, strict=True)]
        for place, own in zip(open_, _found(drawn, (observed[open_], ranges[open_]), exact=exact), strict=True):
            found[place] = own
        going = [column for column, place in enumerate(open_) if _is_open(found[place], with_ranges)]
        drawn, open_ = [kept[:, going] for kept in drawn], [open_[column] for column in going]
        if not open_:
            break
    return found


def _is_open(found: _Found, with_ranges: bool) -> bool:
    return found.p < CLEARLY_LARGE or (with_ranges and found.range_p < CLEARLY_LARGE)


def _found(drawn: Sequence[Floats], observed: tuple[Floats, Floats], *, exact: bool) -> Iterator[_Found]:
    """By column of permutations × quantities."""
    largest = np.maximum(drawn[0].max(axis=0), observed[0])
    shares = (
        _share(drawn[0], observed[0], exact=exact),
        _share(drawn[0], largest, exact=exact),
        _share(drawn[1], observed[1], exact=exact),
    )
    for column, (p, smallest, range_p) in enumerate(zip(*(share.tolist() for share in shares), strict=True)):
        yield _Found(p, smallest, range_p, drawn[1][:, column])


def _share(drawn: Floats, observed: Floats, *, exact: bool) -> Floats:
    """How often a statistic is reached; the rows are one of all arrangements, or one more than were drawn."""
    reached = np.count_nonzero(drawn >= observed * (1 - _TOLERANCE) - NOISE, axis=0)
    return reached / len(drawn) if exact else (1 + reached) / (1 + len(drawn))


def _centred(design: PermutationDesign, values: Floats) -> Floats:
    """Values less their block's mean, which no permutation changes."""
    counts = np.bincount(design.within).astype(np.float64)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, design.within, values)
    centred = values - (sums / counts[:, None])[design.within]
    return np.where(np.abs(centred) > NOISE * (1 + np.abs(values)), centred, 0.0)


def _in_chunks(labels: Labels, sizes: NDArray[np.intp], values: Floats) -> tuple[Floats, Floats]:
    rows = max(1, _AT_ONCE // (len(sizes) * values.shape[1]))
    parts = [_statistics(labels[start : start + rows], sizes, values) for start in range(0, len(labels), rows)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _statistics(labels: Labels, sizes: NDArray[np.intp], values: Floats) -> tuple[Floats, Floats]:
    """Permutations × quantities: the levels' weighted squared distances from their common mean, and their range."""
    width = values.shape[1]
    both = np.concatenate([values, values**2], axis=1)
    sums = np.empty((len(sizes), len(labels), 2 * width))
    for level, own in enumerate(sums):
        np.matmul((labels == level).astype(np.float64), both, out=own)
    size = sizes[:, None, None].astype(np.float64)
    mean = sums[..., :width] / size
    squares = sums[..., width:] - size * mean**2
    squares[squares <= NOISE * sums[..., width:]] = 0.0
    variance = squares / (size - 1)
    pooled = squares.sum(axis=0) / float((sizes - 1).sum())
    flat = variance.min(axis=0) <= 0
    if flat.any():
        variance[:, flat] = pooled[flat]
    ranges = mean.max(axis=0) - mean.min(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(sizes) == 2:
            statistic = ranges**2 / (variance / size).sum(axis=0)
        else:
            precision = size / variance
            centre = (precision * mean).sum(axis=0) / precision.sum(axis=0)
            statistic = (precision * (mean - centre) ** 2).sum(axis=0)
    beyond = np.where(ranges > NOISE, _INFINITE, 0.0)
    return np.where(pooled > 0, np.minimum(statistic, _INFINITE), beyond), ranges


def _large(design: PermutationDesign, values: Floats, observed: float, observed_range: float) -> _Found:
    """Where levels are large the statistic is a chi-square, and means are normal."""
    from scipy.special import chdtrc

    sizes = np.bincount(design.level).astype(np.float64)
    # Values less their block's mean vary by less than values themselves.
    each = len(design.within) / len(np.unique(design.within))
    p = max(float(chdtrc(len(sizes) - 1, observed * (1 - 1 / each))), 1 / (1 + DRAWN))
    variance = float((values**2).sum()) / len(values) * each / max(1.0, each - 1)
    stream = np.random.default_rng(0)
    ranges = np.ptp(stream.standard_normal((DRAWN, len(sizes))) * np.sqrt(variance / sizes), axis=1)
    return _Found(p, 0.0, float(_share(ranges, np.array(observed_range), exact=False)), ranges)


@lru_cache(maxsize=64)
def _arrangements(level: bytes, within: bytes) -> tuple[Labels, bool]:
    """Permutations × units: every arrangement of labels within blocks, or `DRAWN` of them; and whether it is all."""
    labels, blocks = np.frombuffer(level, dtype=np.intp), np.frombuffer(within, dtype=np.intp)
    small = labels.astype(np.min_scalar_type(int(labels.max())))
    exact = _number(labels, blocks) <= EXACT
    made = _every(small, blocks) if exact else _drawn(small, blocks)
    made.setflags(write=False)
    return made, exact


def _number(labels: Labels, blocks: Labels) -> float:
    logarithm = 0.0
    for block in range(int(blocks.max()) + 1):
        sizes: list[int] = np.bincount(labels[blocks == block]).tolist()
        logarithm += math.lgamma(sum(sizes) + 1) - sum(math.lgamma(size + 1) for size in sizes)
    return round(math.exp(min(logarithm, 100.0)))


def _every(labels: NDArray[Any], blocks: Labels) -> NDArray[Any]:
    places = [np.flatnonzero(blocks == block) for block in range(int(blocks.max()) + 1)]
    by_block = [list(_orders(sorted(labels[place].tolist()))) for place in places]
    made = np.array([[label for part in chosen for label in part] for chosen in product(*by_block)], dtype=labels.dtype)
    everything = np.empty_like(made)
    everything[:, np.concatenate(places)] = made
    return everything


def _orders(labels: list[int]) -> Iterator[tuple[int, ...]]:
    """Every distinct order of sorted labels."""
    if not labels:
        yield ()
    for place, label in enumerate(labels):
        if place == 0 or label != labels[place - 1]:
            for rest in _orders(labels[:place] + labels[place + 1 :]):
                yield (label, *rest)


def _drawn(labels: NDArray[Any], blocks: Labels) -> NDArray[Any]:
    stream = np.random.default_rng(len(labels))
    by_block = np.argsort(blocks, kind="stable")
    made = np.empty((DRAWN, len(labels)), dtype=labels.dtype)
    for start in range(0, DRAWN, rows := max(1, _AT_ONCE // len(labels))):
        few = min(rows, DRAWN - start)
        # Sorting by block number plus a random fraction keeps blocks together and shuffles inside.
        shuffled = np.argsort(blocks + stream.random((few, len(labels))), axis=1)
        made[start : start + few, by_block] = labels[shuffled]
    return made


# -- signs -----------------------------------------------------------------------------------------------------------


def sign_flip_p(units: Floats) -> tuple[float, float]:
    """The p-value of a sum of independent parts, each symmetric around 0 under the null, and the smallest possible.

    Signs are flipped; only units that differ from 0 count.
    """
    units = units[np.abs(units) > NOISE]
    if not len(units):
        return 1.0, 1.0
    smallest = 2.0 ** (1 - len(units))
    if len(units) >= LARGE:
        t = abs(float(units.sum())) / math.sqrt(float((units**2).sum()))
        return max(math.erfc(t / math.sqrt(2)), 1 / (1 + DRAWN)), smallest
    exact = 2 ** len(units) <= EXACT
    sums = np.abs(_signs(len(units), exact=exact) @ units)
    return float(_share(sums, np.abs(units.sum()), exact=exact)), smallest


@lru_cache(maxsize=32)
def _signs(size: int, *, exact: bool) -> Floats:
    """Flips × units."""
    if exact:
        return np.array(list(product((1.0, -1.0), repeat=size)))
    return 2.0 * np.random.default_rng(size).integers(0, 2, size=(DRAWN, size)).astype(np.float64) - 1.0


LEVEL = 0.05
"""Tests that cannot reach this have no part in a family (Tarone 1990)."""


def holm(p: Sequence[float], smallest: Sequence[float] | None = None) -> list[float]:
    """Holm's adjusted p-values, in the order given: controls the family-wise error rate.

    With `smallest`, tests that cannot reject have no part in the family and keep a p-value of 1 (Tarone 1990).
    """
    able = [place for place in range(len(p)) if smallest is None or smallest[place] <= LEVEL]
    adjusted, running = [1.0] * len(p), 0.0
    for done, place in enumerate(sorted(able, key=p.__getitem__)):
        running = max(running, min(1.0, (len(able) - done) * p[place]))
        adjusted[place] = running
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, in the order given: controls the false discovery rate."""
    adjusted, running = [1.0] * len(p), 1.0
    for rank, place in reversed(list(enumerate(sorted(range(len(p)), key=p.__getitem__), start=1))):
        running = min(running, p[place] * len(p) / rank)
        adjusted[place] = running
    return adjusted
