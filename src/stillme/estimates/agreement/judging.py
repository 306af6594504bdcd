"""A judge against people, on the edits that both rated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.types import Interval, NotEstimable, Scope
from stillme.estimates import design
from stillme.estimates.agreement.measures import Measure, without_noise
from stillme.estimates.agreement.raters import interval, ratings_of
from stillme.estimates.design import Plan
from stillme.estimates.intervals import Outcome, outcomes
from stillme.estimates.quantities import NOISE, Columns, Floats, Quantity, sums_by
from stillme.estimates.rows import Edits, Flags, RatingState, Scores, Settings

MEASURES = ("bias", "mae", "within_one", "exact", "pearson", "spearman")
"""Judge minus people; its absolute size; share within one point; share equal; correlation of scores and of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstPeople:
    """One number of a judge against people on one axis."""

    axis: str
    judge: str
    people: str
    editor: str
    """Empty for all editors."""
    measure: str
    """One of `MEASURES`."""
    scope: Scope
    factor: str
    group: str
    """A level, `level - rest`, or empty for everyone."""
    outcome: Interval | NotEstimable
    portraits: int
    edits: int


def mean_of(people: Sequence[Scores], name: str = "people") -> Scores:
    """Several raters of one axis as one: the mean of those who rated; of answers that name somebody, the majority's."""
    axes = {scores.axis for scores in people}
    if len(axes) != 1:
        raise StillmeError(f"These raters have the axes {', '.join(sorted(axes)) or 'none'}; pass raters of one axis.")
    rated = np.stack([scores.state == RatingState.RATED for scores in people])
    values = np.where(rated, np.stack([scores.value for scores in people]), 0.0)
    ratings = rated.sum(axis=0)
    mean: Floats = np.where(ratings > 0, values.sum(axis=0) / np.maximum(ratings, 1), np.nan)
    axis = axes.pop()
    if rubric.load().is_nominal(axis):
        decided = [np.nan if np.isnan(value) else rubric.majority(value) for value in mean]
        mean = np.array([np.nan if value is None else value for value in decided])
    state = np.where(np.isnan(mean), RatingState.MISSING, RatingState.RATED).astype(np.int32)
    return Scores(judge=name, axis=axis, value=without_noise(mean), state=state)


def against_people(
    edits: Edits, judge: Scores, people: Scores, settings: Settings, *, by_editor: bool = True
) -> list[AgainstPeople]:
    """Bias, error and agreement of a judge: for all, by group, each group against the rest, and by editor.

    The contrast of the bias matters most for gaps: it is the part of a gap that comes from the judge.
    """
    if judge.axis != people.axis:
        raise StillmeError(f"The judge answers {judge.axis!r} and people {people.axis!r}; pass two scores of one axis.")
    columns = Columns.of(edits)
    table = ratings_of(columns, [judge, people])
    both: Flags = np.isfinite(table[:, 0]) & np.isfinite(table[:, 1])
    chosen: list[tuple[str, Flags]] = [("", both)]
    if by_editor and len(edits.editors) > 1:
        editor_codes = edits.editor[columns.order]
        chosen += [(name, both & (editor_codes == edits.editors.index(name))) for name in sorted(edits.editors)]
    everyone = design.everyone(columns)
    plans = [everyone, *(design.by_factor(columns, factor, settings) for factor in settings.factors)]
    rated = [_Rated.of(columns, table, rows, editor, judge.axis) for editor, rows in chosen if rows.any()]
    means = [quantity for part in rated for quantity in part.means.values()]
    found = [iter(outcomes(plan, means, replace(settings, prompts="fixed"))) for plan in plans]
    return [
        result
        for part in rated
        for plan, of_plan in zip(plans, found, strict=True)
        for result in _of_plan(plan, part, of_plan, (judge, people), everyone, settings)
    ]


