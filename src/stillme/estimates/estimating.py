"""Estimates from rows: every mean and rate, by group and between groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from stillme.core.errors import UnknownName
from stillme.core.types import TIMES, Estimate, Interval, NotEstimable, Prompt, Scope, Settings
from stillme.estimates import design
from stillme.estimates.design import REST, Plan, SideComparison
from stillme.estimates.intervals import Outcome, largest_gaps, outcomes
from stillme.estimates.permutation import NullBand, null_bands
from stillme.estimates.quantities import DECIMALS, Columns, Quantity
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.unanswered import SureGap, sure_gaps

_SCOPES: tuple[Scope, ...] = ("all", "group", "disparity", "contrast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disparity(Estimate):
    """max - min over the groups of a factor.

    Of several noisy groups one is always highest and one lowest, so max - min is above zero even when no group differs.
    It is therefore always given with its null band: the same number under permuted labels.
    """

    null: NullBand | None = None
    highest: str = ""
    """The group with the largest value."""
    lowest: str = ""
    levels: tuple[str, ...] = field(default=())
    """The groups that have an estimate."""
    units: int = 0
    """Rated units of the group that has fewest: portraits, or identities behind several."""
    sure: SureGap | None = field(default=None, metadata={"cell": False})
    """For a rate with abstentions; tables show what follows from it: a finding's word."""


def estimate(edits: Edits, scores: Sequence[Scores], settings: Settings) -> list[Estimate]:
    """Every mean and named rate, for all, by group, and between groups, by editor, arm and judge.

    The portrait, or the identity behind several, is the unit of every interval. The same rows give the same numbers,
    in whatever order they come and whichever other quantities are asked for.
    """
    columns = Columns.of(edits)
    return estimate_all(columns, list(columns.quantities(scores, prompts=settings.prompts == "sample")), settings)


