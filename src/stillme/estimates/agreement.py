"""How far raters of the same edits agree, with intervals over portraits.

Measures of agreement are sums over items, so that leaving some out is a subtraction. A table of ratings has a row for
each item and a column for each rater; NaN is a rating that was not given. Each measure becomes moments, one row an
item, and a function of their totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.types import Interval, NotEstimable, Settings
from stillme.estimates import design
from stillme.estimates.design import Plan
from stillme.estimates.intervals import jackknife, outcomes, t_quantile
from stillme.estimates.quantities import NOISE, Columns, Floats, Quantity, interval, sums_by
from stillme.estimates.rows import Edits, EditState, RatingState, Scores

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
        return _divide(observed - expected, 1 - expected)

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


def _divide(top: Floats, bottom: Floats, *, otherwise: float = math.nan) -> Floats:
    bottom = np.broadcast_to(bottom, top.shape)
    return np.divide(top, bottom, out=np.full(top.shape, otherwise), where=bottom > NOISE)


def without_noise(values: Floats) -> Floats:
    """Rounded to nine places: equal means of raters may differ in their last bit."""
    rounded: Floats = np.empty(values.shape)
    np.round(values, 9, out=rounded)
    return rounded


Among = Literal["judges", "people"]
"""Whose agreement: judges are the same for every edit, people change from edit to edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One measure of how far raters agree on one axis."""

    among: Among
    axis: str
    measure: str
    """`fleiss_kappa`, `alpha_nominal`, `alpha_ordinal`, `alpha_interval`, `exact`, `within_one`; for two judges also
    `kappa`, `kappa_linear`, `kappa_quadratic`."""
    factor: str
    group: str
    """The portraits' group; empty for all."""
    outcome: Interval | NotEstimable
    raters: int
    """Of people: the most that rated one edit."""
    items: int
    """Edits with at least two ratings."""
    ratings: int
    portraits: int


_COMMON: Mapping[str, Callable[[Floats], Measure]] = {
    "fleiss_kappa": fleiss_measure,
    "alpha_nominal": lambda table: alpha_measure(table, "nominal"),
    "alpha_ordinal": lambda table: alpha_measure(table, "ordinal"),
    "alpha_interval": lambda table: alpha_measure(table, "interval"),
    "exact": lambda table: share_measure(table, 0.0),
    "within_one": lambda table: share_measure(table, 1.0),
}
_TWO: Mapping[str, Callable[[Floats], Measure]] = {
    "kappa": lambda table: cohen_measure(table, "none"),
    "kappa_linear": lambda table: cohen_measure(table, "linear"),
    "kappa_quadratic": lambda table: cohen_measure(table, "quadratic"),
}
_SHARES = frozenset({"exact", "within_one"})
_BY_VALUE = frozenset({"fleiss_kappa", "alpha_nominal", "exact", *_TWO})
"""Measures that count equal answers, which are meaningless where hardly any two answers are equal."""
_NOMINAL = frozenset({"fleiss_kappa", "alpha_nominal", "exact", "kappa"})
"""Measures that need no distance between answers."""


def agreement(
    edits: Edits, raters: Sequence[Scores], settings: Settings, *, among: Among = "judges"
) -> list[Agreement]:
    """Every measure on every axis that at least two raters answered, for all and for each group of each factor.

    Each of `raters` is one model on one axis, or one place among an edit's people; a rating that was not given is
    missing, not zero. Cohen's kappa is for two judges: it needs to know who is who.
    """
    columns = Columns.of(edits)
    everyone = design.everyone(columns)
    agreements: list[Agreement] = []
    for axis in sorted({scores.axis for scores in raters}):
        parts = sorted((scores for scores in raters if scores.axis == axis), key=lambda scores: scores.judge)
        if len(parts) > 1:
            table = ratings_of(columns, parts)
            agreements += _of_axis(columns, everyone, axis, table, ("", ""), among, settings)
            for factor in settings.factors:
                names, codes = edits.levels(factor)
                level = codes[columns.places][columns.rank]
                for code, name in enumerate(names):
                    inside = np.where((level == code)[:, None], table, np.nan)
                    agreements += _of_axis(columns, everyone, axis, inside, (factor, name), among, settings)
    return agreements


def ratings_of(columns: Columns, raters: Sequence[Scores]) -> Floats:
    """Edits × raters, in the order of `columns`; NaN where there is no rating."""
    edited = columns.edits.state[columns.order] == EditState.EDITED
    values = [
        np.where(edited & (given.state[columns.order] == RatingState.RATED), given.value[columns.order], np.nan)
        for given in (scores.counting(columns.edits) for scores in raters)
    ]
    return without_noise(np.stack(values, axis=1))


