"""Means and rates by a judge, corrected by the edits that people rated too (prediction-powered inference).

A judge rates every edit, people a random part. The judge's mean over all is corrected by the difference between people
and judge on that part. The judge gets the weight that minimises the variance (Angelopoulos and others, 2023, tuned as
in 2024): a useless judge gets weight 0, and people alone remain. The standard error is between portraits, or their
blocks, because errors on edits of one portrait are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.errors import StillmeError
from stillme.estimates import design
from stillme.estimates.agreement.raters import ratings_of
from stillme.estimates.bootstrap import by_unit
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
    """The judge's weight, from 0 to 1; of a contrast, on its first side."""
    rated_by_people: int


def corrected(
    edits: Edits,
    judge: Scores,
    people: Scores,
    settings: Settings,
    *,
    quantities: Collection[str] | None = None,
) -> list[Corrected]:
    """The axis's mean and named rates (or those of `quantities`) for all, by group and between groups.

    Valid only if the edits that people rated were sampled without looking at the outcome.
    """
    if judge.axis != people.axis:
        raise StillmeError(f"The judge answers {judge.axis!r} and people {people.axis!r}; pass two scores of one axis.")
    columns = Columns.of(edits)
    table = ratings_of(columns, [judge, people])
    offered = dict.fromkeys(measured.name for measured in columns.measured([judge]) if measured.judge)
    chosen = list(offered) if quantities is None else [*quantities]
    plans = [design.everyone(columns, settings)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    estimates: list[Corrected] = []
    order = columns.order
    for editor in sorted(edits.editors):
        for arm in sorted(edits.arms):
            here = edits.editor[order] == edits.editors.index(editor)
            here &= (edits.arm[order] == edits.arms.index(arm)) & ~np.isnan(table[:, 0])
            if not (here & ~np.isnan(table[:, 1])).any():
                continue
            for name in chosen:
                values = _values(name, judge.axis, table)
                for plan in plans:
                    for comparison in plan.comparisons:
                        sums = _Sums.of(columns, plan, comparison, values, here)
                        estimates.append(_corrected(plan, comparison, sums, (name, editor, arm, judge.judge), settings))
    return estimates


def _values(name: str, axis: str, table: Floats) -> Floats:
    if name == axis:
        return table
    rate = rate_of(name)
    if rate is None or rate.axis != axis:
        raise StillmeError(f"{name!r} is neither the axis {axis!r} nor one of its rates; name one of these.")
    both = np.stack([meets(rate, table[:, 0]), meets(rate, table[:, 1])], axis=1)
    return np.where(np.isnan(table), np.nan, both)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison, per unit of the plan."""

    edits: Floats
    judged: Floats
    """Sum of the judge's scores over all edits."""
    rated: Floats
    """How many edits people rated."""
    people: Floats
    """Sum of people's scores."""
    judged_where_rated: Floats
    """Sum of the judge's scores over the edits that people rated."""

    @property
    def units(self) -> int:
        return int(np.count_nonzero(self.rated))

    def people_alone(self) -> tuple[float, Floats]:
        """The mean, and each unit's contribution to its error."""
        mean = self.people.sum() / self.rated.sum()
        return float(mean), (self.people - mean * self.rated) / self.rated.sum()

    def judge_difference(self) -> tuple[float, Floats]:
        """The judge's mean over all edits minus that over the edits people rated, and each unit's contribution."""
        everywhere, there = self.judged.sum() / self.edits.sum(), self.judged_where_rated.sum() / self.rated.sum()
        errors = (self.judged - everywhere * self.edits) / self.edits.sum()
        errors = errors - (self.judged_where_rated - there * self.rated) / self.rated.sum()
        return float(everywhere - there), errors


@dataclass(frozen=True, slots=True)
class _Sums:
    sides: tuple[_Side, ...]
    portraits: int
    edits: int
    strata: Sequence[np.ndarray]

    @classmethod
    def of(cls, columns: Columns, plan: Plan, comparison: Comparison, values: Floats, here: Flags) -> _Sums:
        size = len(columns.portraits)
        there = here & ~np.isnan(values[:, 1])

        def summed(mask: Flags, rows: Flags, column: Floats) -> Floats:
            return by_unit(plan, mask, sums_by(columns.rank[rows], column[rows], size))

        ones = np.ones(len(here))
        masks = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
        sides = tuple(
            _Side(
                edits=summed(mask, here, ones),
                judged=summed(mask, here, values[:, 0]),
                rated=summed(mask, there, ones),
                people=summed(mask, there, values[:, 1]),
                judged_where_rated=summed(mask, there, values[:, 0]),
            )
            for mask in masks
        )
        inside = comparison.everyone[columns.rank] & here
        return cls(sides, len(np.unique(columns.rank[inside])), int(inside.sum()), plan.strata)


def _corrected(
    plan: Plan, comparison: Comparison, sums: _Sums, names: tuple[str, str, str, str], settings: Settings
) -> Corrected:
    quantity, editor, arm, judge = names
    outcome: Interval | NotEstimable = NotEstimable(reason="people rated edits of fewer than two portraits here")
    people, weight, judged = outcome, None, None
    if min(side.units for side in sums.sides) >= 2:
        value = alone = judged = 0.0
        errors = np.zeros(len(plan.names))
        errors_alone = np.zeros(len(plan.names))
        for sign, side in zip((1.0, -1.0), sums.sides, strict=False):
            mean, error = side.people_alone()
            difference, difference_error = side.judge_difference()
            best = _best_weight(error, difference_error)
            weight = rounded(best) if weight is None else weight
            value += sign * (mean + best * difference)
            alone += sign * mean
            judged += sign * float(side.judged.sum() / side.edits.sum())
            errors += sign * (error + best * difference_error)
            errors_alone += sign * error
        outcome = _interval(plan, sums, value, errors, "prediction-powered", settings)
        people = _interval(plan, sums, alone, errors_alone, "people alone", settings)
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
        judged=None if judged is None else rounded(judged),
        people=people,
        weight=weight,
        rated_by_people=int(sum(side.rated.sum() for side in sums.sides)),
    )


def _best_weight(error: Floats, difference_error: Floats) -> float:
    """The judge's weight that minimises the variance; 0 for a judge whose scores do not vary."""
    variance = float((difference_error**2).sum())
    return min(1.0, max(0.0, -float((error * difference_error).sum()) / variance)) if variance > NOISE**2 else 0.0


def _interval(plan: Plan, sums: _Sums, value: float, errors: Floats, method: str, settings: Settings) -> Interval:
    rated = np.sum([side.rated for side in sums.sides], axis=0) > 0
    variance, freedom = 0.0, 0
    for units in sums.strata:
        inside = units[rated[units]]
        if len(inside) > 1:
            # Units that people did not rate move the judge's mean only, which is known much better.
            variance += len(inside) / (len(inside) - 1) * float((errors[units] ** 2).sum())
            freedom += len(inside) - 1
    half = t_quantile((1 + settings.confidence) / 2, max(1, freedom)) * math.sqrt(variance)
    method = f"{method}; Student's t over {plan.noun}"
    return interval(value, value - half, value + half, confidence=settings.confidence, method=method)
