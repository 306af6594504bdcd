"""The tests that papers print, row by row, as if every edit were another person; and how wrong that is.

The tests are given for comparison. Where a portrait has several edits they are marked naive: in audits without any
difference between groups they find one far too often (docs/statistics.md has the numbers). How alike one portrait's
edits are says how much information they carry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np

from stillme.core.types import Arm, Interval, NotEstimable, Settings
from stillme.estimates import design
from stillme.estimates.design import REST
from stillme.estimates.intervals import jackknife, t_quantile
from stillme.estimates.pairing import Paired, pair_arms, pooled
from stillme.estimates.quantities import NOISE, Columns, Floats, Measured, Quantity, interval, rounded, sums_by
from stillme.estimates.rows import Edits, Scores

Test = Literal["Kruskal–Wallis", "Mann–Whitney", "Wilcoxon signed-rank"]

DECIMALS = 6
"""Equal means of three raters may differ in their last bit, which would change ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTest:
    """One classical test on single edits."""

    test: Test
    quantity: str
    editor: str
    arm: str
    judge: str
    factor: str
    """Empty where two arms are compared."""
    group: str
    """`level - rest` or `level - reference`; empty for all groups or for two arms."""
    statistic: float | None
    p: float | None
    reason: str
    """Why there is no result; empty where there is one."""
    naive: bool
    """Whether the test counts a portrait's edits as independent although a portrait has several."""
    portraits: int
    edits: int


def row_tests(edits: Edits, scores: Sequence[Scores], settings: Settings) -> list[RowTest]:
    """Kruskal–Wallis over each factor, and Mann–Whitney of each level against the rest and the reference, per axis."""
    columns = Columns.of(edits)
    return [
        test
        for measured in columns.measured(scores)
        if not measured.is_rate
        for factor in settings.factors
        for test in _between_groups(columns, measured, factor, settings.reference.get(factor))
    ]


def paired_row_tests(
    edits: Edits, scores: Sequence[Scores], *, arm: str = Arm.FEATURE, pool: bool = False
) -> list[RowTest]:
    """Wilcoxon's signed-rank test of an arm and the baseline, per axis; with `pool`, of all editors together."""
    paired = pair_arms(Columns.of(edits), scores, arm=arm, against=Arm.BASELINE)
    pairs = [pair for pair in paired if not pair.is_rate]
    return [_wilcoxon(pair) for pair in (pooled(pairs) if pool else pairs)]


def _between_groups(columns: Columns, measured: Measured, factor: str, reference: str | None) -> Iterator[RowTest]:
    names, codes = columns.edits.levels(factor)
    rows = np.flatnonzero(measured.counted)
    rank = columns.rank[rows]
    level = codes[columns.places][rank]
    value = np.round(measured.value[rows], DECIMALS)
    groups = {name: value[level == code] for code, name in enumerate(names) if (level == code).any()}
    everyone = level >= 0

    def tested(test: Test, group: str, samples: Sequence[Floats], among: np.ndarray) -> RowTest:
        statistic = p = None
        reason = _untestable(samples)
        if not reason:
            statistic, p = _by_scipy(test, *samples)
        return RowTest(
            test=test,
            quantity=measured.name,
            editor=measured.editor,
            arm=measured.arm,
            judge=measured.judge,
            factor=factor,
            group=group,
            statistic=statistic,
            p=p,
            reason=reason,
            naive=_repeats(rank[among]),
            portraits=len(np.unique(rank[among])),
            edits=int(np.count_nonzero(among)),
        )

    yield tested("Kruskal–Wallis", "", list(groups.values()), everyone)
    for name in groups:
        members = level == names.index(name)
        # Against the rest also where there is a reference: the paper's "White vs. non-White" is such a test.
        others = {REST: everyone & ~members}
        if reference in names and name != reference:
            others[reference] = level == names.index(reference)
        for against, other in others.items():
            yield tested("Mann–Whitney", f"{name} - {against}", [value[members], value[other]], members | other)


def _wilcoxon(pair: Paired) -> RowTest:
    change = np.round(pair.after - pair.before, DECIMALS)
    statistic = p = None
    reason = ""
    if not len(change):
        reason = "no edit has a value under both arms"
    elif not change.any():
        reason = "no edit differs between the arms"
    else:
        statistic, p = _by_scipy("Wilcoxon signed-rank", change)
    return RowTest(
        test="Wilcoxon signed-rank",
        quantity=pair.name,
        editor=pair.editor,
        arm=f"{pair.arm} - {pair.against}",
        judge=pair.judge,
        factor="",
        group="",
        statistic=statistic,
        p=p,
        reason=reason,
        naive=_repeats(pair.rank),
        portraits=len(np.unique(pair.rank)),
        edits=len(pair.rank),
    )


def _by_scipy(test: Test, *samples: Floats) -> tuple[float, float]:
    """Statistic and two-sided p-value."""
    # Imported here because it takes a while, and by name because it has no types.
    stats: Any = import_module("scipy.stats")
    run = {"Kruskal–Wallis": "kruskal", "Mann–Whitney": "mannwhitneyu", "Wilcoxon signed-rank": "wilcoxon"}[test]
    result = getattr(stats, run)(*samples)
    return float(result.statistic), float(result.pvalue)


def _untestable(samples: Sequence[Floats]) -> str:
    if sum(len(sample) > 0 for sample in samples) < 2:
        return "fewer than two groups have a rated edit"
    if np.ptp(np.concatenate(list(samples))) == 0:
        return "every edit has the same value"
    return ""


def _repeats(rank: np.ndarray) -> bool:
    return len(np.unique(rank)) < len(rank)


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
