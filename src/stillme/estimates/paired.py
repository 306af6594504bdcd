"""The effect of a mitigation: the same edits with and without it, the portrait as the unit.

Three numbers answer three doubts. The plain change, arm minus baseline: unbiased if edits were sampled before anyone
looked at outcomes. The change at an equal baseline, because the group that drifts most has most to gain. And, where an
untreated re-run exists (the baseline under a seed that the arm was not run with), the arm minus the re-run: if edits
were picked because their baseline was bad, running them again improves them by itself, and only this number is free of
that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stillme.core.types import Arm, Estimate, Interval, NotEstimable, Settings
from stillme.estimates import design
from stillme.estimates.design import Plan, SideComparison
from stillme.estimates.estimating import Disparity, disparities, estimate_all, order_of
from stillme.estimates.intervals import Outcome, jackknife, outcomes, t_quantile
from stillme.estimates.pairing import Paired, pair_arms, pooled
from stillme.estimates.permutation import side_tests, sign_flip_p
from stillme.estimates.quantities import (
    NOISE,
    Columns,
    Exclusion,
    Floats,
    Measured,
    Quantity,
    by_unit,
    interval,
    rounded,
    sums_by,
)
from stillme.estimates.rows import Edits, Flags, Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEffect(Estimate):
    """How an arm changes a quantity, for everyone or a group; a contrast is how much more it changes one group.

    `outcome` is the plain change, arm minus baseline; `edits` counts pairs.
    """

    before: float | None
    """The mean under the other arm, over the pairs; for a contrast the group's minus the other side's."""
    after: float | None
    p: float | None
    """By flipping the sign of each portrait's or block's change; of a contrast, by permuting labels over portraits."""
    at_equal_baseline: Interval | NotEstimable
    """The change that the group would show if its baseline were everyone's (analysis of covariance)."""
    untreated: Interval | NotEstimable
    """The change of an untreated re-run."""
    beyond_untreated: Interval | NotEstimable
    """The arm minus the untreated re-run: free of regression to the mean, however the edits were selected."""
    smallest_p: float | None = None
    """The smallest p-value that sign flips can give here: 2 to the power of 1 - units that changed at all."""


def paired_effects(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    arm: str = Arm.FEATURE,
    against: str = Arm.BASELINE,
    quantities: Collection[str] | None = None,
    pool: bool = False,
) -> list[PairedEffect | Disparity]:
    """Compare two arms on the same edits: for all, by group, between groups; their `arm` is `feature - baseline`.

    The disparity of a factor is max - min of the groups' changes; its omnibus p-value answers whether the arm helps
    some more than others. With `pool`, all editors are taken together.
    """
    columns = Columns.of(edits)
    pairs = [
        pair
        for pair in pair_arms(columns, scores, arm=arm, against=against)
        if quantities is None or pair.name in quantities
    ]
    pairs = list(pooled(pairs)) if pool else pairs
    plans = [design.everyone(columns)]
    plans += [design.by_factor(columns, factor, settings) for factor in settings.factors]
    effects = [effect for plan in plans for effect in _of_plan(columns, plan, pairs, settings)]
    return sorted(effects, key=order_of)


def above_floor(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    arm: str = Arm.BASELINE,
    quantities: Collection[str] | None = None,
) -> list[Estimate]:
    """Every mean and rate minus that of the no-op arm for the same portraits: what the edit itself adds.

    An editor's round trip and a judge's bias move scores even where no edit was asked for. The list is empty where the
    no-op arm was not run.
    """
    columns = Columns.of(edits)
    sample = settings.prompts == "sample"
    measured = list(columns.measured(scores))
    floors = {(part.editor, part.judge, part.name): part for part in measured if part.arm == Arm.NOOP}
    differences = [
        _minus_floor(columns, part, columns.collapse(floor), prompts=sample)
        for part in measured
        if part.arm == arm and part.judge and (quantities is None or part.name in quantities)
        if (floor := floors.get((part.editor, part.judge, part.name)))
    ]
    return estimate_all(columns, differences, settings)


