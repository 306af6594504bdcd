"""Means and rates by a judge, corrected by the edits that people rated too (prediction-powered inference).

A judge rates every edit, people a random part. The judge's mean over all is corrected by the difference between people
and judge on that part. The judge gets the weight that minimises the variance over everyone (Angelopoulos and others,
2023, tuned as in 2024): a useless judge gets weight 0, and people alone remain. Groups share that weight: tuned on a
dozen portraits it would fit their noise, and their intervals would be too narrow. The standard error is between
portraits or their sets, because errors on edits of one portrait are correlated.

Where edits were drawn for people with known, unequal chances, each counts with the inverse of its chance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.errors import StillmeError
from stillme.estimates import design
from stillme.estimates.agreement.raters import ratings_of
from stillme.estimates.bootstrap import (
    MAX_COUNTS,
    MAX_DEGENERATE,
    MIN_UNITS,
    by_unit,
    draws,
    logit_limits,
    widest_limits,
)
from stillme.estimates.compared import LARGE
from stillme.estimates.cuts import rate_of
from stillme.estimates.design import Comparison, Plan
from stillme.estimates.quantiles import t_quantile
from stillme.estimates.quantities import Columns, Floats, meets, sums_by
from stillme.estimates.rounding import NOISE, interval, rounded
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.settings import Settings
from stillme.types import Estimate, Interval, NotEstimable


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected(Estimate):
    """A mean or rate as people would give it for all edits, estimated with the judge's help."""

    judged: float | None
    """The judge alone, over all edits that it rated."""
    people: Interval | NotEstimable
    """People alone, over the edits that they rated."""
    weight: float | None
    """The judge's weight, from 0 to 1: the best for everyone."""
    rated_by_people: int


