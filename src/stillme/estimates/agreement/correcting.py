"""Means and rates by a judge, corrected by the edits that people rated too (prediction-powered inference).

A judge rates every edit, people a random part. The judge's mean over all is corrected by how far people are from the
judge on that part. The judge counts with the weight that makes the result surest (Angelopoulos and others, 2023, tuned
as in 2024): a useless judge counts nothing, and people alone remain. The standard error is between portraits, or their
blocks, because the edits of one portrait err alike.
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
from stillme.estimates.quantiles import student
from stillme.estimates.quantities import Columns, Floats, holds, sums_by
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.settings import Settings
from stillme.types import Estimate, Interval, NotEstimable


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected(Estimate):
    """A mean or rate as people would give it for all edits, with the judge's help."""

    judged: float | None
    """The judge alone, over all edits that it rated."""
    people: Interval | NotEstimable
    """People alone, over the edits that they rated."""
    weight: float | None
    """How much the judge counts, from 0 to 1; of a contrast, on its first side."""
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

    Holds if the edits that people rated were sampled without looking at the outcome.
    """
    if judge.axis != people.axis:
        raise StillmeError(f"The judge answers {judge.axis!r} and people {people.axis!r}; correct one axis.")
    columns = Columns.of(edits)
    table = ratings_of(columns, [judge, people])
    measured = [each for each in columns.measured([judge]) if each.judge]
    names = dict.fromkeys(each.name for each in measured)
    chosen = list(names) if quantities is None else [*quantities]
    plans = [design.everyone(columns)]
    plans += [design.by_factor(columns, factor, settings.reference.get(factor)) for factor in settings.factors]
    found: list[Corrected] = []
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
                        found.append(_corrected(plan, comparison, sums, (name, editor, arm, judge.judge), settings))
    return found


def _values(name: str, axis: str, table: Floats) -> Floats:
    if name == axis:
        return table
    rate = rate_of(name)
    if rate is None or rate.axis != axis:
        raise StillmeError(f"{name!r} is neither the axis {axis!r} nor one of its rates.")
    both = np.stack([holds(rate, table[:, 0]), holds(rate, table[:, 1])], axis=1)
    return np.where(np.isnan(table), np.nan, both)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison, per unit of the plan."""

    number: Floats
    judged: Floats
    """Sum of the judge over all edits."""
    rated: Floats
    """How many edits people rated."""
    people: Floats
    judged_there: Floats
    """Sum of the judge over those."""

    @property
    def units(self) -> int:
        return int(np.count_nonzero(self.rated))

    def people_alone(self) -> tuple[float, Floats]:
        """The mean, and each unit's part in its error."""
        mean = self.people.sum() / self.rated.sum()
        return float(mean), (self.people - mean * self.rated) / self.rated.sum()

    def judge_gain(self) -> tuple[float, Floats]:
        """What the judge knows more about all edits than about those that people rated, and each unit's part in it."""
        everywhere, there = self.judged.sum() / self.number.sum(), self.judged_there.sum() / self.rated.sum()
        parts = (self.judged - everywhere * self.number) / self.number.sum()
        parts = parts - (self.judged_there - there * self.rated) / self.rated.sum()
        return float(everywhere - there), parts


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
                number=summed(mask, here, ones),
                judged=summed(mask, here, values[:, 0]),
                rated=summed(mask, there, ones),
                people=summed(mask, there, values[:, 1]),
                judged_there=summed(mask, there, values[:, 0]),
            )
            for mask in masks
        )
        inside = comparison.everyone[columns.rank] & here
        return cls(sides, len(np.unique(columns.rank[inside])), int(inside.sum()), plan.strata)


def _corrected(
    plan: Plan, comparison: Comparison, sums: _Sums, named: tuple[str, str, str, str], settings: Settings
) -> Corrected:
    name, editor, arm, judge = named
    outcome: Interval | NotEstimable = NotEstimable(reason="people rated edits of fewer than two portraits here")
    people, weight, judged = outcome, None, None
    if min(side.units for side in sums.sides) >= 2:
        value = alone = judged = 0.0
        parts = np.zeros(len(plan.names))
        parts_alone = np.zeros(len(plan.names))
        for sign, side in zip((1.0, -1.0), sums.sides, strict=False):
            mean, error = side.people_alone()
            gain, gain_error = side.judge_gain()
            spread = float((gain_error**2).sum())
            best = min(1.0, max(0.0, -float((error * gain_error).sum()) / spread)) if spread > 0 else 0.0
            weight = best if weight is None else weight
            value += sign * (mean + best * gain)
            alone += sign * mean
            judged += sign * float(side.judged.sum() / side.number.sum())
            parts += sign * (error + best * gain_error)
            parts_alone += sign * error
        outcome = _interval(plan, sums, value, parts, "prediction-powered", settings)
        people = _interval(plan, sums, alone, parts_alone, "people alone", settings)
    return Corrected(
        quantity=name,
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
        weight=weight,
        rated_by_people=int(sum(side.rated.sum() for side in sums.sides)),
    )


def _interval(plan: Plan, sums: _Sums, value: float, parts: Floats, method: str, settings: Settings) -> Interval:
    rated = np.sum([side.rated for side in sums.sides], axis=0) > 0
    variance, freedom = 0.0, 0
    for units in sums.strata:
        inside = units[rated[units]]
        if len(inside) > 1:
            # Units that people did not rate move the judge's mean only, which is known much better.
            variance += len(inside) / (len(inside) - 1) * float((parts[units] ** 2).sum())
            freedom += len(inside) - 1
    half = student((1 + settings.confidence) / 2, max(1, freedom)) * math.sqrt(variance)
    text = f"{method}; Student's t over {plan.noun}"
    return Interval(value=value, low=value - half, high=value + half, confidence=settings.confidence, method=text)