def _minus_floor(columns: Columns, measured: Measured, floor: Quantity, *, prompts: bool) -> Quantity:
    """Each edit's value minus its portrait's mean under the no-op arm."""
    level = np.divide(floor.sums, floor.counts, out=np.zeros_like(floor.sums), where=floor.counts > 0)
    has_floor = (floor.counts > 0)[columns.rank]
    widest = measured.bounds[1] - measured.bounds[0] if measured.bounds else None
    difference = replace(
        measured,
        arm=f"{measured.arm} - {Arm.NOOP}",
        value=measured.value - level[columns.rank],
        counted=measured.counted & has_floor,
        excluded={**measured.excluded, Exclusion.NOT_PAIRED: measured.counted & ~has_floor},
        bounds=None if widest is None else (-widest, widest),
        middle=None if widest is None else 0.0,
        is_rate=False,
    )
    return columns.collapse(difference, prompts=prompts)


def _of_plan(
    columns: Columns, plan: Plan, pairs: Sequence[Paired], settings: Settings
) -> list[PairedEffect | Disparity]:
    size = (len(columns.portraits), len(columns.edits.prompts))
    changes = [pair.change(size) for pair in pairs]
    found = outcomes(plan, changes, settings)
    largest = disparities(plan, changes, found, settings) if plan.factor else []
    contrasts = [comparison for comparison in plan.comparisons if comparison.scope == "contrast"]
    (tested,) = side_tests(plan, changes, [[_sides(plan, contrast) for contrast in contrasts]])
    untreated = outcomes(plan, [pair.untreated(size) for pair in pairs], settings)
    beyond = outcomes(plan, [pair.beyond_untreated(size) for pair in pairs], settings)
    effects: list[PairedEffect | Disparity] = []
    for place, (pair, change) in enumerate(zip(pairs, changes, strict=True)):
        equal_baseline = at_equal_baseline(plan, pair, size[0], settings)
        tests = iter(tested[place])
        for index, comparison in enumerate(plan.comparisons):
            outcome = found[place][index]
            p, smallest = None, None
            if comparison.scope == "contrast":
                test = next(tests)
                p = test.p if test else None
            else:
                p, smallest = sign_flip_p(by_unit(plan.unit, comparison.members, change.sums))
            effects.append(
                PairedEffect(
                    scope=comparison.scope,
                    factor=plan.factor,
                    group=comparison.group,
                    outcome=outcome,
                    before=_mean(pair, pair.before, comparison),
                    after=_mean(pair, pair.after, comparison),
                    p=p if isinstance(outcome, Interval) else None,
                    smallest_p=smallest,
                    at_equal_baseline=equal_baseline.get(
                        comparison.group, NotEstimable(reason="there is no other group to share a baseline with")
                    ),
                    untreated=_rerun(untreated[place][index]),
                    beyond_untreated=_rerun(beyond[place][index]),
                    **change.within([comparison.everyone])[0],
                )
            )
        effects += largest[place : place + 1]
    return effects


def _rerun(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Interval) else NotEstimable(reason="there is no untreated re-run")


def _sides(plan: Plan, comparison: SideComparison) -> tuple[Flags, Flags]:
    """Which levels of the plan make up the two sides of a comparison."""
    groups = [group.members for group in plan.comparisons if group.scope == "group"]
    assert comparison.against is not None
    one = np.array([bool((members & comparison.members).any()) for members in groups], dtype=np.bool_)
    other = np.array([bool((members & comparison.against).any()) for members in groups], dtype=np.bool_)
    return one, other


def _mean(pair: Paired, values: Floats, comparison: SideComparison) -> float | None:
    sides = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
    inside = [side[pair.rank] for side in sides]
    if not all(mask.any() for mask in inside):
        return None
    means = [float(values[mask].mean()) for mask in inside]
    return rounded(means[0] - (means[1] if len(means) > 1 else 0.0))


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
    comparison: SideComparison,
    groups: list[SideComparison],
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


def _moments(plan: Plan, pair: Paired, size: int, group: SideComparison) -> Floats:
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


def _adjusted(comparison: SideComparison, groups: list[SideComparison], totals: Floats) -> Floats:
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