def corrected(
    edits: Edits,
    judge: Scores,
    people: Scores,
    settings: Settings,
    *,
    quantities: Collection[str] | None = None,
    chances: Floats | None = None,
) -> list[Corrected]:
    """The axis's mean and named rates (or those of `quantities`) for all, by group and between groups.

    Valid only if the edits that people rated were drawn at random. `chances` says with which chance each edit was drawn
    for them, in the order of `edits`; without it, all had the same. Ratings of edits whose chance is 0 do not count:
    nobody knows what they stand for.
    """
    if judge.axis != people.axis:
        raise StillmeError(f"The judge answers {judge.axis!r} and people {people.axis!r}; pass two scores of one axis.")
    columns = Columns.of(edits)
    table = ratings_of(columns, [judge, people])
    offered = dict.fromkeys(measured.name for measured in columns.measured([judge]) if measured.judge)
    chosen = list(offered) if quantities is None else [*quantities]
    plans = [design.everyone(columns, settings)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    drawn = [_Resamples.of(plan, settings) for plan in plans]
    estimates: list[Corrected] = []
    order = columns.order
    weights = np.ones(len(order))
    if chances is not None:
        known = chances[order] > NOISE
        weights = np.divide(1.0, chances[order], out=np.zeros(len(order)), where=known)
        table[~known, 1] = np.nan
    for editor in sorted(edits.editors):
        for arm in sorted(edits.arms):
            here = edits.editor[order] == edits.editors.index(editor)
            here &= (edits.arm[order] == edits.arms.index(arm)) & ~np.isnan(table[:, 0])
            if not (here & ~np.isnan(table[:, 1])).any():
                continue
            for name in chosen:
                portraits = _by_portrait(columns, _values(name, judge.axis, table), here, weights)
                names = (name, editor, arm, judge.judge)
                weight = _best_weight(_Sums.of(plans[0], _everyone(columns), portraits))
                for plan, resamples in zip(plans, drawn, strict=True):
                    for comparison in plan.comparisons:
                        sums = _Sums.of(plan, comparison, portraits)
                        is_rate = name != judge.axis
                        estimates.append(_corrected(plan, comparison, sums, names, weight, resamples, is_rate=is_rate))
    return estimates


def _everyone(columns: Columns) -> Comparison:
    return Comparison(scope="all", group="", members=np.ones(len(columns.portraits), dtype=np.bool_))


def _values(name: str, axis: str, table: Floats) -> Floats:
    if name == axis:
        return table
    rate = rate_of(name)
    if rate is None or rate.axis != axis:
        raise StillmeError(f"{name!r} is neither the axis {axis!r} nor one of its rates; name one of these.")
    both = np.stack([meets(rate, table[:, 0]), meets(rate, table[:, 1])], axis=1)
    return np.where(np.isnan(table), np.nan, both)


_EDITS, _JUDGED, _RATED, _PEOPLE, _JUDGED_WHERE_RATED, _ASKED = range(6)
"""Edits, the judge's sum over them; edits that people rated, people's sum and the judge's sum over those; and edits
that people rated, without weights."""


def _by_portrait(columns: Columns, values: Floats, here: Flags, weights: Floats) -> Floats:
    """Portraits × six sums: single edits are looked at once, not for every comparison."""
    there = here & ~np.isnan(values[:, 1])
    ones = np.ones(len(here))
    parts = (
        (here, ones),
        (here, values[:, 0]),
        (there, weights),
        (there, weights * values[:, 1]),
        (there, weights * values[:, 0]),
        (there, ones),
    )
    size = len(columns.portraits)
    return np.stack([sums_by(columns.rank[rows], column[rows], size) for rows, column in parts], axis=1)


@dataclass(frozen=True, slots=True)
class _Resamples:
    """The resamples of a plan, drawn once if they are few."""

    settings: Settings
    plan: Plan
    kept: Sequence[Sequence[Floats]]

    @classmethod
    def of(cls, plan: Plan, settings: Settings) -> _Resamples:
        few = settings.replicates * sum(len(units) for units in plan.strata) <= MAX_COUNTS
        return cls(settings, plan, list(draws(plan, settings)) if few else ())

    def __iter__(self) -> Iterator[Sequence[Floats]]:
        return iter(self.kept or draws(self.plan, self.settings))


@dataclass(frozen=True, slots=True)
class _Sums:
    """What resampling needs: for each side of a comparison, units × five sums."""

    sides: tuple[Floats, ...]
    portraits: int
    edits: int
    rated: int

    @classmethod
    def of(cls, plan: Plan, comparison: Comparison, portraits: Floats) -> _Sums:
        masks = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
        sides = tuple(
            np.stack([by_unit(plan, mask, portraits[:, column]) for column in range(_ASKED)], axis=1) for mask in masks
        )
        inside = portraits[comparison.everyone]
        edits, rated = inside[:, _EDITS], inside[:, _ASKED]
        return cls(sides, int(np.count_nonzero(edits)), int(edits.sum()), int(rated.sum()))

    @property
    def units(self) -> int:
        """Units that people rated, on the side that has fewer."""
        return min(int(np.count_nonzero(side[:, _RATED])) for side in self.sides)

    def value(self, weight: float, totals: Sequence[Floats]) -> Floats:
        """The corrected value of each resample, whose totals are five sums × resamples for each side."""
        value = np.zeros(totals[0].shape[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            for sign, total in zip((1.0, -1.0), totals, strict=False):
                everywhere = total[_JUDGED] / total[_EDITS]
                there = total[_JUDGED_WHERE_RATED] / total[_RATED]
                value += sign * (total[_PEOPLE] / total[_RATED] + weight * (everywhere - there))
        return value

    def slopes(self, weight: float, totals: Sequence[Floats]) -> list[Floats]:
        """Five sums × resamples, for each side: how much the value changes with each sum."""
        slopes: list[Floats] = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for sign, total in zip((1.0, -1.0), totals, strict=False):
                edits, judged, rated, people, there = total
                slope = np.empty_like(total)
                slope[_EDITS] = -weight * judged / edits**2
                slope[_JUDGED] = weight / edits
                slope[_RATED] = (weight * there - people) / rated**2
                slope[_PEOPLE] = 1 / rated
                slope[_JUDGED_WHERE_RATED] = -weight / rated
                slopes.append(sign * slope)
        return slopes


def _corrected(
    plan: Plan,
    comparison: Comparison,
    sums: _Sums,
    names: tuple[str, str, str, str],
    weight: float,
    resamples: _Resamples,
    *,
    is_rate: bool,
) -> Corrected:
    quantity, editor, arm, judge = names
    outcome: Interval | NotEstimable = NotEstimable(reason="people rated edits of fewer than two portraits here")
    people, judged = outcome, None
    enough = sums.units >= 2
    if enough:
        is_rate = is_rate and comparison.against is None
        totals = [side.sum(axis=0) for side in sums.sides]
        means = [float(total[_JUDGED] / total[_EDITS]) for total in totals]
        judged = rounded(means[0] - (means[1] if len(means) > 1 else 0.0))
        outcome = _interval(plan, sums, weight, "prediction-powered", resamples, is_rate=is_rate)
        people = _interval(plan, sums, 0.0, "people alone", resamples, is_rate=is_rate)
    return Corrected(
        quantity=quantity,
        editor=editor,
        arm=arm,
        judge=judge,
        scope=comparison.scope,
        factor=plan.factor,
        group=comparison.group,
        outcome=outcome,
        portraits=sums.portraits,
        edits=sums.edits,
        judged=judged,
        people=people,
        weight=rounded(weight) if enough else None,
        rated_by_people=sums.rated,
    )


def _best_weight(sums: _Sums) -> float:
    """The judge's weight that minimises the variance; 0 for a judge whose scores do not vary."""
    totals = [side.sum(axis=0)[:, None] for side in sums.sides]
    if not totals[0][_RATED, 0]:
        return 0.0
    alone, together = (sums.slopes(weight, totals)[0][:, 0] for weight in (0.0, 1.0))
    error, difference = sums.sides[0] @ alone, sums.sides[0] @ (together - alone)
    variance = float((difference**2).sum())
    return min(1.0, max(0.0, -float((error * difference).sum()) / variance)) if variance > NOISE**2 else 0.0


def _interval(
    plan: Plan, sums: _Sums, weight: float, method: str, resamples: _Resamples, *, is_rate: bool
) -> Interval | NotEstimable:
    settings = resamples.settings
    ones = [np.ones((1, len(units))) for units in plan.strata]
    (value,), (variance,) = _resampled(plan, sums, weight, ones)
    error, tail = math.sqrt(variance), (1 + settings.confidence) / 2
    freedom = _freedom(plan, sums)
    if is_rate and error > NOISE and NOISE < value < 1 - NOISE:
        low, high = logit_limits(float(value), error, t_quantile(tail, freedom))
        noun = "Student's t of the logit"
    else:
        few = error > NOISE and MIN_UNITS <= sums.units < LARGE
        t = _t_values(plan, sums, weight, (float(value), float(variance)), resamples) if few else np.zeros(0)
        if few and len(t) >= (1 - MAX_DEGENERATE) * settings.replicates:
            low, high = widest_limits(float(value), error, t, freedom, settings.confidence)
            noun = "bootstrap-t and Student's t, the wider limits"
        else:
            half = t_quantile(tail, freedom) * error
            low, high, noun = float(value) - half, float(value) + half, "Student's t"
    method = f"{method}; {noun} over {plan.noun}"
    return interval(float(value), low, high, confidence=settings.confidence, method=method)


def _freedom(plan: Plan, sums: _Sums) -> float:
    rated = np.sum([side[:, _RATED] for side in sums.sides], axis=0) > 0
    return max(1.0, float(sum(max(0, int(rated[units].sum()) - 1) for units in plan.strata)))


def _t_values(plan: Plan, sums: _Sums, weight: float, observed: tuple[float, float], resamples: _Resamples) -> Floats:
    """The t-values of the resamples that have a standard error, sorted."""
    parts: list[Floats] = []
    for counts in resamples:
        value, variance = _resampled(plan, sums, weight, counts)
        usable = np.isfinite(value) & (variance > 1e-8 * observed[1])
        parts.append((value[usable] - observed[0]) / np.sqrt(variance[usable]))
    return np.sort(np.concatenate(parts))


def _resampled(plan: Plan, sums: _Sums, weight: float, counts: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The value and its variance between units in each of these resamples."""
    rows = len(counts[0])
    # Strata of other groups would only add zeros.
    strata = [
        (part, units)
        for part, units in zip(counts, plan.strata, strict=True)
        if any(side[units].any() for side in sums.sides)
    ]
    totals = [sum((side[units].T @ part.T for part, units in strata), np.zeros((5, rows))) for side in sums.sides]
    value = sums.value(weight, totals)
    slopes = sums.slopes(weight, totals)
    rated = np.sum([side[:, _RATED] for side in sums.sides], axis=0) > 0
    variance = np.zeros(rows)
    with np.errstate(invalid="ignore"):
        for part, units in strata:
            errors = np.zeros((len(units), rows))
            for slope, side in zip(slopes, sums.sides, strict=True):
                errors += side[units] @ slope
            errors *= errors
            errors *= part.T
            # Units that people did not rate move the judge's mean only, which is known much better.
            seen = int(rated[units].sum())
            variance += seen / max(1, seen - 1) * errors.sum(axis=0)
    return value, variance