@dataclass(frozen=True, slots=True)
class _Rated:
    """The edits of an editor that both rated."""

    editor: str
    rank: NDArray[np.intp]
    pairs: Floats
    """Edits × judge and people."""
    means: Mapping[str, Quantity]
    """The measures that are means or rates."""
    is_nominal: bool

    @classmethod
    def of(cls, columns: Columns, table: Floats, rows: Flags, editor: str, axis: str) -> _Rated:
        rank, pairs = columns.rank[rows], table[rows]
        error = pairs[:, 0] - pairs[:, 1]
        size = len(columns.portraits)
        exact = _quantity(rank, (np.abs(error) <= 1e-9).astype(np.float64), size, is_rate=True)
        if rubric.load().is_nominal(axis):
            # Persons have no distance: two answers are the same or not.
            return cls(editor, rank, pairs, {"exact": exact}, is_nominal=True)
        means = {
            "bias": _quantity(rank, error, size, is_rate=False),
            "mae": _quantity(rank, np.abs(error), size, is_rate=False),
            "within_one": _quantity(rank, (np.abs(error) <= 1 + 1e-9).astype(np.float64), size, is_rate=True),
            "exact": exact,
        }
        return cls(editor, rank, pairs, means, is_nominal=False)


def _of_plan(
    plan: Plan,
    rated: _Rated,
    found: Iterator[Sequence[Outcome]],
    who: tuple[Scores, Scores],
    everyone: Plan,
    settings: Settings,
) -> list[AgainstPeople]:
    """One editor's numbers; `found` goes on with its means."""
    judge, people = who
    counted = rated.means["exact"].within([comparison.everyone for comparison in plan.comparisons])
    results: list[AgainstPeople] = []

    def add(measure: str, place: int, outcome: Interval | NotEstimable) -> None:
        comparison = plan.comparisons[place]
        results.append(
            AgainstPeople(
                axis=judge.axis,
                judge=judge.judge,
                people=people.judge,
                editor=rated.editor,
                measure=measure,
                scope=comparison.scope,
                factor=plan.factor,
                group=comparison.group,
                outcome=outcome,
                portraits=counted[place]["portraits"],
                edits=counted[place]["edits"],
            )
        )

    for measure in rated.means:
        for place, outcome in enumerate(next(found)):
            add(measure, place, outcome)
    for place, comparison in enumerate(plan.comparisons):
        if comparison.against is None and not rated.is_nominal:
            inside = comparison.members[rated.rank]
            for measure in ("pearson", "spearman"):
                add(measure, place, _correlated(everyone, rated.rank[inside], rated.pairs[inside], measure, settings))
    return results


def _correlated(
    everyone: Plan, rank: NDArray[np.intp], pairs: Floats, measure: str, settings: Settings
) -> Interval | NotEstimable:
    if len(pairs) < 3:
        return NotEstimable(reason="fewer than three edits are rated by both")
    if (np.ptp(pairs, axis=0) == 0).any():
        return NotEstimable(reason="one of the two always gives the same score")
    if measure == "spearman":
        pairs = np.stack([_mid_ranks(pairs[:, 0]), _mid_ranks(pairs[:, 1])], axis=1)
    x, y = (pairs - pairs.mean(axis=0)).T
    moments = np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)
    return interval(Measure(moments, _correlation), rank, everyone, settings, is_correlation=True)


def _correlation(total: Floats) -> Floats:
    count, x, y, xx, yy, xy = total.T
    with np.errstate(divide="ignore", invalid="ignore"):
        variation_x, variation_y = xx - x * x / count, yy - y * y / count
        # What is left where the terms cancel is rounding error.
        varies = (variation_x > NOISE * xx) & (variation_y > NOISE * yy)
        return np.where(varies, (xy - x * y / count) / np.sqrt(variation_x * variation_y), np.nan)


def _mid_ranks(values: Floats) -> Floats:
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2.0


def _quantity(rank: np.ndarray, value: Floats, size: int, *, is_rate: bool) -> Quantity:
    return Quantity(
        name="",
        editor="",
        arm="",
        judge="",
        sums=sums_by(rank, value, size),
        counts=np.bincount(rank, minlength=size).astype(np.float64),
        squares=sums_by(rank, value * value, size),
        excluded={},
        bounds=(0.0, 1.0) if is_rate else None,
        is_rate=is_rate,
    )
