"""The correlation of one portrait's edits, and how much information it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stillme.core.types import Interval, NotEstimable, Settings
from stillme.estimates import design
from stillme.estimates.intervals import jackknife, t_quantile
from stillme.estimates.quantities import NOISE, Columns, Floats, Quantity, interval, rounded, sums_by
from stillme.estimates.rows import Edits, Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class IntraclassCorrelation:
    """The intraclass correlation of a quantity within portraits."""

    quantity: str
    editor: str
    arm: str
    judge: str
    icc: Interval | NotEstimable
    """The share of the variance that lies between portraits (one-way analysis of variance)."""
    design_effect: float | None
    """1 + (edits a portrait - 1) × ICC: how many times too small the variance is if edits are taken as independent."""
    effective: float | None
    """How many independent edits carry as much information."""
    portraits: int
    edits: int


def intraclass_correlations(edits: Edits, scores: Sequence[Scores], settings: Settings) -> list[IntraclassCorrelation]:
    """The ICC and design effect of every mean and rate, for each editor, arm and judge."""
    columns = Columns.of(edits)
    plan = design.everyone(columns)
    quantities = list(columns.quantities(scores))
    return [_correlation(plan, quantity, settings) for quantity in quantities]


def _correlation(plan: design.Plan, quantity: Quantity, settings: Settings) -> IntraclassCorrelation:
    seen = quantity.counts > 0
    portraits, total = int(seen.sum()), float(quantity.counts.sum())
    outcome: Interval | NotEstimable
    if portraits < 2 or total <= portraits:
        reason = "rated edits of fewer than two portraits" if portraits < 2 else "only one rated edit a portrait"
        outcome = NotEstimable(reason=reason)
    else:
        outcome = _interval(plan, _moments(plan, quantity), settings)
    effect = None
    if isinstance(outcome, Interval):
        typical = float((quantity.counts[seen] ** 2).sum() / total)
        effect = rounded(max(1.0, 1 + (typical - 1) * outcome.value))
    return IntraclassCorrelation(
        quantity=quantity.name,
        editor=quantity.editor,
        arm=quantity.arm,
        judge=quantity.judge,
        icc=outcome,
        design_effect=effect,
        effective=rounded(total / effect) if effect else None,
        portraits=portraits,
        edits=int(total),
    )


def _moments(plan: design.Plan, quantity: Quantity) -> Floats:
    """Units × six sums."""
    counts, seen = quantity.counts, quantity.counts > 0
    mean = quantity.sums.sum() / max(1.0, counts.sum())
    # Subtracted from every value, so that squares do not cancel; what is left where they do is rounding error.
    sums = quantity.sums - mean * counts
    squares = quantity.squares - 2 * mean * quantity.sums + mean**2 * counts
    squares = np.where(squares > NOISE * quantity.squares, squares, 0.0)
    between = np.divide(sums**2, counts, out=np.zeros_like(counts), where=seen)
    columns = [sums, counts, squares, between, counts**2, seen.astype(np.float64)]
    inside = plan.unit >= 0
    return np.stack([sums_by(plan.unit[inside], column[inside], len(plan.names)) for column in columns], axis=1)


def _interval(plan: design.Plan, moments: Floats, settings: Settings) -> Interval | NotEstimable:
    moments = moments[moments[:, 1] > 0]
    total = moments.sum(axis=0)
    value, without = float(_icc(total[None, :])[0]), _icc(total - moments)
    if not math.isfinite(value):
        return NotEstimable(reason="every edit has the same value")
    if len(moments) < 3 or not np.isfinite(without).all():
        return NotEstimable(reason=f"too few {plan.noun} differ to leave one out")
    half = t_quantile((1 + settings.confidence) / 2, len(moments) - 1) * jackknife(without)
    return interval(
        value,
        max(-1.0, value - half),
        min(1.0, value + half),
        confidence=settings.confidence,
        method=f"analysis of variance; jackknife over {plan.noun}, Student's t",
    )


def _icc(totals: Floats) -> Floats:
    """From sums over portraits, which are the last axis."""
    sums, edits, squares, between, squared, portraits = np.moveaxis(totals, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_between = (between - sums**2 / edits) / (portraits - 1)
        mean_within = (squares - between) / (edits - portraits)
        typical = (edits - squared / edits) / (portraits - 1)
        icc = (mean_between - mean_within) / (mean_between + (typical - 1) * mean_within)
        return np.where(squares - sums**2 / edits > NOISE * squares, icc, math.nan)
