"""A judge against people, means corrected by people, and which edits people should rate.

- `against_people`: a judge's bias, error and agreement, on the edits that both rated.
- `corrected` (prediction-powered inference): a judge rates every edit, people a random part. The judge's mean over all
  is corrected by the difference between people and judge on that part. The judge gets the weight that minimises the
  variance over everyone (Angelopoulos and others, 2023, tuned as in 2024): a useless judge gets weight 0, and people
  alone remain. Groups share that weight: tuned on a dozen portraits it would fit their noise, and their intervals would
  be too narrow. The standard error is between portraits or their sets, because errors on edits of one portrait are
  correlated. Where edits were drawn with known, unequal chances, each counts with the inverse of its chance.
- `draw_unequally`: a corrected mean is uncertain where people and the judge differ, and models that disagree with one
  another are the sign of that. So edits are drawn with chances that grow with their disagreement, within groups, so
  that every group gets its share.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.rubric import rate_of
from stillme.core.types import Estimate, Interval, NotEstimable, Scope, Settings
from stillme.estimates import design
from stillme.estimates.agreement import Measure, jackknife_interval, ratings_of, without_noise
from stillme.estimates.design import Plan, SideComparison
from stillme.estimates.intervals import Outcome, adjusted, distance, outcomes, t_quantile, wilson_limits
from stillme.estimates.quantities import NOISE, Columns, Floats, Quantity, by_unit, interval, meets, rounded, sums_by
from stillme.estimates.rows import Edits, Flags, RatingState, Scores

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
    """Several raters of one axis as one: the mean of those who rated; of answers that name a person, the majority's."""
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


def with_people(scores: Sequence[Scores], people: Collection[str]) -> Iterator[tuple[Scores, Scores]]:
    """Every other judge's scores, each with the mean of these people's on the same axis."""
    for axis in dict.fromkeys(score.axis for score in scores if score.judge in people):
        rated = mean_of([score for score in scores if score.axis == axis and score.judge in people])
        yield from ((score, rated) for score in scores if score.axis == axis and score.judge not in people)


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
    return jackknife_interval(Measure(moments, _correlation), rank, everyone, settings, is_correlation=True)


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
    what they stand for is unknown.
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
    comparison: SideComparison,
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


_MOST = 4.0
"""How many times likelier the most disputed edits are drawn than the least: larger weights would cost their gain."""


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Rows for people, and with which chance each row was drawn."""

    rows: NDArray[np.intp]
    chances: Floats
    """Per row, 0 where it could not be drawn; what `corrected` takes."""


def disagreement(answers: Sequence[Floats]) -> Floats:
    """The standard deviation of each row's answers; NaN where fewer than two answered."""
    if len(answers) < 2:
        raise StillmeError("Disagreement needs the scores of at least two judges on one axis, or of one asked twice.")
    table = np.stack(answers)
    apart = np.full(table.shape[1], np.nan)
    several = np.count_nonzero(~np.isnan(table), axis=0) >= 2
    apart[several] = np.nanstd(table[:, several], axis=0)
    return apart


def draw_unequally(apart: Floats, strata: NDArray[np.intp], count: int, stream: np.random.Generator) -> ChosenRows:
    """Draw `count` rows, the same share in every stratum; likelier where `apart` is large.

    Every row can be drawn, or the estimate would be about something else; where `apart` is NaN, with an average chance.
    """
    if not 0 < count <= len(apart):
        raise StillmeError(f"{count:,} cannot be drawn of {len(apart):,}; ask for fewer.")
    chances = informative_chances(apart, strata, count)
    return ChosenRows(_drawn(chances, strata, stream), chances)


def informative_chances(apart: Floats, strata: NDArray[np.intp], count: float) -> Floats:
    """With which chance `draw_unequally` draws each row: they sum to `count`."""
    known = apart[~np.isnan(apart)]
    filled = np.where(np.isnan(apart), known.mean() if len(known) else 0.0, apart)
    highest = float(filled.max())
    parts = 1.0 + (_MOST - 1.0) * filled / highest if highest > NOISE else np.ones(len(filled))
    chances = np.zeros(len(apart))
    for stratum in np.unique(strata).tolist():
        inside = np.flatnonzero(strata == stratum)
        chances[inside] = _chances(parts[inside], count * len(inside) / len(apart))
    return chances


def _chances(parts: Floats, wanted: float) -> Floats:
    """Chances in proportion to the parts that sum to the number wanted; none is above 1."""
    chances = parts * wanted / parts.sum()
    while (chances > 1).any() and (chances < 1).any():
        certain = chances >= 1
        chances[certain] = 1.0
        chances[~certain] *= max(0.0, wanted - np.count_nonzero(certain)) / chances[~certain].sum()
    return np.minimum(chances, 1.0)


def _drawn(chances: Floats, strata: NDArray[np.intp], stream: np.random.Generator) -> NDArray[np.intp]:
    """Systematic sampling in random order within strata: as many as the chances sum to, each with its own."""
    order = np.lexsort((stream.random(len(chances)), strata))
    reached = np.cumsum(chances[order])
    start = stream.random()
    before = np.concatenate([[0.0], reached[:-1]])
    hit = np.floor(reached - start) > np.floor(before - start)
    return np.sort(order[hit])
