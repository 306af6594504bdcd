"""Each group against a reference, against the rest, or against every other: difference, ratio and dominance."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stillme.estimates import design
from stillme.estimates.design import REST, Comparison, Plan
from stillme.estimates.dominance import delta_of, dominance
from stillme.estimates.permuting import Chance, Sides, chances
from stillme.estimates.quantities import Columns, Measured, Quantity
from stillme.estimates.resampling import resample
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.settings import Settings
from stillme.types import Estimate, Interval, NotEstimable

Measure = Literal["difference", "ratio", "cliffs_delta"]
Against = Literal["reference", "rest", "pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Estimate):
    """One group against another side."""

    measure: Measure
    """`difference` of the means or rates; `ratio` of the rates (1 is equal); `cliffs_delta`: how much more often an
    edit of the group scores above one of the other side than below it, from -1 to 1."""
    level: str
    against: str
    """Another level, or `rest`."""
    chance: Chance | None = None
    """The permutation test of the difference; None where the sides cannot be compared."""


def contrasts(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    against: Collection[Against] = ("reference", "rest"),
    measures: Collection[Measure] = ("difference", "ratio", "cliffs_delta"),
    quantities: Collection[str] | None = None,
) -> list[Contrast]:
    """Set every group of every factor against the declared reference, the rest, or each other group.

    `reference` gives nothing for a factor without a declared one. Ratios are of rates only, dominance of means
    only. `quantities` limits the work to these names.
    """
    columns = Columns.of(edits)
    measured = [each for each in columns.measured(scores) if quantities is None or each.name in quantities]
    collapsed = [columns.collapse(each, prompts=settings.prompts == "sample") for each in measured]
    found: list[Contrast] = []
    for factor in settings.factors:
        reference = settings.reference.get(factor)
        plan = design.by_factor(columns, factor, reference)
        for kind in against:
            pairs = _pairs(plan, kind, reference)
            if pairs:
                found += _family(columns, plan, measured, collapsed, pairs, measures, settings)
    return found


def _pairs(plan: Plan, kind: Against, reference: str | None) -> list[tuple[str, str]]:
    levels = plan.levels
    if kind == "rest":
        return [(level, REST) for level in levels] if len(levels) > 1 else []
    if kind == "reference":
        return [(level, reference) for level in levels if level != reference] if reference in levels else []
    return [(one, other) for place, one in enumerate(levels) for other in levels[place + 1 :]]


def _family(
    columns: Columns,
    plan: Plan,
    measured: Sequence[Measured],
    collapsed: Sequence[Quantity],
    pairs: Sequence[tuple[str, str]],
    measures: Collection[Measure],
    settings: Settings,
) -> Iterator[Contrast]:
    groups = [each for each in plan.comparisons if each.scope == "group"]
    members = {each.group: each.members for each in groups}
    compared = [_comparison(members, *pair) for pair in pairs]
    sides = [_sides(plan, *pair) for pair in pairs]
    luck = list(chances(plan, collapsed, sides, settings))
    for measure in measures:
        chosen, given = _for(measure, columns, measured, collapsed, compared)
        scaled = [replace(each, scale="log ratio" if measure == "ratio" else "difference") for each in compared]
        # Groups stay in the plan: how alike a portrait's edits are is pooled over them.
        wanted = replace(plan, comparisons=(*groups, *scaled))
        for place, quantity, one in zip(chosen, given, resample(wanted, given, settings), strict=True):
            outcomes = one.outcomes[len(groups) :]
            for pair, comparison, outcome, chance in zip(pairs, compared, outcomes, luck[place], strict=True):
                final = _in_own_unit(measure, quantity, comparison, outcome)
                yield _contrast(plan, collapsed[place], comparison, pair, measure, final, chance)


def _for(
    measure: Measure,
    columns: Columns,
    measured: Sequence[Measured],
    collapsed: Sequence[Quantity],
    compared: Sequence[Comparison],
) -> tuple[list[int], list[Quantity]]:
    """Which quantities a measure is for, as what is resampled for it."""
    chosen = [
        place for place, each in enumerate(collapsed) if measure == "difference" or each.is_rate == (measure == "ratio")
    ]
    if measure != "cliffs_delta":
        return chosen, [collapsed[place] for place in chosen]
    return chosen, [dominance(columns, measured[place], collapsed[place], compared) for place in chosen]


def _comparison(members: Mapping[str, Flags], level: str, against: str) -> Comparison:
    everyone = np.logical_or.reduce(list(members.values()))
    other = everyone & ~members[level] if against == REST else members[against]
    return Comparison(scope="contrast", group=f"{level} - {against}", members=members[level], against=other)


def _sides(plan: Plan, level: str, against: str) -> Sides:
    mine = np.array([name == level for name in plan.levels], dtype=np.bool_)
    return mine, ~mine if against == REST else np.array([name == against for name in plan.levels], dtype=np.bool_)


def _in_own_unit(
    measure: Measure, quantity: Quantity, comparison: Comparison, outcome: Interval | NotEstimable
) -> Interval | NotEstimable:
    if isinstance(outcome, NotEstimable) or measure == "difference":
        return outcome
    if measure == "ratio":
        value, low, high = (math.exp(each) for each in (outcome.value, outcome.low, outcome.high))
        return replace(outcome, value=value, low=low, high=high)
    return delta_of(outcome, _fewer_portraits(quantity, comparison))


def _fewer_portraits(quantity: Quantity, comparison: Comparison) -> int:
    sides = (comparison.members, comparison.members if comparison.against is None else comparison.against)
    return min(int(np.count_nonzero(quantity.counts[side])) for side in sides)


def _contrast(
    plan: Plan,
    quantity: Quantity,
    comparison: Comparison,
    pair: tuple[str, str],
    measure: Measure,
    outcome: Interval | NotEstimable,
    chance: Chance | None,
) -> Contrast:
    members = comparison.everyone
    return Contrast(
        quantity=quantity.name,
        editor=quantity.editor,
        arm=quantity.arm,
        judge=quantity.judge,
        scope="contrast",
        factor=plan.factor,
        group=comparison.group,
        outcome=outcome,
        portraits=int(np.count_nonzero(quantity.counts[members])),
        edits=int(quantity.counts[members].sum()),
        excluded=quantity.excluded_within(members),
        measure=measure,
        level=pair[0],
        against=pair[1],
        chance=chance if isinstance(outcome, Interval) else None,
    )
