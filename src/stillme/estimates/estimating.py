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


def estimate_all(columns: Columns, quantities: Sequence[Quantity], settings: Settings) -> list[Estimate]:
    """The same, for quantities that are collapsed already."""
    plans = [design.everyone(columns, settings)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    estimates: list[Estimate] = []
    for plan in plans:
        resampled = list(resample(plan, quantities, settings))
        bands = list(disparity.null_bands(plan, quantities, resampled, settings))
        for quantity, result, band in zip(quantities, resampled, bands, strict=True):
            estimates += _of_plan(plan, quantity, result, band, settings)
    return sorted(estimates, key=order_of)


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
    plan: Plan, quantity: Quantity, resampled: Resampled, band: NullBand | None, settings: Settings
) -> list[Estimate]:
    estimates = [
        _estimate(plan, quantity, comparison, outcome)
        for comparison, outcome in zip(plan.comparisons, resampled.outcomes, strict=True)
    ]
    for name, members in plan.too_small.items():
        group = Comparison(scope="group" if plan.factor else "all", group=name, members=members)
        count = int(members.sum())
        portraits = "1 portrait" if count == 1 else f"{count} portraits of one block"
        estimates.append(_estimate(plan, quantity, group, NotEstimable(reason=f"only {portraits} in this group")))
    if plan.factor:
        estimates.append(disparity_of(plan, quantity, resampled, band, settings))
    return estimates


def _estimate(plan: Plan, quantity: Quantity, comparison: Comparison, outcome: Interval | NotEstimable) -> Estimate:
    members = comparison.everyone
    return Estimate(
        quantity=quantity.name,
        editor=quantity.editor,
        arm=quantity.arm,
        judge=quantity.judge,
        scope=comparison.scope,
        factor=plan.factor,
        group=comparison.group,
        outcome=outcome,
        portraits=_portraits(quantity, members),
        edits=int(quantity.counts[members].sum()),
        excluded=quantity.excluded_within(members),
    )


def disparity_of(
    plan: Plan, quantity: Quantity, resampled: Resampled, band: NullBand | None, settings: Settings
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
        portraits=_portraits(quantity, members),
        edits=int(quantity.counts[members].sum()),
        excluded=quantity.excluded_within(members),
        null=band if known else None,
        highest=plan.levels[int(np.nanargmax(values))] if known else "",
        lowest=plan.levels[int(np.nanargmin(values))] if known else "",
        levels=tuple(name for name, keep in zip(plan.levels, usable, strict=True) if keep),
    )


def _portraits(quantity: Quantity, members: Flags) -> int:
    return int(np.count_nonzero(quantity.counts[members]))


def order_of(row: Estimate) -> tuple[str | int, ...]:
    """The order of tables: by editor and quantity, from everyone down to contrasts."""
    return (row.editor, row.arm, row.judge, row.quantity, row.factor, _SCOPES.index(row.scope), row.group)
