"""How far raters of the same edits agree, with intervals over portraits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import design
from stillme.estimates.agreement.measures import (
    MANY,
    Measure,
    alpha_measure,
    cohen_measure,
    fleiss_measure,
    share_measure,
    without_noise,
)
from stillme.estimates.bootstrap import resample
from stillme.estimates.quantiles import student
from stillme.estimates.quantities import REASONS, Columns, Floats, Quantity, sums_by
from stillme.estimates.rows import Edits, EditState, RatingState, Scores
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable, Portrait


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One measure of how far raters agree on one axis."""

    axis: str
    measure: str
    """`fleiss_kappa`, `alpha_nominal`, `alpha_ordinal`, `alpha_interval`, `exact`, `within_one`; for two raters also
    `kappa`, `kappa_linear`, `kappa_quadratic`."""
    factor: str
    group: str
    """The portraits' group; empty for all."""
    outcome: Interval | NotEstimable
    raters: int
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
"""Measures that count equal answers: without meaning where hardly any two are."""


def agreement(edits: Edits, raters: Sequence[Scores], settings: Settings) -> list[Agreement]:
    """Every measure on every axis that at least two raters answered, for all and for each group of each factor.

    Each of `raters` is one person, or one model, on one axis; who did not rate an edit is missing there, not zero.
    """
    columns = Columns.of(edits)
    found: list[Agreement] = []
    for axis in dict.fromkeys(sorted(each.axis for each in raters)):
        parts = sorted((each for each in raters if each.axis == axis), key=lambda each: each.judge)
        if len(parts) > 1:
            table = ratings_of(columns, parts)
            found += _of_axis(columns, axis, table, "", "", settings)
            for factor in settings.factors:
                names, codes = edits.levels(factor)
                level = codes[columns.places][columns.rank]
                for code, name in enumerate(names):
                    inside = np.where((level == code)[:, None], table, np.nan)
                    found += _of_axis(columns, axis, inside, factor, name, settings)
    return found


def ratings_of(columns: Columns, raters: Sequence[Scores]) -> Floats:
    """Edits × raters, in the order of `columns`; NaN where there is no rating."""
    edited = columns.edits.state[columns.order] == EditState.EDITED
    given = [edited & (each.state[columns.order] == RatingState.RATED) for each in raters]
    values = [np.where(rated, each.value[columns.order], np.nan) for rated, each in zip(given, raters, strict=True)]
    return without_noise(np.stack(values, axis=1))


def _of_axis(
    columns: Columns, axis: str, table: Floats, factor: str, group: str, settings: Settings
) -> list[Agreement]:
    usable = (~np.isnan(table)).sum(axis=1) > 1
    rank, kept = columns.rank[usable], table[usable]
    used = ~np.isnan(kept).all(axis=0)
    kept = kept[:, used]
    portraits = len(np.unique(rank))
    known = rubric.load().axes.get(axis)
    measures = dict(_COMMON) if known is None or known.is_scale else {"alpha_interval": _COMMON["alpha_interval"]}
    measures |= _TWO if kept.shape[1] == 2 and "exact" in measures else {}
    crowded = len(np.unique(kept[~np.isnan(kept)])) > MANY
    found: list[Agreement] = []
    for name, measure_of in measures.items():
        outcome: Interval | NotEstimable
        if portraits < 2:
            outcome = NotEstimable(reason=f"edits of {portraits or 'no'} portrait have two ratings")
        elif crowded and name in _BY_VALUE:
            outcome = NotEstimable(reason="there are too many distinct values to count equal ones")
        else:
            outcome = _outcome(name, measure_of(kept), rank, columns, settings)
        found.append(
            Agreement(
                axis=axis,
                measure=name,
                factor=factor,
                group=group,
                outcome=outcome,
                raters=int(used.sum()),
                items=len(kept),
                ratings=int(np.count_nonzero(~np.isnan(kept))),
                portraits=portraits,
            )
        )
    return found


def _outcome(
    name: str, measure: Measure, rank: NDArray[np.intp], columns: Columns, settings: Settings
) -> Interval | NotEstimable:
    if name not in _SHARES:
        return interval(measure, rank, columns.portraits, settings, is_correlation=False)
    # A share is a rate over pairs of ratings, and gets the interval of one.
    size = len(columns.portraits)
    quantity = Quantity(
        name=name,
        editor="",
        arm="",
        judge="",
        sums=sums_by(rank, measure.moments[:, 0], size),
        counts=sums_by(rank, measure.moments[:, 1], size),
        squares=sums_by(rank, measure.moments[:, 0], size),
        excluded=np.zeros((size, len(REASONS)), dtype=np.int64),
        bounds=(0.0, 1.0),
        is_rate=True,
    )
    (found,) = resample(design.everyone(columns), [quantity], settings)
    return found.outcomes[0]


def interval(
    measure: Measure, rank: NDArray[np.intp], portraits: Sequence[Portrait], settings: Settings, *, is_correlation: bool
) -> Interval | NotEstimable:
    """The measure with its limits: whole portraits, or their blocks, are left out one at a time.

    With twelve portraits a percentile bootstrap of alpha held the truth in 83 % of 600 simulated audits, this in 93 %.
    """
    value = measure.value
    if not math.isfinite(value):
        return NotEstimable(reason="all ratings are the same, so there is nothing to agree on")
    places: list[int] = rank.tolist()
    keys = [portraits[place].block or portraits[place].id for place in places]
    names, unit = np.unique(np.array(keys, dtype=np.str_), return_inverse=True)
    moments = np.zeros((len(names), measure.moments.shape[1]))
    np.add.at(moments, unit, measure.moments)
    without = measure.finish(moments.sum(axis=0)[None, :] - moments)
    if len(names) < 2 or not np.isfinite(without).all():
        return NotEstimable(reason="too few portraits, or too few that differ, to leave one out")
    noun = "portraits" if len(names) == len(np.unique(rank)) else "blocks of portraits"
    middle, spread = value, without
    if is_correlation:
        # Correlations are symmetric on Fisher's scale.
        middle, spread = float(_fisher(np.array([value]))[0]), _fisher(without)
    error = math.sqrt((len(names) - 1) / len(names) * float(((spread - spread.mean()) ** 2).sum()))
    half = student((1 + settings.confidence) / 2, len(names) - 1) * error
    low, high = middle - half, middle + half
    if is_correlation:
        low, high = math.tanh(low), math.tanh(high)
    return Interval(
        value=value,
        low=min(low, value),
        high=max(value, min(1.0, high)),
        confidence=settings.confidence,
        method=f"jackknife over {noun}, Student's t",
    )


def _fisher(correlation: Floats) -> Floats:
    return np.arctanh(np.clip(correlation, -1 + 1e-9, 1 - 1e-9))
