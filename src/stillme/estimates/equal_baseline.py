"""The change of each group at an equal baseline: analysis of covariance, resampled by portrait.

Groups start from different baselines, and who starts high has more to gain and more luck to lose. Each portrait's mean
change is therefore regressed on its mean baseline, with one slope within all groups, and each group's mean is moved
along it to everyone's baseline. The slope is fitted anew in every resample. Portraits, not edits: a single edit's
baseline is mostly luck, and its slope would move a group whose baseline truly is higher much too far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from stillme.estimates.bootstrap import by_unit, draws
from stillme.estimates.design import Comparison, Plan
from stillme.estimates.pairing import Paired
from stillme.estimates.quantiles import student
from stillme.estimates.quantities import Floats, sums_by
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable

_PAIRS, _BASE, _CHANGE, _BASE_SQUARED, _PRODUCT = range(5)


def at_equal_baseline(plan: Plan, pair: Paired, size: int, settings: Settings) -> Mapping[str, Interval | NotEstimable]:
    """By the name of each group and contrast of a plan; nothing for everyone, who are at their own baseline."""
    groups = [each for each in plan.comparisons if each.scope == "group"]
    if len(groups) < 2:
        return {}
    moments = [_moments(plan, pair, size, each) for each in groups]
    observed = np.stack([each.sum(axis=0)[None, :] for each in moments], axis=1)
    if not (observed[0, :, _PAIRS] > 0).all():
        return {each.group: NotEstimable(reason="a group has no pair") for each in plan.comparisons}
    if not _spread(observed)[0] > 1e-12:
        reason = "every baseline of a group is the same, so there is nothing to level"
        return {each.group: NotEstimable(reason=reason) for each in plan.comparisons}
    resampled = np.concatenate(
        [
            np.stack(
                [
                    sum((part @ each[units] for part, units in zip(counts, plan.strata, strict=True)), np.zeros(5))
                    for each in moments
                ],
                axis=1,
            )
            for counts in draws(plan, settings)
        ]
    )
    return {
        comparison.group: _interval(plan, comparison, groups, observed, resampled, settings)
        for comparison in plan.comparisons
    }


def _interval(
    plan: Plan,
    comparison: Comparison,
    groups: list[Comparison],
    observed: Floats,
    resampled: Floats,
    settings: Settings,
) -> Interval | NotEstimable:
    value = float(_levelled(comparison, groups, observed)[0])
    found = _levelled(comparison, groups, resampled)
    found = found[np.isfinite(found)]
    if len(found) < settings.replicates / 2:
        return NotEstimable(reason="too few pairs to resample every group")
    fewest = min(len(units) for units in plan.strata)
    half = student((1 + settings.confidence) / 2, fewest - 1) * float(found.std()) * math.sqrt(fewest / (fewest - 1))
    return Interval(
        value=value,
        low=value - half,
        high=value + half,
        confidence=settings.confidence,
        method=f"analysis of covariance; bootstrap standard error over {plan.noun}",
    )


def _moments(plan: Plan, pair: Paired, size: int, group: Comparison) -> Floats:
    """Per unit, over a group's portraits: pairs, and sums over pairs of baseline, change, baseline², their product."""
    number = np.bincount(pair.rank, minlength=size).astype(np.float64)
    # Counted from the middle, so that squares do not cancel.
    middle = float(pair.before.mean()) if len(pair.before) else 0.0
    base, change = (
        np.divide(sums_by(pair.rank, each, size), number, out=np.zeros(size), where=number > 0)
        for each in (pair.before - middle, pair.after - pair.before)
    )
    columns = [number, number * base, number * change, number * base * base, number * base * change]
    return np.stack([by_unit(plan, group.members, each) for each in columns], axis=1)


def _spread(totals: Floats) -> Floats:
    pairs, base = totals[:, :, _PAIRS], totals[:, :, _BASE]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (totals[:, :, _BASE_SQUARED] - base * base / pairs).sum(axis=1)


def _levelled(comparison: Comparison, groups: list[Comparison], totals: Floats) -> Floats:
    """Resamples × groups × moments to the comparison's levelled value."""
    pairs, base, change = (totals[:, :, column] for column in (_PAIRS, _BASE, _CHANGE))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (totals[:, :, _PRODUCT] - base * change / pairs).sum(axis=1) / _spread(totals)
        everyone = base.sum(axis=1) / pairs.sum(axis=1)
        value = np.zeros(len(totals))
        for sign, side in ((1.0, comparison.members), (-1.0, comparison.against)):
            if side is None:
                continue
            inside = np.array([bool((group.members & side).any()) for group in groups], dtype=np.bool_)
            number = pairs[:, inside].sum(axis=1)
            mean_change = change[:, inside].sum(axis=1) / number
            value += sign * (mean_change - slope * (base[:, inside].sum(axis=1) / number - everyone))
        return value