def estimate_all(
    columns: Columns, quantities: Sequence[Quantity], settings: Settings, *, prompts: str = ""
) -> list[Estimate]:
    """The same, for quantities that are collapsed already; `prompts` names what they are limited to."""
    plans = [design.everyone(columns)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    by_quantity: list[list[Estimate]] = [[] for _ in quantities]
    for plan in plans:
        found = outcomes(plan, quantities, settings)
        largest = disparities(plan, quantities, found, settings, prompts=prompts) if plan.factor else []
        for place, (rows, quantity) in enumerate(zip(by_quantity, quantities, strict=True)):
            rows += _of_plan(plan, quantity, found[place], prompts)
            rows += largest[place : place + 1]
    # Every quantity has the same rows, so these are put in order once.
    order = sorted(range(len(by_quantity[0])), key=lambda row: order_of(by_quantity[0][row])) if by_quantity else []
    return [rows[row] for rows in sorted(by_quantity, key=lambda rows: order_of(rows[0])) for row in order]


def gap(
    edits: Edits,
    scores: Sequence[Scores],
    *,
    quantity: str,
    editor: str,
    factor: str,
    level: str,
    reference: str | None = None,
    judge: str = "",
    arm: str = "baseline",
    settings: Settings | None = None,
) -> Interval | NotEstimable:
    """One contrast: a level against the reference level, or against the rest if there is none.

    An empty `judge` takes the first, by name, that gives the quantity.
    """
    chosen = settings or Settings(factors=(factor,))
    chosen = chosen.comparing(factor, reference={factor: reference} if reference else {})
    columns = Columns.of(edits)
    offered = [
        offer
        for offer in columns.quantities(scores, prompts=chosen.prompts == "sample")
        if offer.editor == editor and offer.arm == arm
    ]
    matching = [offer for offer in offered if offer.name == quantity and (not judge or offer.judge == judge)]
    if not matching:
        known = sorted({offer.name for offer in offered})
        raise UnknownName.among("quantity", quantity, known, f"{editor} ({arm}) has {', '.join(known) or 'no rows'}.")
    plan = design.by_factor(columns, factor, chosen)
    wanted = f"{level} - {reference or REST}"
    place = next((place for place, comparison in enumerate(plan.comparisons) if comparison.group == wanted), None)
    if place is None:
        if level in plan.levels or level in plan.too_small:
            return NotEstimable(reason=f"{wanted}: one side has fewer than two {plan.noun}")
        raise UnknownName.among("level", level, plan.levels, f"{factor} has {', '.join(plan.levels)}.")
    # The whole plan, because the correlation of a portrait's edits is pooled over its groups.
    return outcomes(plan, matching[:1], chosen)[0][place]


def _of_plan(plan: Plan, quantity: Quantity, found: Sequence[Outcome], prompts: str) -> list[Estimate]:
    too_small = [
        SideComparison(scope="group" if plan.factor else "all", group=name, members=members)
        for name, members in plan.too_small.items()
    ]
    reasons = [NotEstimable(reason=f"only {_few(group.members)} in this group") for group in too_small]
    compared = [*plan.comparisons, *too_small]
    return [
        Estimate(
            scope=comparison.scope,
            factor=plan.factor,
            group=comparison.group,
            outcome=outcome,
            prompts=prompts,
            **counted,
        )
        for comparison, outcome, counted in zip(
            compared,
            (*found, *reasons),
            quantity.within([comparison.everyone for comparison in compared]),
            strict=True,
        )
    ]


def _few(members: Flags) -> str:
    count = int(members.sum())
    return "1 portrait" if count == 1 else f"{count} portraits of one identity"


def disparities(
    plan: Plan,
    quantities: Sequence[Quantity],
    found: Sequence[Sequence[Outcome]],
    settings: Settings,
    *,
    prompts: str = "",
) -> list[Disparity]:
    """For each quantity max - min over the groups that have an estimate, of which `found` has the intervals."""
    gaps = largest_gaps(plan, quantities, settings)
    bands = null_bands(plan, quantities, settings)
    sure = sure_gaps(plan, quantities, settings)
    return [
        _disparity(plan, *of_quantity, prompts)
        for of_quantity in zip(quantities, found, gaps, bands, sure, strict=True)
    ]


def _disparity(
    plan: Plan,
    quantity: Quantity,
    found: Sequence[Outcome],
    gap: Outcome,
    band: NullBand | None,
    sure: SureGap | None,
    prompts: str,
) -> Disparity:
    values = {
        # Rounded, so that of groups that are tied the first is named, on every processor.
        comparison.group: (round(outcome.value, DECIMALS), comparison.members)
        for comparison, outcome in zip(plan.comparisons[: len(plan.levels)], found, strict=False)
        if isinstance(outcome, Interval)
    }
    members = np.zeros(len(quantity.counts), dtype=np.bool_)
    for _, own in values.values():
        members |= own
    known = isinstance(gap, Interval)
    return Disparity(
        scope="disparity",
        factor=plan.factor,
        group="",
        outcome=gap,
        prompts=prompts,
        null=band if known else None,
        highest=max(values, key=lambda level: values[level][0]) if known else "",
        lowest=min(values, key=lambda level: values[level][0]) if known else "",
        levels=tuple(values),
        units=min((plan.units(own & (quantity.counts > 0)) for _, own in values.values()), default=0),
        sure=sure if known else None,
        **quantity.within([members])[0],
    )


def order_of(row: Estimate) -> tuple[str | int, ...]:
    """The order of tables: by editor and quantity, from everyone down to contrasts."""
    return (row.editor, row.arm, row.judge, row.quantity, row.factor, _SCOPES.index(row.scope), row.group)


By = Literal["prompt", "subcategory", "category"]


def by_prompt(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    by: By = "prompt",
    groups: bool = False,
) -> list[Estimate]:
    """Every mean and rate for each prompt, subcategory or category; with `groups`, also by group and between groups.

    `Estimate.prompts` names it. One prompt says nothing about others, so prompts are never a sample here.
    """
    wanted = replace(settings, prompts="fixed")
    if not groups:
        wanted = wanted.comparing()
    names = [_name(prompt, by) for prompt in edits.prompts]
    estimates: list[Estimate] = []
    for kind in sorted(set(names)):
        inside = np.array([name == kind for name in names], dtype=np.bool_)[edits.prompt]
        if inside.any():
            columns = Columns.of(edits.where(inside))
            quantities = list(columns.quantities([score.where(inside) for score in scores]))
            estimates += estimate_all(columns, quantities, wanted, prompts=kind)
    return estimates


def by_intersection(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    factors: Sequence[str],
) -> list[Estimate]:
    """Every mean and rate for intersections of attributes, such as `race × gender`: by group and between groups."""
    known = {name for portrait in edits.portraits for name in portrait.attributes}
    for factor in factors:
        if factor not in known:
            raise UnknownName.among("factor", factor, known, f"Portraits have {', '.join(sorted(known)) or 'none'}.")
    crossed = settings.comparing(TIMES.join(factors))
    return [row for row in estimate(edits.crossed(factors), scores, crossed) if row.factor]


def at_every_cut(
    edits: Edits, scores: Sequence[Scores], settings: Settings, *, axes: Collection[str] | None = None
) -> list[Estimate]:
    """The rates at every cut of every 1–5 scale, such as `race_change>=2`, in place of the named ones."""
    columns = Columns.of(edits)
    chosen = [score for score in scores if axes is None or score.axis in axes]
    rates = columns.quantities(chosen, every_cut=True, prompts=settings.prompts == "sample")
    return estimate_all(columns, list(rates), settings)


def _name(prompt: Prompt, by: By) -> str:
    match by:
        case "prompt":
            return prompt.id
        case "subcategory":
            return prompt.subcategory
        case "category":
            return prompt.category
