"""Estimates from rows: every mean and rate, by group and between groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stillme.errors import UnknownName
from stillme.estimates import design, disparity
from stillme.estimates.bootstrap import Resampled
from stillme.estimates.design import REST, Comparison, Plan
from stillme.estimates.disparity import Disparity, NullBand
from stillme.estimates.quantities import Columns, Quantity
from stillme.estimates.resampling import resample
from stillme.estimates.rounding import DECIMALS
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.settings import Settings
from stillme.types import Estimate, Interval, NotEstimable, Scope

_SCOPES: tuple[Scope, ...] = ("all", "group", "disparity", "contrast")


def estimate(edits: Edits, scores: Sequence[Scores], settings: Settings) -> list[Estimate]:
    """Every mean and named rate, for all, by group, and between groups, by editor, arm and judge.

    The portrait is the unit of every interval. The same rows and seed give the same numbers, in whatever
    order the rows come and whichever other quantities are asked for.
    """
    columns = Columns.of(edits)
    return estimate_all(columns, list(columns.quantities(scores, prompts=settings.prompts == "sample")), settings)


def estimate_all(
    columns: Columns, quantities: Sequence[Quantity], settings: Settings, *, prompts: str = ""
) -> list[Estimate]:
    """The same, for quantities that are collapsed already; `prompts` names what they are limited to."""
    plans = [design.everyone(columns, settings)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    by_quantity: list[list[Estimate]] = [[] for _ in quantities]
    for plan in plans:
        resampled = list(resample(plan, quantities, settings))
        bands = list(disparity.null_bands(plan, quantities, resampled, settings))
        for rows, quantity, result, band in zip(by_quantity, quantities, resampled, bands, strict=True):
            rows += _of_plan(plan, quantity, result, band, settings, prompts)
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
    return contrast_of(columns, matching[0], chosen, factor=factor, level=level)


def contrast_of(
    columns: Columns, quantity: Quantity, settings: Settings, *, factor: str, level: str
) -> Interval | NotEstimable:
    """One contrast of a quantity that is collapsed already: against the reference of `settings`, or the rest."""
    return contrasts_of(columns, [quantity], settings, factor=factor, level=level)[0]


def contrasts_of(
    columns: Columns, quantities: Sequence[Quantity], settings: Settings, *, factor: str, level: str
) -> list[Interval | NotEstimable]:
    """The same contrast of several quantities."""
    if not quantities:
        return []
    reference = settings.reference.get(factor)
    plan = design.by_factor(columns, factor, settings)
    wanted = f"{level} - {reference or REST}"
    place = next((place for place, comparison in enumerate(plan.comparisons) if comparison.group == wanted), None)
    if place is None:
        if level in plan.levels or level in plan.too_small:
            return [NotEstimable(reason=f"{wanted}: one side has fewer than two {plan.noun}")] * len(quantities)
        raise UnknownName.among("level", level, plan.levels, f"{factor} has {', '.join(plan.levels)}.")
    # The whole plan, because the correlation of a portrait's edits is pooled over its groups.
    return [resampled.outcomes[place] for resampled in resample(plan, quantities, settings)]


def _of_plan(
    plan: Plan, quantity: Quantity, resampled: Resampled, band: NullBand | None, settings: Settings, prompts: str
) -> list[Estimate]:
    too_small = [
        Comparison(scope="group" if plan.factor else "all", group=name, members=members)
        for name, members in plan.too_small.items()
    ]
    reasons = [NotEstimable(reason=f"only {_few(group.members)} in this group") for group in too_small]
    compared = [*plan.comparisons, *too_small]
    estimates = [
        Estimate(
            quantity=quantity.name,
            editor=quantity.editor,
            arm=quantity.arm,
            judge=quantity.judge,
            scope=comparison.scope,
            factor=plan.factor,
            group=comparison.group,
            outcome=outcome,
            prompts=prompts,
            **counted,
        )
        for comparison, outcome, counted in zip(
            compared,
            (*resampled.outcomes, *reasons),
            quantity.within([comparison.everyone for comparison in compared]),
            strict=True,
        )
    ]
    if plan.factor:
        estimates.append(disparity_of(plan, quantity, resampled, band, settings, prompts=prompts))
    return estimates


def _few(members: Flags) -> str:
    count = int(members.sum())
    return "1 portrait" if count == 1 else f"{count} portraits of one block"


def disparity_of(
    plan: Plan,
    quantity: Quantity,
    resampled: Resampled,
    band: NullBand | None,
    settings: Settings,
    *,
    prompts: str = "",
) -> Disparity:
    """Max - min over the groups that have an estimate."""
    usable = disparity.comparable(resampled)
    members = np.zeros(len(quantity.counts), dtype=np.bool_)
    for comparison, keep in zip(plan.comparisons, usable, strict=False):
        members |= comparison.members & keep
    outcome = disparity.interval(plan, quantity, resampled, settings)
    known = isinstance(outcome, Interval)
    # Rounded, so that of groups that are tied the first is named, on every processor.
    values = np.where(usable, np.round(resampled.values, DECIMALS), np.nan)
    return Disparity(
        quantity=quantity.name,
        editor=quantity.editor,
        arm=quantity.arm,
        judge=quantity.judge,
        scope="disparity",
        factor=plan.factor,
        group="",
        outcome=outcome,
        prompts=prompts,
        null=band if known else None,
        highest=plan.levels[int(np.nanargmax(values))] if known else "",
        lowest=plan.levels[int(np.nanargmin(values))] if known else "",
        levels=tuple(name for name, keep in zip(plan.levels, usable, strict=True) if keep),
        **quantity.within([members])[0],
    )


def order_of(row: Estimate) -> tuple[str | int, ...]:
    """The order of tables: by editor and quantity, from everyone down to contrasts."""
    return (row.editor, row.arm, row.judge, row.quantity, row.factor, _SCOPES.index(row.scope), row.group)
