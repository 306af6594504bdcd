"""Each group against a reference, the rest, or every other group: difference and ratio."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stillme.core.types import Estimate, Interval, NotEstimable, Settings
from stillme.estimates import design
from stillme.estimates.design import REST, Plan, SideComparison
from stillme.estimates.intervals import Batch, Outcome, Side, batches, method_of, problem_of
from stillme.estimates.permutation import PermutationTest, side_tests
from stillme.estimates.quantities import Columns, Counted, Quantity, interval
from stillme.estimates.rows import Edits, Flags, Scores

Measure = Literal["difference", "ratio"]
Against = Literal["reference", "rest", "pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Estimate):
    """One group against another side."""

    measure: Measure
    """`difference` of the means or rates; `ratio` of the rates (1 is equal)."""
    level: str
    against: str
    """Another level, or `rest`."""
    permutation: PermutationTest | None = None
    """The test of the difference; None where the sides cannot be compared."""


def contrasts(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    against: Collection[Against] = ("reference", "rest"),
    measures: Collection[Measure] = ("difference", "ratio"),
    quantities: Collection[str] | None = None,
) -> list[Contrast]:
    """Compare every group of every factor with the declared reference, the rest, or each other group.

    `reference` gives nothing for a factor without a declared one. Ratios are for rates only.
    `quantities` limits the work to these names.
    """
    columns = Columns.of(edits)
    offered = columns.quantities(scores, prompts=settings.prompts == "sample")
    collapsed = [quantity for quantity in offered if quantities is None or quantity.name in quantities]
    compared: list[Contrast] = []
    for factor in settings.factors:
        reference = settings.reference.get(factor)
        plan = design.by_factor(columns, factor, settings)
        families = [pairs for kind in against if (pairs := _pairs(plan, kind, reference))]
        sides = [[_sides(plan, *pair) for pair in pairs] for pairs in families]
        tested = side_tests(plan, collapsed, sides)
        # A pair that is in several families is compared once.
        distinct = dict.fromkeys(pair for pairs in families for pair in pairs)
        outcomes = _outcomes(plan, collapsed, list(distinct), measures, settings)
        for pairs, tests in zip(families, tested, strict=True):
            compared += _family(plan, collapsed, pairs, tests, measures, outcomes)
    return compared


def _pairs(plan: Plan, kind: Against, reference: str | None) -> list[tuple[str, str]]:
    levels = plan.levels
    if kind == "rest":
        return [(level, REST) for level in levels] if len(levels) > 1 else []
    if kind == "reference":
        return [(level, reference) for level in levels if level != reference] if reference in levels else []
    return [(one, other) for place, one in enumerate(levels) for other in levels[place + 1 :]]


_Known = tuple[SideComparison, Counted, Interval | NotEstimable]
_Outcomes = Mapping[tuple[Measure, int, tuple[str, str]], _Known]
"""By measure, place of the quantity, and pair."""


def _outcomes(
    plan: Plan,
    collapsed: Sequence[Quantity],
    pairs: Sequence[tuple[str, str]],
    measures: Collection[Measure],
    settings: Settings,
) -> _Outcomes:
    if not pairs:
        return {}
    groups = [comparison for comparison in plan.comparisons if comparison.scope == "group"]
    members = {group.group: group.members for group in groups}
    compared = [_comparison(members, *pair) for pair in pairs]
    everyone = [comparison.everyone for comparison in compared]
    counted = [quantity.within(everyone) for quantity in collapsed]
    outcomes: dict[tuple[Measure, int, tuple[str, str]], _Known] = {}
    wanted = replace(plan, comparisons=(*groups, *compared))
    for measure in measures:
        places = [place for place, quantity in enumerate(collapsed) if measure == "difference" or quantity.is_rate]
        quantities = [collapsed[place] for place in places]
        for place, own in zip(places, _measured(measure, wanted, compared, quantities, settings), strict=True):
            for pair, comparison, number, outcome in zip(pairs, compared, counted[place], own, strict=True):
                outcomes[measure, place, pair] = (comparison, number, outcome)
    return outcomes


def _measured(
    measure: Measure,
    plan: Plan,
    compared: Sequence[SideComparison],
    quantities: Sequence[Quantity],
    settings: Settings,
) -> Iterator[list[Outcome]]:
    """For each quantity the outcome of each comparison; groups are in the plan, because their spread is pooled."""
    for batch in batches(plan, quantities, settings):
        by_comparison = [
            batch.outcomes(comparison, settings.confidence)
            if measure == "difference"
            else [
                _ratio(batch, place, batch.sides(comparison), settings.confidence)
                for place in range(len(batch.quantities))
            ]
            for comparison in compared
        ]
        yield from ([column[place] for column in by_comparison] for place in range(len(batch.quantities)))


def _family(
    plan: Plan,
    collapsed: Sequence[Quantity],
    pairs: Sequence[tuple[str, str]],
    tests: Sequence[Sequence[PermutationTest | None]],
    measures: Collection[Measure],
    outcomes: _Outcomes,
) -> Iterator[Contrast]:
    for measure in measures:
        for place in range(len(collapsed)):
            for pair, test in zip(pairs, tests[place], strict=True):
                if known := outcomes.get((measure, place, pair)):
                    yield _contrast(plan, pair, measure, known, test)


def _comparison(members: Mapping[str, Flags], level: str, against: str) -> SideComparison:
    everyone = np.logical_or.reduce(list(members.values()))
    other = everyone & ~members[level] if against == REST else members[against]
    return SideComparison(scope="contrast", group=f"{level} - {against}", members=members[level], against=other)


def _sides(plan: Plan, level: str, against: str) -> tuple[Flags, Flags]:
    one = np.array([name == level for name in plan.levels], dtype=np.bool_)
    return one, ~one if against == REST else np.array([name == against for name in plan.levels], dtype=np.bool_)


def _contrast(
    plan: Plan, pair: tuple[str, str], measure: Measure, known: _Known, test: PermutationTest | None
) -> Contrast:
    comparison, counted, outcome = known
    return Contrast(
        scope="contrast",
        factor=plan.factor,
        group=comparison.group,
        outcome=outcome,
        measure=measure,
        level=pair[0],
        against=pair[1],
        permutation=test if isinstance(outcome, Interval) else None,
        **counted,
    )


def _ratio(batch: Batch, place: int, sides: Sequence[Side], confidence: float) -> Outcome:
    """Donner and Zou's ratio of two rates from each one's own limits."""
    if problem := problem_of(batch, place, sides):
        return NotEstimable(reason=problem)
    (a, b) = (float(side.value[place]) for side in sides)
    if b <= 0:
        return NotEstimable(reason="the rate of the other side is 0, so there is no ratio to it")
    (low_a, high_a), (low_b, high_b) = (tuple(float(end[place]) for end in side.limits(confidence)) for side in sides)
    under, over = high_b * (2 * b - high_b), low_b * (2 * b - low_b)
    high = (a * b + math.sqrt(max(0.0, (a * b) ** 2 - high_a * (2 * a - high_a) * over))) / over
    low = 0.0
    # Where the other side's upper limit is beyond twice its rate, a ratio of 0 is the limit.
    if under > 0 and low_a > 0:
        # Divided by the larger root: the difference of the two terms would cancel where `under` is small.
        low = low_a * (2 * a - low_a) / (a * b + math.sqrt(max(0.0, (a * b) ** 2 - low_a * (2 * a - low_a) * under)))
    return interval(a / b, low, high, confidence=confidence, method=method_of(batch, place, sides))