def _of_axis(
    columns: Columns,
    everyone: Plan,
    axis: str,
    table: Floats,
    group: tuple[str, str],
    among: Among,
    settings: Settings,
) -> list[Agreement]:
    usable = (~np.isnan(table)).sum(axis=1) > 1
    rank, kept = columns.rank[usable], table[usable]
    used = ~np.isnan(kept).all(axis=0)
    kept = kept[:, used]
    portraits = len(np.unique(rank))
    known = rubric.load().axes.get(axis)
    names = _measures_of(known)
    measures = {name: measure for name, measure in _COMMON.items() if name in names}
    if kept.shape[1] == 2 and among == "judges":
        measures |= {name: measure for name, measure in _TWO.items() if name in names}
    continuous = len(np.unique(kept[~np.isnan(kept)])) > MAX_DISTINCT
    agreements: list[Agreement] = []
    for name, measure_of in measures.items():
        outcome: Interval | NotEstimable
        if portraits < 2:
            outcome = NotEstimable(reason=f"edits of {'only one' if portraits else 'no'} portrait have two ratings")
        elif continuous and name in _BY_VALUE:
            outcome = NotEstimable(reason="there are too many distinct values to count equal ones")
        else:
            outcome = _outcome(name, measure_of(kept), rank, everyone, settings)
        agreements.append(
            Agreement(
                among=among,
                axis=axis,
                measure=name,
                factor=group[0],
                group=group[1],
                outcome=outcome,
                raters=int(used.sum() if among == "judges" else (~np.isnan(kept)).sum(axis=1).max(initial=0)),
                items=len(kept),
                ratings=int(np.count_nonzero(~np.isnan(kept))),
                portraits=portraits,
            )
        )
    return agreements


def _measures_of(axis: rubric.Axis | None) -> frozenset[str]:
    """The measures that an axis has: answers that name one of several have no distance, measurements no equal ones."""
    if axis is None or axis.is_scale:
        return frozenset({*_COMMON, *_TWO})
    return _NOMINAL if axis.is_nominal else frozenset({"alpha_interval"})


def _outcome(
    name: str, measure: Measure, rank: NDArray[np.intp], everyone: Plan, settings: Settings
) -> Interval | NotEstimable:
    if name not in _SHARES:
        return jackknife_interval(measure, rank, everyone, settings, is_correlation=False)
    # A share is a rate over pairs of ratings, and gets the interval of one.
    size = len(everyone.unit)
    quantity = Quantity(
        name=name,
        editor="",
        arm="",
        judge="",
        sums=sums_by(rank, measure.moments[:, 0], size),
        counts=sums_by(rank, measure.moments[:, 1], size),
        squares=sums_by(rank, measure.moments[:, 0], size),
        excluded={},
        bounds=(0.0, 1.0),
        is_rate=True,
    )
    (found,) = outcomes(everyone, [quantity], replace(settings, prompts="fixed"))
    (outcome,) = found or (NotEstimable(reason="all portraits are of one identity"),)
    return outcome


def jackknife_interval(
    measure: Measure, rank: NDArray[np.intp], everyone: Plan, settings: Settings, *, is_correlation: bool
) -> Interval | NotEstimable:
    """A jackknife interval of the measure: whole portraits, or their blocks, are left out one at a time.

    With twelve portraits a percentile bootstrap of alpha covered the truth in 83 % of 600 simulated audits, this in
    93 %.
    """
    value = measure.value
    if not math.isfinite(value):
        return NotEstimable(reason="all ratings are the same, so there is nothing to agree on")
    names, unit = np.unique(everyone.unit[rank], return_inverse=True)
    units = len(names)
    moments = np.zeros((units, measure.moments.shape[1]))
    np.add.at(moments, unit, measure.moments)
    without = measure.finish(moments.sum(axis=0)[None, :] - moments)
    if units < 2 or not np.isfinite(without).all():
        return NotEstimable(reason="too few portraits, or too few that differ, to leave one out")
    noun = "portraits" if units == len(np.unique(rank)) else "identities"
    # Correlations are symmetric on Fisher's scale.
    centre, replicates = (float(_fisher(np.array(value))), _fisher(without)) if is_correlation else (value, without)
    half = t_quantile((1 + settings.confidence) / 2, units - 1) * jackknife(replicates)
    low, high = centre - half, centre + half
    if is_correlation:
        low, high = math.tanh(low), math.tanh(high)
    return interval(
        value,
        min(low, value),
        max(value, min(1.0, high)),
        confidence=settings.confidence,
        method=f"jackknife over {noun}, Student's t",
    )


def _fisher(correlation: Floats) -> Floats:
    return np.arctanh(np.clip(correlation, -1 + 1e-9, 1 - 1e-9))
