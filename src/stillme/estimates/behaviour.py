"""What a judge itself adds to its scores: position bias, spread between repeats, what labels do to it, and gaps.

The portrait is the unit here too. Editors and arms are pooled: a habit belongs to the judge, not to what it looks at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stillme.core import rubric
from stillme.core.types import Interval, NotEstimable, Scope, Settings
from stillme.estimates import design
from stillme.estimates.agreement import ratings_of, without_noise
from stillme.estimates.design import Plan, SideComparison
from stillme.estimates.intervals import outcomes
from stillme.estimates.permutation import null_bands
from stillme.estimates.quantities import NOISE, Columns, Floats, Quantity, sums_by
from stillme.estimates.rows import Edits, EditState, Scores

ONE_POINT = 1 + 1e-9
"""A difference of exactly one point is not more than one, despite floating-point rounding."""

_IN_POINTS = frozenset({"edited_first", "unblinded_minus_blind", "over_one", "sd", "within_one"})
"""Measures that need the points of a scale; the others count equal answers, on any axis."""

_SD_DECIMALS = 6
"""A root doubles the digits that rounding errors reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """One judge's answers on one axis, each time it was asked, aligned with `Edits`."""

    judge: str
    axis: str
    views: int
    """How many presentations of a pair there are; with two, the second shows the edited picture first."""
    value: Floats
    """Times asked × edits; NaN unless rated. Row `n` is of view `n % views`."""

    def seen_as(self, view: int) -> Floats:
        """The answers in one presentation: epochs × edits."""
        return self.value[view :: self.views]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One number about a judge on one axis."""

    judge: str
    against: str
    """The judge that it is compared with; empty where it is compared with itself."""
    axis: str
    measure: str
    scope: Scope
    factor: str
    group: str
    """A level, `level - rest`, or empty for everyone."""
    outcome: Interval | NotEstimable
    groups_p: float | None
    """How often chance alone makes the factor's groups differ as much; None for everyone."""
    portraits: int
    edits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One measure, edit by edit in the order of `Columns`: a mean is the sum of values by the sum of weights."""

    judge: str
    axis: str
    measure: str
    value: Floats
    weight: Floats
    """0 where the edit has no value."""
    bounds: tuple[float, float]
    against: str = ""
    is_rate: bool = False
    is_variance: bool = False
    """Shown as its root, the standard deviation."""

    def collapsed(self, columns: Columns) -> Quantity:
        size = len(columns.portraits)
        value = np.where(self.weight > 0, self.value, 0.0)
        return Quantity(
            name=self.measure,
            editor="",
            arm="",
            judge=self.judge,
            sums=sums_by(columns.rank, value, size),
            counts=sums_by(columns.rank, self.weight, size),
            squares=sums_by(columns.rank, value * value / np.maximum(self.weight, NOISE), size),
            excluded={},
            bounds=self.bounds,
            is_rate=self.is_rate,
        )


def position_bias(edits: Edits, repeats: Sequence[Repeats], settings: Settings) -> list[Behaviour]:
    """For judges that saw both orders: the edited picture first minus the source first, and how often scores differ.

    Measures: `edited_first`, the mean difference; `changed`, the share of edits whose score differs; `over_one`, the
    share whose score differs by more than a point.
    """
    columns = Columns.of(edits)
    measured: list[_Measured] = []
    for judge in repeats:
        if judge.views == 2:
            orders = [_mean(_rated(columns, judge.seen_as(view))) for view in range(2)]
            measured += _differences("edited_first", judge.judge, judge.axis, orders[1] - orders[0])
    return _estimated(columns, measured, settings)


def repeatability(edits: Edits, repeats: Sequence[Repeats], settings: Settings) -> list[Behaviour]:
    """For judges that were asked the same more than once: how far apart the answers are.

    Measures: `sd`, the standard deviation within an edit; `identical` and `within_one`, the shares of edits whose
    answers are all the same, and at most a point apart.
    """
    columns = Columns.of(edits)
    return _estimated(columns, [part for judge in repeats for part in _spread(columns, judge)], settings)


def disclosure_effect(edits: Edits, pairs: Sequence[tuple[Scores, Scores]], settings: Settings) -> list[Behaviour]:
    """A judge that sees the portraits' labels minus the same judge blind, on the edits that both rated.

    `pairs` are blind and unblinded. Measures: `unblinded_minus_blind`, `changed` and `over_one`. The contrast of the
    first is what the labels add to a gap between groups.
    """
    columns = Columns.of(edits)
    measured: list[_Measured] = []
    for blind, unblinded in pairs:
        table = ratings_of(columns, [blind, unblinded])
        differences = _differences("unblinded_minus_blind", unblinded.judge, unblinded.axis, table[:, 1] - table[:, 0])
        measured += [replace(difference, against=blind.judge) for difference in differences]
    return _estimated(columns, measured, settings)


def coverage(edits: Edits, ensemble: str, judges: Sequence[Scores], settings: Settings) -> list[Behaviour]:
    """Of the edits that a judge of the ensemble scored: how many lack another judge's score, and so are left out.

    Measures of the ensemble: `incomplete`, the share where a judge gave none; `single`, the share that only one judge
    scored. Of each judge: `no_score`, the share that lacks its score.
    """
    columns = Columns.of(edits)
    measured: list[_Measured] = []
    for axis in dict.fromkeys(scores.axis for scores in judges):
        parts = [scores for scores in judges if scores.axis == axis]
        if len(parts) > 1:
            given = np.isfinite(ratings_of(columns, parts))
            count = given.sum(axis=1)
            scored = count > 0
            measured.append(_share("incomplete", ensemble, axis, count < len(parts), scored))
            measured.append(_share("single", ensemble, axis, count == 1, scored))
            measured += [
                _share("no_score", part.judge, axis, ~given[:, place], scored) for place, part in enumerate(parts)
            ]
    return _estimated(columns, measured, settings)


def _rated(columns: Columns, answers: Floats) -> Floats:
    """Answers to edits that exist, in the order of `columns`."""
    edited = columns.edits.state[columns.order] == EditState.EDITED
    return np.where(edited, answers[:, columns.order], np.nan)


def _mean(answers: Floats) -> Floats:
    """Over epochs; NaN where there is no answer."""
    given = np.isfinite(answers)
    count = given.sum(axis=0)
    return np.where(count > 0, np.where(given, answers, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


def _differences(measure: str, judge: str, axis: str, difference: Floats) -> Iterator[_Measured]:
    both = np.isfinite(difference)
    apart = without_noise(np.where(both, difference, 0.0))
    yield _Measured(
        judge=judge, axis=axis, measure=measure, value=apart, weight=both.astype(np.float64), bounds=(-4.0, 4.0)
    )
    yield _share("changed", judge, axis, np.abs(apart) > 0, both)
    yield _share("over_one", judge, axis, np.abs(apart) > ONE_POINT, both)


def _spread(columns: Columns, judge: Repeats) -> Iterator[_Measured]:
    """Within an edit, among answers to exactly the same question."""
    size = len(columns.order)
    squares, freedom, range_ = np.zeros(size), np.zeros(size), np.zeros(size)
    for view in range(judge.views):
        answers = _rated(columns, judge.seen_as(view))
        given = np.isfinite(answers)
        centred = np.where(given, answers - _mean(answers), 0.0)
        several = given.sum(axis=0) > 1
        squares += np.where(several, (centred**2).sum(axis=0), 0.0)
        freedom += np.where(several, given.sum(axis=0) - 1, 0)
        range_ = np.maximum(range_, np.ptp(centred, axis=0))
    again = freedom > 0
    range_ = without_noise(range_)
    yield _Measured(
        judge=judge.judge,
        axis=judge.axis,
        measure="sd",
        value=without_noise(squares),
        weight=freedom,
        bounds=(0.0, 8.0),
        is_variance=True,
    )
    yield _share("identical", judge.judge, judge.axis, range_ == 0, again)
    yield _share("within_one", judge.judge, judge.axis, range_ <= ONE_POINT, again)


def _share(measure: str, judge: str, axis: str, counts: np.ndarray, among: np.ndarray) -> _Measured:
    return _Measured(
        judge=judge,
        axis=axis,
        measure=measure,
        value=counts.astype(np.float64),
        weight=among.astype(np.float64),
        bounds=(0.0, 1.0),
        is_rate=True,
    )


def _estimated(columns: Columns, measured: Sequence[_Measured], settings: Settings) -> list[Behaviour]:
    """Every measure that some edit has: for everyone, by group, and each group against the reference or the rest."""
    scales = {axis.name for axis in rubric.load().axes.values() if axis.is_scale}
    measured = [
        part for part in measured if part.weight.any() and (part.axis in scales or part.measure not in _IN_POINTS)
    ]
    quantities = [part.collapsed(columns) for part in measured]
    plans = [design.everyone(columns)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    by_measure: list[list[Behaviour]] = [[] for _ in measured]
    for plan in plans:
        found = outcomes(plan, quantities, replace(settings, prompts="fixed"))
        bands = null_bands(plan, quantities, settings)
        for place, (part, by_comparison, band) in enumerate(zip(measured, found, bands, strict=True)):
            for comparison, outcome in zip(plan.comparisons, by_comparison, strict=True):
                # The difference of two roots is not the root of a difference.
                if not (part.is_variance and comparison.against is not None):
                    p = band.omnibus if band else None
                    by_measure[place].append(_behaviour(columns, plan, part, comparison, outcome, p))
    return [behaviour for behaviours in by_measure for behaviour in behaviours]


def _behaviour(
    columns: Columns,
    plan: Plan,
    part: _Measured,
    comparison: SideComparison,
    outcome: Interval | NotEstimable,
    groups_p: float | None,
) -> Behaviour:
    seen = (part.weight > 0) & comparison.everyone[columns.rank]
    return Behaviour(
        judge=part.judge,
        against=part.against,
        axis=part.axis,
        measure=part.measure,
        scope=comparison.scope,
        factor=plan.factor,
        group=comparison.group,
        outcome=_root(outcome) if part.is_variance and isinstance(outcome, Interval) else outcome,
        groups_p=groups_p,
        portraits=len(np.unique(columns.rank[seen])),
        edits=int(seen.sum()),
    )


def _root(variance: Interval) -> Interval:
    def root(limit: float) -> float:
        return round(math.sqrt(limit), _SD_DECIMALS) if limit > NOISE else 0.0

    return replace(variance, value=root(variance.value), low=root(variance.low), high=root(variance.high))
