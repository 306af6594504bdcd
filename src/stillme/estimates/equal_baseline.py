"""The change of each group at an equal baseline: analysis of covariance, unit by unit.

Groups start from different baselines: a high baseline leaves more to gain, and more regression to the mean. Each
portrait's mean change is therefore regressed on its mean baseline, with one slope within all groups, and each group's
mean is moved along it to everyone's baseline. The slope is refitted without each unit in turn (jackknife). Portraits,
not edits: a single edit's baseline is mostly noise, and its slope would move a group whose true baseline is higher much
too far.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stillme.core.types import Interval, NotEstimable
from stillme.estimates.design import Comparison, Plan
from stillme.estimates.intervals import jackknife, t_quantile
from stillme.estimates.pairing import Paired
from stillme.estimates.quantities import Floats, by_unit, sums_by
from stillme.estimates.rounding import NOISE, interval
from stillme.estimates.settings import Settings

_PAIRS, _BASE, _CHANGE, _BASE_SQUARED, _PRODUCT = range(5)


def at_equal_baseline(plan: Plan, pair: Paired, size: int, settings: Settings) -> Mapping[str, Interval | NotEstimable]:
    """By the name of each group and contrast of a plan; nothing for everyone, who are at their own baseline."""
    groups = [comparison for comparison in plan.comparisons if comparison.scope == "group"]
    if len(groups) < 2:
        return {}
    moments = [_moments(plan, pair, size, group) for group in groups]
    observed = np.stack([group.sum(axis=0)[None, :] for group in moments], axis=1)
    reason = ""
    if not (observed[0, :, _PAIRS] > 0).all():
        reason = "a group has no pair"
    elif not _variation(observed)[0] > 0:
        reason = "the portraits of every group have the same baseline, so no slope can be fitted"
    if reason:
        return {comparison.group: NotEstimable(reason=reason) for comparison in plan.comparisons}
    units = np.flatnonzero(np.sum(moments, axis=0)[:, _PAIRS])
    without = observed - np.stack([group[units] for group in moments], axis=1)
    return {
        comparison.group: _interval(plan, comparison, groups, observed, without, settings)
        for comparison in plan.comparisons
    }


def _interval(
    plan: Plan,
    comparison: Comparison,
    groups: list[Comparison],
    observed: Floats,
    without: Floats,
    settings: Settings,
) -> Interval | NotEstimable:
    value = float(_adjusted(comparison, groups, observed)[0])
    left_out = _adjusted(comparison, groups, without)
    sides = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
    fewest = min(plan.units(side) for side in sides)
    if fewest < 2 or not np.isfinite(left_out).all():
        return NotEstimable(reason="too few pairs to leave one out of every group")
    half = t_quantile((1 + settings.confidence) / 2, fewest - 1) * jackknife(left_out)
    return interval(
        value,
        value - half,
        value + half,
        confidence=settings.confidence,
        method=f"analysis of covariance; jackknife over {plan.noun}",
    )


def _moments(plan: Plan, pair: Paired, size: int, group: Comparison) -> Floats:
    """Per unit, over a group's portraits: pairs, and sums over pairs of baseline, change, baseline², their product."""
    pairs = np.bincount(pair.rank, minlength=size).astype(np.float64)
    # The mean is subtracted, so that squares do not cancel.
    mean = float(pair.before.mean()) if len(pair.before) else 0.0
    base, change = (
        np.divide(sums_by(pair.rank, values, size), pairs, out=np.zeros(size), where=pairs > 0)
        for values in (pair.before - mean, pair.after - pair.before)
    )
    columns = [pairs, pairs * base, pairs * change, pairs * base * base, pairs * base * change]
    return np.stack([by_unit(plan.unit, group.members, column) for column in columns], axis=1)


def _variation(totals: Floats) -> Floats:
    """The baseline's sum of squares within groups; 0 where only rounding errors are left."""
    pairs, base, squared = (totals[:, :, column] for column in (_PAIRS, _BASE, _BASE_SQUARED))
    with np.errstate(divide="ignore", invalid="ignore"):
        within = (squared - base * base / pairs).sum(axis=1)
        return np.where(within > NOISE * (pairs + squared).sum(axis=1), within, 0.0)


def _adjusted(comparison: Comparison, groups: list[Comparison], totals: Floats) -> Floats:
    """Rows × groups × moments to the comparison's value at an equal baseline; not finite without variation."""
    pairs, base, change = (totals[:, :, column] for column in (_PAIRS, _BASE, _CHANGE))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (totals[:, :, _PRODUCT] - base * change / pairs).sum(axis=1) / _variation(totals)
        everyone = base.sum(axis=1) / pairs.sum(axis=1)
        value = np.zeros(len(totals))
        for sign, side in ((1.0, comparison.members), (-1.0, comparison.against)):
            if side is None:
                continue
            inside = np.array([bool((group.members & side).any()) for group in groups], dtype=np.bool_)
            size = pairs[:, inside].sum(axis=1)
            mean_change = change[:, inside].sum(axis=1) / size
            value += sign * (mean_change - slope * (base[:, inside].sum(axis=1) / size - everyone))
        return value
