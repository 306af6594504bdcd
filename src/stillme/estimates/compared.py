"""One comparison of many quantities at once: its value and standard error, in the rows and in resamples.

A quantity is a sum and a count of each unit. All that an interval needs are sums over units of these two, and of their
products, so that a resample is one matrix product for all quantities together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.design import Comparison, Places, Plan
from stillme.estimates.products import product
from stillme.estimates.quantities import Floats, Quantity
from stillme.estimates.rounding import NOISE, snapped
from stillme.estimates.rows import Flags

Integers = NDArray[np.int64]

LARGE = 500
"""Units on each side from which nothing is resampled: the estimate's distribution is then normal to three digits."""


@dataclass(frozen=True, slots=True)
class Sides:
    """One comparison of one quantity: what an interval needs to know."""

    comparison: Comparison
    value: float
    variance: float
    freedom: float
    """Degrees of freedom, after Welch where the strata vary unequally."""
    active: tuple[int, ...]
    """Units with any value, per side."""
    portraits: tuple[int, ...]
    """Portraits with any value, per side."""
    edits: tuple[float, ...]
    rates: tuple[float, ...]
    """The value of each side, per side."""
    variances: tuple[float, ...]
    """The variance of each side by itself, per side."""
    flat: tuple[bool, ...]
    """Per side: whether all units have the same value."""
    has_spread: bool
    """Whether units differ by more than rounding errors."""

    @property
    def is_large(self) -> bool:
        """Whether there are so many units that nothing needs to be resampled."""
        return min(self.active) >= LARGE


