"""What chance alone does: group labels dealt anew over portraits, within blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.bootstrap import BATCH, CELLS
from stillme.estimates.design import Permuting, Plan
from stillme.estimates.quantities import Floats, Quantity, sums_by
from stillme.estimates.rows import Flags
from stillme.estimates.settings import Settings
from stillme.types import digest

DEALS = 5
"""Permutations per bootstrap replicate: a p-value must be able to get small enough to survive Holm."""

Sides = tuple[Flags, Flags]
"""Which levels of the plan are on the one side, and which on the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How often chance sets two sides as far apart."""

    p: float
    """With the labels of these two sides dealt anew between them."""
    max_t: float
    """How often the largest of the family's differences is as large when all labels are dealt anew.

    Exact when no group differs; where some do, Holm over `p` is what holds for the others.
    """


def deals(permuting: Permuting, settings: Settings) -> Iterator[NDArray[np.intp]]:
    """Chunks of replicates × units: each unit's label after dealing labels anew within its block."""
    stream = np.random.default_rng(int(digest([settings.seed, "permute", list(permuting.names)]), 16))
    size = len(permuting.level)
    by_block = np.argsort(permuting.within, kind="stable")
    chunk = max(1, CELLS // max(1, size * (1 + int(permuting.level.max()))))
    total = DEALS * settings.replicates
    for start in range(0, total, chunk):
        rows = min(chunk, total - start)
        shuffled = np.argsort(permuting.within + stream.random((rows, size)), axis=1)
        dealt = np.empty((rows, size), dtype=np.intp)
        # Sorting by block number plus a random fraction keeps blocks together and shuffles inside.
        dealt[:, by_block] = permuting.level[shuffled]
        yield dealt


def reached(under_chance: Floats, observed: float) -> float:
    """The p-value: the share of deals that reach what was observed, which counts as one of them."""
    # Equal up to rounding counts as reached: the same deal adds up in another order.
    often = int(np.count_nonzero(under_chance >= observed * (1 - 1e-9) - 1e-12))
    return (1 + often) / (1 + len(under_chance))


def chances(
    plan: Plan, quantities: Sequence[Quantity], family: Sequence[Sides], settings: Settings
) -> Iterator[tuple[Chance, ...]]:
    """For each quantity: what chance does to each comparison of a family."""
    permuting = plan.permuting
    if permuting is None or not family:
        yield from [()] * len(quantities)
        return
    for start in range(0, len(quantities), BATCH):
        moments = [_moments(permuting, quantity) for quantity in quantities[start : start + BATCH]]
        often, largest = _reaching(permuting, moments, family, settings)
        for place, sides in enumerate(family):
            if not (sides[0] | sides[1]).all():
                often[:, place] = _between_two(permuting, moments, sides, settings)
        total = 1 + DEALS * settings.replicates
        for row in range(len(moments)):
            yield tuple(
                Chance(p=(1 + alone) / total, max_t=(1 + together) / total)
                for alone, together in zip(often[row].tolist(), largest[row].tolist(), strict=True)
            )


def sign_flips(units: Floats, settings: Settings, names: Sequence[str]) -> float:
    """The p-value of a sum of independent, under chance symmetric parts: their signs are tossed anew."""
    stream = np.random.default_rng(int(digest([settings.seed, "flip", list(names)]), 16))
    observed = abs(float(units.sum()))
    total, chunk = DEALS * settings.replicates, max(1, CELLS // max(1, len(units)))
    found = [
        np.abs((2.0 * stream.integers(0, 2, size=(min(chunk, total - start), len(units))) - 1.0) @ units)
        for start in range(0, total, chunk)
    ]
    return reached(np.concatenate(found), observed)


def _between_two(
    permuting: Permuting, moments: Sequence[Floats], sides: Sides, settings: Settings
) -> NDArray[np.int64]:
    inside = (sides[0] | sides[1])[permuting.level]
    part = replace(
        permuting,
        level=sides[1][permuting.level[inside]].astype(np.intp),
        within=permuting.within[inside],
        names=tuple(name for name, keep in zip(permuting.names, inside, strict=True) if keep),
    )
    two = (np.array([True, False]), np.array([False, True]))
    return _reaching(part, [each[inside] for each in moments], [two], settings)[0][:, 0]


def _reaching(
    permuting: Permuting, moments: Sequence[Floats], family: Sequence[Sides], settings: Settings
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count deals, by quantity and comparison, that reach what was observed: there, and anywhere in the family."""
    levels = len(family[0][0])
    hands = _hands(permuting.level[None, :], levels)
    # Equal up to rounding counts as reached.
    observed = [_family_apart(hands, each, family)[:, 0] * (1 - 1e-9) - 1e-12 for each in moments]
    often = np.zeros((len(moments), len(family)), dtype=np.int64)
    largest = np.zeros_like(often)
    for dealt in deals(permuting, settings):
        hands = _hands(dealt, levels)
        for row, unit_moments in enumerate(moments):
            apart = _family_apart(hands, unit_moments, family)
            often[row] += np.count_nonzero(apart >= observed[row][:, None], axis=1)
            largest[row] += np.count_nonzero(apart.max(axis=0) >= observed[row][:, None], axis=1)
    return often, largest


def _family_apart(hands: Floats, moments: Floats, family: Sequence[Sides]) -> Floats:
    """Comparisons × deals: how far apart the sides are, in standard errors."""
    # Levels × deals × moments, one column at a time for the reason given in `bootstrap`.
    levels = np.stack([hands @ moments[:, column] for column in range(moments.shape[1])], axis=2)
    return np.stack([_apart(levels, sides) for sides in family])


def _hands(dealt: NDArray[np.intp], levels: int) -> Floats:
    return np.stack([dealt == level for level in range(levels)]).astype(np.float64)


def _apart(levels: Floats, sides: Sides) -> Floats:
    """Compare two sides, each a union of levels, by their difference over its standard error."""
    difference, variance = np.zeros(levels.shape[1]), np.zeros(levels.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        for sign, side in zip((1.0, -1.0), sides, strict=True):
            first, number, squares, mixed, numbers, units = np.moveaxis(levels[side].sum(axis=0), -1, 0)
            value = first / number
            residuals = squares - 2 * value * mixed + value * value * numbers
            difference += sign * value
            variance += np.maximum(residuals, 0.0) / number**2 * units / (units - 1)
        scaled = np.abs(difference) / np.sqrt(variance)
    # Without any spread a difference is either none or beyond all chance; a side without a value shows none.
    none = ~(np.abs(difference) >= 1e-12) | np.isnan(scaled)
    return np.where(none, 0.0, np.minimum(scaled, 1e12))


def _moments(permuting: Permuting, quantity: Quantity) -> Floats:
    inside = permuting.unit >= 0
    where, size = permuting.unit[inside], len(permuting.level)
    counts = sums_by(where, quantity.counts[inside], size)
    middle = quantity.sums[inside].sum() / max(1.0, quantity.counts[inside].sum())
    # Taken off every value, so that squares do not cancel.
    sums = sums_by(where, quantity.sums[inside], size) - middle * counts
    columns = [sums, counts, sums * sums, sums * counts, counts * counts, counts > 0]
    return np.asfortranarray(np.stack(columns, axis=1).astype(np.float64))
