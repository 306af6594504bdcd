"""Measures of agreement as sums over items, so that leaving some out is a subtraction.

A table of ratings has a row for each item and a column for each rater; NaN is a rating that was not given. Each measure
becomes moments, one row an item, and a function of their totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from stillme.core.errors import StillmeError
from stillme.estimates.quantities import NOISE, Floats

Level = Literal["nominal", "ordinal", "interval"]
Weights = Literal["none", "linear", "quadratic"]

MAX_DISTINCT = 40
"""Distinct values above which a table of value against value is too large, and too sparse."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that is a function of sums over items."""

    moments: Floats
    """Items × whatever the function needs."""
    finish: Callable[[Floats], Floats]
    """Rows of totals to values; NaN where there is none."""

    @property
    def value(self) -> float:
        """In the table itself."""
        return float(self.finish(self.moments.sum(axis=0)[None, :])[0])


def fleiss(table: ArrayLike) -> float:
    """Fleiss' kappa; NaN where it does not exist. Items may have different numbers of ratings, from two on."""
    return fleiss_measure(_clean(table)).value


def alpha(table: ArrayLike, level: Level = "interval") -> float:
    """Krippendorff's alpha; NaN where it does not exist. Missing ratings are left out, never filled in."""
    return alpha_measure(_clean(table), level).value


def cohen(one: ArrayLike, other: ArrayLike, weights: Weights = "none") -> float:
    """Cohen's kappa of two raters, over the items that both rated; NaN where it does not exist."""
    return cohen_measure(_clean(np.stack([np.asarray(one, float), np.asarray(other, float)], axis=1)), weights).value


def share_measure(table: Floats, within: float) -> Measure:
    """The share of pairs of ratings of one item that lie at most this far apart."""
    given = ~np.isnan(table)
    close, pairs = np.zeros(len(table)), np.zeros(len(table))
    for one in range(table.shape[1]):
        for other in range(one + 1, table.shape[1]):
            both = given[:, one] & given[:, other]
            pairs += both
            close[both] += np.abs(table[both, one] - table[both, other]) <= within + 1e-9
    return Measure(np.stack([close, pairs], axis=1), lambda total: _divide(total[:, 0], total[:, 1]))


def fleiss_measure(table: Floats) -> Measure:
    """Agreement beyond what the raters' shared distribution of scores gives by chance."""
    counts = _histogram(table)
    rated = counts.sum(axis=1)
    counts, rated = np.where((rated > 1)[:, None], counts, 0.0), np.where(rated > 1, rated, 0.0)
    agreed = _divide((counts**2).sum(axis=1) - rated, rated * (rated - 1), otherwise=0.0)

    def finish(total: Floats) -> Floats:
        observed = _divide(total[:, 0], total[:, 1])
        shares = _divide(total[:, 3:], total[:, 2:3])
        expected = (shares**2).sum(axis=1)
        return _beyond(observed, expected)

    moments = np.column_stack([agreed, rated > 0, rated, counts]).astype(np.float64)
    return Measure(moments, finish)


def cohen_measure(table: Floats, weights: Weights) -> Measure:
    """Agreement of two columns beyond what their own distributions of scores give by chance."""
    if table.shape[1] != 2:
        raise StillmeError(f"Cohen's kappa is for two raters, not {table.shape[1]}; use Fleiss' kappa or alpha.")
    table = table[~np.isnan(table).any(axis=1)]
    values, places = np.unique(table, return_inverse=True)
    places = places.reshape(table.shape)
    kinds = len(values)
    cells = np.zeros((len(table), kinds * kinds))
    cells[np.arange(len(table)), places[:, 0] * kinds + places[:, 1]] = 1.0
    apart = np.abs(values[:, None] - values[None, :])
    cost = {"none": (apart > 0).astype(np.float64), "linear": apart, "quadratic": apart**2}[weights]

    def finish(total: Floats) -> Floats:
        joint = total.reshape(len(total), kinds, kinds)
        number = joint.sum(axis=(1, 2))
        expected = np.einsum("ri,rj,ij->r", joint.sum(axis=2), joint.sum(axis=1), cost)
        return 1 - _divide(number * np.einsum("rij,ij->r", joint, cost), expected)

    return Measure(cells, finish)


