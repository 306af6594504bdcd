"""How alike the edits of one portrait are, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stillme.estimates import design
from stillme.estimates.bootstrap import draws
from stillme.estimates.quantities import Columns, Floats, Quantity
from stillme.estimates.rows import Edits, Scores
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """The intraclass correlation of a quantity within portraits."""

    quantity: str
    editor: str
    arm: str
    judge: str
    icc: Interval | NotEstimable
    """The share of the variance that lies between portraits (one-way analysis of variance)."""
    design_effect: float | None
    """1 + (edits a portrait - 1) × ICC: how many times the edits count too often if they are taken as independent."""
    effective: float | None
    """How many independent edits would say as much."""
    portraits: int
    edits: int


def likeness(edits: Edits, scores: Sequence[Scores], settings: Settings) -> list[Likeness]:
    """The ICC and design effect of every mean and rate, for each editor, arm and judge."""
    columns = Columns.of(edits)
    plan = design.everyone(columns)
    return [_likeness(plan, quantity, settings) for quantity in columns.quantities(scores)]


def _likeness(plan: design.Plan, quantity: Quantity, settings: Settings) -> Likeness:
    seen = quantity.counts > 0
    portraits, total = int(seen.sum()), float(quantity.counts.sum())
    outcome: Interval | NotEstimable
    if portraits < 2 or total <= portraits:
        reason = "rated edits of fewer than two portraits" if portraits < 2 else "only one rated edit a portrait"
        outcome = NotEstimable(reason=reason)
    else:
        outcome = _interval(plan, quantity, settings)
    effect = None
    if isinstance(outcome, Interval):
        typical = float((quantity.counts[seen] ** 2).sum() / total)
        effect = max(1.0, 1 + (typical - 1) * outcome.value)
    return Likeness(
        quantity=quantity.name,
        editor=quantity.editor,
        arm=quantity.arm,
        judge=quantity.judge,
        icc=outcome,
        design_effect=effect,
        effective=total / effect if effect else None,
        portraits=portraits,
        edits=int(total),
    )


def _interval(plan: design.Plan, quantity: Quantity, settings: Settings) -> Interval | NotEstimable:
    seen = quantity.counts > 0
    middle = quantity.sums.sum() / quantity.counts.sum()
    # Taken off every value, so that squares do not cancel.
    n = quantity.counts
    sums = quantity.sums - middle * n
    squares = quantity.squares - 2 * middle * quantity.sums + middle**2 * n
    between = np.divide(sums**2, n, out=np.zeros_like(n), where=seen)
    columns = [sums, n, squares, between, n**2, seen.astype(np.float64)]
    inside = plan.unit >= 0
    size = len(plan.names)
    moments = np.stack(
        [np.bincount(plan.unit[inside], weights=each[inside], minlength=size) for each in columns], axis=1
    )
    value = float(_icc(moments.sum(axis=0)[None, :])[0])
    if not math.isfinite(value):
        return NotEstimable(reason="every edit has the same value")
    found = np.concatenate([_icc(counts[0] @ moments) for counts in draws(plan, settings)])
    found = found[np.isfinite(found)]
    tail = (1 - settings.confidence) / 2
    low, high = (float(each) for each in np.quantile(found, [tail, 1 - tail]))
    return Interval(
        value=value,
        low=min(low, value),
        high=max(high, value),
        confidence=settings.confidence,
        method=f"analysis of variance; percentile bootstrap over {plan.noun}",
    )


def _icc(totals: Floats) -> Floats:
    """From sums over portraits: one row per resample."""
    sums, edits, squares, between, squared, portraits = totals.T
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_between = (between - sums**2 / edits) / (portraits - 1)
        mean_within = (squares - between) / (edits - portraits)
        typical = (edits - squared / edits) / (portraits - 1)
        return (mean_between - mean_within) / (mean_between + (typical - 1) * mean_within)
