"""How far raters of the same edits agree, with intervals over portraits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import design
from stillme.estimates.agreement.measures import (
    MAX_DISTINCT,
    Measure,
    alpha_measure,
    cohen_measure,
    fleiss_measure,
    share_measure,
    without_noise,
)
from stillme.estimates.design import Plan
from stillme.estimates.intervals import jackknife, outcomes, t_quantile
from stillme.estimates.quantities import Columns, Floats, Quantity, sums_by
from stillme.estimates.quantities import interval as rounded_interval
from stillme.estimates.rows import Edits, EditState, RatingState, Scores, Settings

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
        return interval(measure, rank, everyone, settings, is_correlation=False)
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


def interval(
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
    return rounded_interval(
        value,
        min(low, value),
        max(value, min(1.0, high)),
        confidence=settings.confidence,
        method=f"jackknife over {noun}, Student's t",
    )


def _fisher(correlation: Floats) -> Floats:
    return np.arctanh(np.clip(correlation, -1 + 1e-9, 1 - 1e-9))
