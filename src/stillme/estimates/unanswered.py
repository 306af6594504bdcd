"""Gaps that stand whatever the missing answers would have been: the bounds of Horowitz and Manski (2000)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stillme.core.types import Interval, Settings
from stillme.estimates.design import Plan
from stillme.estimates.intervals import Batch, batches, distance
from stillme.estimates.quantities import DECIMALS, Exclusion, Floats, Quantity, interval


@dataclass(frozen=True, slots=True, kw_only=True)
class SureGap:
    """The gap between the two groups that are furthest apart, whatever the missing answers would have been."""

    interval: Interval
    """The gap among what was answered; its limits hold for every value of the missing answers."""
    highest: str
    """Of these two, the group with the higher value."""
    lowest: str
    """The group with the lower value."""


def sure_gaps(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> list[SureGap | None]:
    """For each rate with abstentions.

    Of each pair of groups, the missing answers of one count as 0 and of the other as 1, for the lower limit, and the
    other way round for the upper one: the bounds of Horowitz and Manski (2000), with the limits of both sides joined by
    MOVER, and Bonferroni over all pairs.
    """
    found: list[SureGap | None] = [None] * len(quantities)
    asked = [
        place
        for place, quantity in enumerate(quantities)
        if quantity.is_rate and quantity.by_prompt is None and Exclusion.ABSTAINED in quantity.excluded
    ]
    if len(plan.levels) < 2 or not asked:
        return found
    rates, fewest, most = (
        [_limits_of_levels(batch, settings) for batch in batches(plan, answering, settings)]
        for answering in (
            [quantities[place] for place in asked],
            *([quantities[place].answering(value) for place in asked] for value in (0.0, 1.0)),
        )
    )
    lows, highs = (np.concatenate(limits, axis=2) for limits in zip(*map(_apart, fewest, most), strict=True))
    values = np.concatenate([value for value, _, _ in rates], axis=1)
    # Rounded, so that of pairs that are tied the first is named, on every processor.
    surest: list[int] = np.round(lows, DECIMALS).reshape(-1, len(asked)).argmax(axis=0).tolist()
    for column, (place, pair) in enumerate(zip(asked, surest, strict=True)):
        one, other = divmod(pair, len(plan.levels))
        gap = values[one, column] - values[other, column]
        if np.isfinite(gap):
            found[place] = SureGap(
                interval=interval(
                    gap,
                    lows[one, other, column],
                    highs[one, other, column],
                    confidence=settings.confidence,
                    method="Horowitz-Manski bounds, Bonferroni over all pairs of groups",
                ),
                highest=plan.levels[one],
                lowest=plan.levels[other],
            )
    return found


def _limits_of_levels(batch: Batch, settings: Settings) -> tuple[Floats, Floats, Floats]:
    """Levels × quantities: value and limits, for all pairs of levels together."""
    pairs = math.comb(len(batch.levels), 2)
    limits = [level.limits(1 - (1 - settings.confidence) / pairs) for level in batch.levels]
    lows, highs = (np.stack(ends) for ends in zip(*limits, strict=True))
    return np.stack([level.value for level in batch.levels]), lows, highs


def _apart(fewest: tuple[Floats, Floats, Floats], most: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats]:
    """Levels × levels × quantities: the limits of one level minus another; a level and itself come last."""
    (least, least_low, _), (greatest, _, greatest_high) = fewest, most
    below, above = least - least_low, greatest_high - greatest
    lower = (least[:, None] - greatest) - distance(below[:, None], above, 0.0)
    upper = (greatest[:, None] - least) + distance(above[:, None], below, 0.0)
    own = np.arange(len(lower))
    lower[own, own] = -np.inf
    return lower, np.minimum(upper, 1.0)