def alpha_measure(table: Floats, level: Level) -> Measure:
    """Krippendorff's alpha from sums, without a table of every value against every value where that can be avoided."""
    table = np.where((~np.isnan(table)).sum(axis=1, keepdims=True) > 1, table, np.nan)
    match level:
        case "nominal":
            return _nominal(table)
        case "interval":
            return _interval(table)
        case "ordinal":
            return _ordinal(table)


def _nominal(table: Floats) -> Measure:
    counts = _histogram(table)
    rated = counts.sum(axis=1)
    same = _divide((counts * (counts - 1)).sum(axis=1), rated - 1, otherwise=0.0)

    def finish(total: Floats) -> Floats:
        number, by_value = total[:, 1], total[:, 2:]
        observed = number - total[:, 0]
        expected = _divide(number**2 - (by_value**2).sum(axis=1), number - 1)
        return 1 - _divide(observed, expected)

    return Measure(np.column_stack([same, rated, counts]), finish)


def _interval(table: Floats) -> Measure:
    given = ~np.isnan(table)
    mean = float(table[given].mean()) if given.any() else 0.0
    filled = np.where(given, table - mean, 0.0)
    rated, sums, squares = given.sum(axis=1).astype(np.float64), filled.sum(axis=1), (filled**2).sum(axis=1)
    apart = _divide(rated * squares - sums**2, rated - 1, otherwise=0.0)

    def finish(total: Floats) -> Floats:
        observed, number, first, second = total.T
        expected = _divide(number * second - first**2, number - 1)
        return 1 - _divide(observed, expected)

    return Measure(np.stack([apart, rated, sums, squares], axis=1), finish)


def _ordinal(table: Floats) -> Measure:
    """The ordinal distance is the distance of mid-ranks, so alpha is the interval alpha of mid-ranks."""
    given = ~np.isnan(table)
    values, places = np.unique(table[given], return_inverse=True)
    by_value = np.bincount(places, minlength=len(values)).astype(np.float64)
    if len(values) > MAX_DISTINCT:
        # Ranks of so many values hardly move when items are left out.
        ranked = np.full(table.shape, np.nan)
        ranked[given] = (np.cumsum(by_value) - by_value / 2)[places]
        return _interval(ranked)
    counts = _histogram(table)
    rated = counts.sum(axis=1)
    weight = _divide(np.ones(len(table)), rated - 1, otherwise=0.0)
    kinds = len(values)
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs[:, np.arange(kinds), np.arange(kinds)] -= counts
    coincidences = (pairs * weight[:, None, None]).reshape(len(table), kinds * kinds)

    def finish(total: Floats) -> Floats:
        number = total[:, :kinds]
        ranks = np.cumsum(number, axis=1) - number / 2
        apart = (ranks[:, :, None] - ranks[:, None, :]) ** 2
        observed = (total[:, kinds:].reshape(len(total), kinds, kinds) * apart).sum(axis=(1, 2))
        expected = _divide(np.einsum("ri,rj,rij->r", number, number, apart), number.sum(axis=1) - 1)
        return 1 - _divide(observed, expected)

    # An item with one rating has no pair, and its value no part in what is expected.
    counts = np.where((rated > 1)[:, None], counts, 0.0)
    return Measure(np.column_stack([counts, coincidences]), finish)


def _histogram(table: Floats) -> Floats:
    """Items × distinct values: how often each was given."""
    given = ~np.isnan(table)
    values, places = np.unique(table[given], return_inverse=True)
    counts = np.zeros((len(table), len(values)))
    np.add.at(counts, (np.nonzero(given)[0], places), 1.0)
    return counts


def _beyond(observed: Floats, expected: Floats) -> Floats:
    return _divide(observed - expected, 1 - expected)


def _divide(top: Floats, bottom: Floats, *, otherwise: float = math.nan) -> Floats:
    bottom = np.broadcast_to(bottom, top.shape)
    return np.divide(top, bottom, out=np.full(top.shape, otherwise), where=bottom > NOISE)


def without_noise(values: Floats) -> Floats:
    """Rounded to nine places: equal means of raters may differ in their last bit."""
    rounded: Floats = np.empty(values.shape)
    np.round(values, 9, out=rounded)
    return rounded


def _clean(table: ArrayLike) -> Floats:
    return without_noise(np.asarray(table, dtype=np.float64))