@dataclass(frozen=True, slots=True)
class Collapsed:
    """Quantities × portraits: sums and counts."""

    quantities: Sequence[Quantity]
    sums: Floats
    counts: Floats
    is_rate: Flags

    @classmethod
    def of(cls, quantities: Sequence[Quantity]) -> Collapsed:
        """Put side by side."""
        return cls(
            quantities,
            np.stack([quantity.sums for quantity in quantities]),
            np.stack([quantity.counts for quantity in quantities]),
            np.array([quantity.is_rate for quantity in quantities], dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True)
class _Stratum:
    """The units of a stratum that have any value."""

    place: int
    """In the plan."""
    units: Places
    """Places in the stratum."""
    sides: tuple[int, ...]
    """The sides that have any value here. Others would only add zeros."""
    columns: Floats
    """Sum and count of each of these sides in turn, × quantities × units."""
    size: Integers
    """By quantity: units with a value."""
    even: Flags
    """By quantity: whether all units of the stratum have as many edits, so that no resample changes their number."""

    def chosen(self, quantities: Places) -> _Stratum:
        columns, size, even = self.columns[:, quantities], self.size[quantities], self.even[quantities]
        return _Stratum(self.place, self.units, self.sides, columns, size, even)

    @property
    def width(self) -> int:
        return len(self.columns)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Columns whose products are summed too."""
        return ((one, other) for one in range(self.width) for other in range(one, self.width))

    def totals(self, counts: Floats) -> Floats:
        """Columns and products × quantities × resamples."""
        products = [self.columns[one] * self.columns[other] for one, other in self.pairs()]
        drawn = counts if len(self.units) == counts.shape[1] else counts[:, self.units]
        columns = np.concatenate([self.columns, np.stack(products)])
        return product(columns.reshape(-1, len(self.units)), drawn.T).reshape(*columns.shape[:2], len(counts))

    def variance(self, totals: Floats, weights: Sequence[Floats]) -> Floats:
        """The between-unit variance of the residuals' sum, from sums and sums of products."""
        own = self.own(weights)
        first = sum((weight * total for weight, total in zip(own, totals, strict=False)), np.zeros_like(totals[0]))
        second = np.zeros_like(totals[0])
        for (one, other), total in zip(self.pairs(), totals[self.width :], strict=True):
            second += own[one] * own[other] * (total if one == other else 2 * total)
        size = np.maximum(1, self.size)[:, None]
        return size / np.maximum(1, size - 1) * (second - first * first / size)

    def own(self, weights: Sequence[Floats]) -> list[Floats]:
        """The weights of the columns that are here."""
        return [weights[2 * side + column] for side in self.sides for column in (0, 1)]

    def residuals(self, weights: Sequence[Floats]) -> Floats:
        """Quantities × units: how far each unit moves the value."""
        return np.einsum("cq,cqu->qu", np.stack(self.own(weights)), self.columns)


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison, reduced to what resampling needs."""

    comparison: Comparison
    is_rate: Flags
    centre: Floats
    """By quantity: subtracted from every value, so that squares do not cancel."""
    strata: tuple[_Stratum, ...]
    count: int
    """Sides."""

    @classmethod
    def of(cls, plan: Plan, collapsed: Collapsed, comparison: Comparison) -> Compared:
        """Sum up within the plan's units."""
        masks = _masks(comparison)
        sums, either = collapsed.sums, comparison.everyone
        centre = sums[:, either].sum(axis=1) / np.maximum(1.0, collapsed.counts[:, either].sum(axis=1))
        columns: list[Floats] = []
        for mask in masks:
            counts = _by_unit(plan, mask, collapsed.counts)
            columns += [_by_unit(plan, mask, sums) - centre[:, None] * counts, counts]
        return cls(
            comparison=comparison,
            is_rate=collapsed.is_rate,
            centre=centre,
            strata=tuple(_strata(plan, np.stack(columns))),
            count=len(masks),
        )

    def chosen(self, quantities: Places) -> Compared:
        """Only the quantities at these places."""
        strata = tuple(stratum.chosen(quantities) for stratum in self.strata)
        return Compared(self.comparison, self.is_rate[quantities], self.centre[quantities], strata, self.count)

    @property
    def linear(self) -> Flags:
        """By quantity: whether its value is a sum over units, because only numerators vary over resamples."""
        linear = np.full(len(self.centre), self.comparison.scale == "difference")
        for stratum in self.strata:
            linear &= stratum.even
        return linear

    def as_linear(self, quantities: Places) -> Linear:
        """The quantities at these places, whose values must be linear."""
        part = self.chosen(quantities)
        value = part._value(part._total())
        return Linear(value, part.is_rate & (part.count == 1), part.strata, tuple(part.residuals()))

    def under(self, counts: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Quantities × resamples: the value and its linearised variance, given how often each unit was drawn."""
        totals = [stratum.totals(counts[stratum.place]) for stratum in self.strata]
        total = np.zeros((2 * self.count, len(self.centre), len(counts[0])))
        for stratum, part in zip(self.strata, totals, strict=True):
            for place, side in enumerate(stratum.sides):
                total[2 * side : 2 * side + 2] += part[2 * place : 2 * place + 2]
        variance = np.zeros(total.shape[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            value, weights = self._linearised(total)
            for stratum, part in zip(self.strata, totals, strict=True):
                variance += stratum.variance(part, weights)
        return self._in_own_unit(value), np.maximum(variance, 0.0)

    def residuals(self) -> list[Floats]:
        """How far each unit moves the value, stratum by stratum: quantities × units."""
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = [weight[:, 0] for weight in self._linearised(self._total()[:, :, None])[1]]
            return [stratum.residuals(weights) for stratum in self.strata]

    def sides(self, collapsed: Collapsed) -> list[Sides]:
        """What the rows themselves say, by quantity."""
        counted = [np.count_nonzero(collapsed.counts[:, mask], axis=1) for mask in _masks(self.comparison)]
        edits = [collapsed.counts[:, mask].sum(axis=1) for mask in _masks(self.comparison)]
        total = self._total()
        variances, sizes = self._variances()
        variance = variances.sum(axis=0)
        value = self._value(total)[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = snapped(total[::2] / total[1::2] + self.centre)
        active, flat, alone = self._alone(total)
        spread = ~flat.all(axis=0) & (variance > (NOISE * (1 + np.abs(self.centre))) ** 2)
        by_quantity = zip(
            value.tolist(),
            variance.tolist(),
            _freedom(variances, sizes).tolist(),
            *(_tuples(part) for part in (active, np.stack(counted), np.stack(edits), rates, alone, flat)),
            spread.tolist(),
            strict=True,
        )
        return [Sides(self.comparison, *numbers) for numbers in by_quantity]

    def _variances(self) -> tuple[Floats, Integers]:
        """Strata × quantities: the variance in the rows themselves, from residuals, which do not cancel; its units."""
        shape = (len(self.strata), len(self.centre))
        variances, sizes = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        for place, (stratum, residuals) in enumerate(zip(self.strata, self.residuals(), strict=True)):
            seen = stratum.columns[1::2].any(axis=0)
            size = np.maximum(1, stratum.size)
            around = np.where(seen, residuals - (residuals.sum(axis=1) / size)[:, None], 0.0)
            variances[place] = size / np.maximum(1, size - 1) * (around**2).sum(axis=1)
            sizes[place] = stratum.size
        return variances, sizes

    def _alone(self, total: Floats) -> tuple[Integers, Flags, Floats]:
        """Sides × quantities: units with a value, whether all have the same, and the variance of the side's rate."""
        shape = (self.count, len(self.centre))
        active = np.zeros(shape, dtype=np.int64)
        low, high, squares = np.full(shape, math.inf), np.full(shape, -math.inf), np.zeros(shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            for stratum in self.strata:
                for place, side in enumerate(stratum.sides):
                    sums, counts = stratum.columns[2 * place : 2 * place + 2]
                    seen, means = counts > 0, sums / counts
                    active[side] += np.count_nonzero(counts, axis=1)
                    low[side] = np.minimum(low[side], np.where(seen, means, math.inf).min(axis=1))
                    high[side] = np.maximum(high[side], np.where(seen, means, -math.inf).max(axis=1))
                    rate, edits = total[2 * side] / total[2 * side + 1], total[2 * side + 1]
                    squares[side] += (((sums - rate[:, None] * counts) / edits[:, None]) ** 2).sum(axis=1)
            flat = ~(high - low > 1e-9 * (1 + np.abs(self.centre)))
            return active, flat, np.where(active > 1, active / np.maximum(1, active - 1) * squares, math.inf)

    def _total(self) -> Floats:
        total = np.zeros((2 * self.count, len(self.centre)))
        for stratum in self.strata:
            for place, side in enumerate(stratum.sides):
                total[2 * side : 2 * side + 2] += stratum.columns[2 * place : 2 * place + 2].sum(axis=2)
        return total

    def _linearised(self, total: Floats) -> tuple[Floats, list[Floats]]:
        """The value of these totals, and how much it changes with each of them; quantities × resamples."""
        value = np.zeros(total.shape[1:])
        weights: list[Floats] = []
        for side in range(self.count):
            sign = 1.0 if side == 0 else -1.0
            mean = total[2 * side] / total[2 * side + 1]
            slope = sign / total[2 * side + 1]
            if self.comparison.scale == "log ratio":
                rate = snapped(mean + self.centre[:, None])
                value += sign * np.log(rate)
                slope = slope / rate
            else:
                value += sign * mean
            weights += [slope, -slope * mean]
        return value, weights

    def _value(self, total: Floats) -> Floats:
        """The value of the rows' own totals: a column, by quantity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._in_own_unit(self._linearised(total[:, :, None])[0])

    def _in_own_unit(self, value: Floats) -> Floats:
        """A difference has no centre."""
        if self.comparison.against is not None:
            return value
        value = value + self.centre[:, None]
        return np.where(self.is_rate[:, None], snapped(value), value)


@dataclass(frozen=True, slots=True)
class Linear:
    """One comparison of quantities whose values are sums over units: linearising them changes nothing."""

    value: Floats
    """In the rows themselves: a column, by quantity."""
    is_share: Flags
    """By quantity: whether the value is a rate, so between 0 and 1."""
    strata: tuple[_Stratum, ...]
    residuals: tuple[Floats, ...]
    """By stratum, quantities × units."""

    def under(self, counts: Sequence[Floats]) -> tuple[Floats, Floats]:
        """As `Compared.under`, from two sums a stratum instead of up to fourteen."""
        value = np.repeat(self.value, len(counts[0]), axis=1)
        variance = np.zeros_like(value)
        for stratum, residuals in zip(self.strata, self.residuals, strict=True):
            drawn = counts[stratum.place].T
            first, second = product(residuals, drawn), product(residuals * residuals, drawn)
            value += first
            size = np.maximum(1, stratum.size)[:, None]
            first *= first
            first /= size
            second -= first
            second *= size / np.maximum(1, size - 1)
            variance += second
        return np.where(self.is_share[:, None], snapped(value), value), np.maximum(variance, 0.0, out=variance)


def _masks(comparison: Comparison) -> list[Flags]:
    return [comparison.members] if comparison.against is None else [comparison.members, comparison.against]


def _strata(plan: Plan, columns: Floats) -> Iterator[_Stratum]:
    """`columns` are sum and count of each side × quantities × units."""
    for place, units in enumerate(plan.strata):
        here = columns[:, :, units]
        seen = here[1::2] != 0
        any_value = seen.any(axis=(0, 1))
        if any_value.any():
            sides = np.flatnonzero(seen.any(axis=(1, 2)))
            kept = np.repeat(2 * sides, 2) + np.tile((0, 1), len(sides))
            inside = np.flatnonzero(any_value)
            values = np.ascontiguousarray(here[kept][:, :, inside])
            counts = values[1::2]
            even = (counts == counts[:, :, :1]).all(axis=(0, 2)) & (len(inside) == len(units))
            yield _Stratum(place, inside, tuple(sides.tolist()), values, seen.any(axis=0).sum(axis=1), even)


def _by_unit(plan: Plan, mask: Flags, values: Floats) -> Floats:
    """Quantities × units: the sum over these portraits within each unit of the plan."""
    inside = np.flatnonzero(mask & (plan.unit >= 0))
    summed = np.zeros((len(values), len(plan.names)))
    if len(inside):
        inside = inside[np.argsort(plan.unit[inside], kind="stable")]
        units, starts = np.unique(plan.unit[inside], return_index=True)
        summed[:, units] = np.add.reduceat(values[:, inside], starts, axis=1)
    return summed


def _freedom(variances: Floats, sizes: Integers) -> Floats:
    scale = (variances * variances / np.maximum(1, sizes - 1)).sum(axis=0)
    fewest: Floats = np.where(sizes > 0, sizes, math.inf).min(axis=0, initial=math.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0, variances.sum(axis=0) ** 2 / scale, np.maximum(1.0, fewest - 1.0))


def _tuples(by_side: NDArray[Any]) -> list[tuple[Any, ...]]:
    """Each quantity's numbers, a side after the other."""
    return [tuple(numbers) for numbers in cast("list[list[Any]]", by_side.T.tolist())]
