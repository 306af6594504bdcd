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
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.rubric import rate_of
from stillme.core.types import Estimate, Interval, NotEstimable
from stillme.estimates import design
from stillme.estimates.agreement.raters import ratings_of
from stillme.estimates.design import Comparison, Plan
from stillme.estimates.intervals import Outcome, adjusted, distance, t_quantile, wilson_limits
from stillme.estimates.quantities import NOISE, Columns, Floats, by_unit, interval, meets, rounded, sums_by
from stillme.estimates.rows import Edits, Flags, Scores, Settings

MIN_RATED = 10
"""Units that people must have rated of a group before its number is corrected; else only everyone's is."""


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
    plans = [design.everyone(columns)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    estimates: list[Corrected] = []
    order = columns.order
    weights, everybody = np.ones(len(order)), np.ones(len(columns.portraits), dtype=np.bool_)
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
                weight = _Side.of(plans[0], everybody, portraits).best_weight()
                estimates += [
                    _corrected(plan, comparison, portraits, names, weight, _bounds(name, judge.axis), settings)
                    for plan in plans
                    for comparison in plan.comparisons
                ]
    return estimates


def _bounds(name: str, axis: str) -> tuple[float, float] | None:
    if name != axis:
        return (0.0, 1.0)
    known = rubric.load().axes.get(axis)
    return (1.0, 5.0) if known and known.is_scale else None


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
class _Influenced:
    """A number that is no plain mean, and how far each unit moves it."""

    value: float
    units: Floats
    """By block."""
    seen: Flags
    """Blocks that the number's error is known from."""

    def limits(self, bounds: tuple[float, float] | None, confidence: float) -> tuple[float, float]:
        """Wilson's form where there are bounds, else Student's t."""
        seen = int(np.count_nonzero(self.seen))
        variance = seen / max(1, seen - 1) * float((self.units**2).sum())
        t = t_quantile((1 + confidence) / 2, max(1, seen - 1))
        if bounds is None:
            half = t * math.sqrt(variance)
            return self.value - half, self.value + half
        low, width = bounds[0], bounds[1] - bounds[0]
        share = min(1.0, max(0.0, (self.value - low) / width))
        spread = share * (1 - share) * width**2
        size = spread / variance if spread > 0 and variance > NOISE**2 else float(seen)
        lowest, highest = wilson_limits(np.array(share), np.array(size), np.array(t))
        return low + width * float(lowest), low + width * float(highest)

    def minus(
        self, other: _Influenced, bounds: tuple[float, float] | None, confidence: float
    ) -> tuple[float, float, float]:
        """The difference of two, with MOVER's limits."""
        (low, high), (other_low, other_high) = (side.limits(bounds, confidence) for side in (self, other))
        scale = math.sqrt(float((self.units**2).sum()) * float((other.units**2).sum()))
        correlation = float((self.units * other.units).sum()) / scale if scale > 0 else 0.0
        shared = np.count_nonzero(self.seen & other.seen)
        rho = float(adjusted(np.array(correlation), np.array(shared)))
        value = self.value - other.value
        below = distance(np.array(self.value - low), np.array(other_high - other.value), rho)
        above = distance(np.array(high - self.value), np.array(other.value - other_low), rho)
        return value, value - float(below), value + float(above)


@dataclass(frozen=True, slots=True)
class _Side:
    """Units × five sums of one side of a comparison."""

    units: Floats

    @classmethod
    def of(cls, plan: Plan, members: Flags, portraits: Floats) -> _Side:
        return cls(np.stack([by_unit(plan.unit, members, portraits[:, column]) for column in range(_ASKED)], axis=1))

    @property
    def rated(self) -> Flags:
        """Units that people rated."""
        return self.units[:, _RATED] > 0

    @property
    def judged(self) -> float:
        """The judge alone."""
        total = self.units.sum(axis=0)
        return float(total[_JUDGED] / total[_EDITS])

    def at(self, weight: float) -> _Influenced:
        """The corrected value with this weight of the judge, and how far each unit moves it."""
        edits, judged, rated, people, there = self.units.sum(axis=0).tolist()
        slopes = np.zeros(_ASKED)
        slopes[_EDITS], slopes[_JUDGED] = -weight * judged / edits**2, weight / edits
        slopes[_RATED], slopes[_PEOPLE] = (weight * there - people) / rated**2, 1 / rated
        slopes[_JUDGED_WHERE_RATED] = -weight / rated
        value = people / rated + weight * (judged / edits - there / rated)
        return _Influenced(value, self.units @ slopes, self.rated)

    def best_weight(self) -> float:
        """The judge's weight that minimises the variance; 0 for a judge whose scores do not vary."""
        if not self.rated.any():
            return 0.0
        error = self.at(0.0).units
        difference = self.at(1.0).units - error
        variance = float((difference**2).sum())
        return min(1.0, max(0.0, -float((error * difference).sum()) / variance)) if variance > NOISE**2 else 0.0


def _corrected(
    plan: Plan,
    comparison: Comparison,
    portraits: Floats,
    names: tuple[str, str, str, str],
    weight: float,
    bounds: tuple[float, float] | None,
    settings: Settings,
) -> Corrected:
    quantity, editor, arm, judge = names
    masks = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
    sides = [_Side.of(plan, mask, portraits) for mask in masks]
    fewest = min(int(side.rated.sum()) for side in sides)
    needed = 2 if comparison.scope == "all" else MIN_RATED
    outcome: Outcome = NotEstimable(reason=f"people rated edits of {fewest} {plan.noun} here; it takes {needed}")
    people, judged = outcome, None
    if all(side.units[:, _EDITS].any() for side in sides):
        means = [side.judged for side in sides]
        judged = rounded(means[0] - (means[1] if len(means) > 1 else 0.0))
    if fewest >= needed:
        outcome = _interval(plan, sides, weight, "prediction-powered", bounds, settings)
        people = _interval(plan, sides, 0.0, "people alone", bounds, settings)
    inside = portraits[comparison.everyone]
    return Corrected(
        quantity=quantity,
        editor=editor,
        arm=arm,
        judge=judge,
        scope=comparison.scope,
        factor=plan.factor,
        group=comparison.group,
        outcome=outcome,
        portraits=int(np.count_nonzero(inside[:, _EDITS])),
        edits=int(inside[:, _EDITS].sum()),
        judged=judged,
        people=people,
        weight=rounded(weight) if fewest >= needed else None,
        rated_by_people=int(inside[:, _ASKED].sum()),
    )


def _interval(
    plan: Plan,
    sides: Sequence[_Side],
    weight: float,
    how: str,
    bounds: tuple[float, float] | None,
    settings: Settings,
) -> Outcome:
    found = [side.at(weight) for side in sides]
    if bounds is None and any(not part.units.any() for part in found):
        return NotEstimable(reason=f"no spread between {plan.noun}, so no interval")
    confidence = settings.confidence
    numbers = (
        (found[0].value, *found[0].limits(bounds, confidence))
        if len(found) == 1
        else found[0].minus(found[1], bounds, confidence)
    )
    value, low, high = numbers
    form = "Student's t" if bounds is None else "Wilson's form"
    method = f"{how}; {'MOVER: ' * (len(found) > 1)}{form}, {plan.noun} that people rated"
    # A corrected value may lie beyond the scale, where its limits cannot.
    return interval(value, min(value, low), max(value, high), confidence=confidence, method=method)
