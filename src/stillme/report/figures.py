"""Forest plots, grouped: a quantity by a factor, one panel per editor, on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from stillme.core import rubric
from stillme.core.rubric import rate_of
from stillme.core.types import Estimate, Interval, PlantedGap
from stillme.estimates import Disparity, RatingState, headlines, numbers
from stillme.estimates.quantities import meets
from stillme.report import forest
from stillme.report.data import ReportData
from stillme.report.findings import Findings

Key = tuple[str, str, str]
"""Quantity, judge, factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantity by a factor."""

    quantity: str
    title: str
    unit: str
    factor: str
    judge: str
    panels: tuple[tuple[str, str, Markup, str], ...]
    """Editor, arm, drawing, and what the test says of this editor's gap, if it is significant."""
    same: tuple[str, ...] = ()
    """Titles of quantities that are equal to this one, edit by edit, and therefore not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedRow:
    """One planted gap beside what was recovered."""

    gap: PlantedGap
    title: str
    planted: str
    realised: str
    recovered: str
    span: str
    drawing: Markup
    covered: bool | None
    """Whether the interval contains the planted value; None where there is no interval."""


def panels(data: ReportData, findings: Findings) -> dict[Key, list[forest.Panel]]:
    """Every forest plot, significant gaps first."""
    everyone = {_identity(estimate): estimate for estimate in data.headlines if estimate.scope == "all"}
    groups: dict[tuple[str, ...], list[Estimate]] = {}
    for estimate in data.headlines:
        if estimate.scope == "group":
            groups.setdefault((*_identity(estimate), estimate.factor), []).append(estimate)
    gaps = [gap for gap in data.headlines if isinstance(gap, Disparity) and headlines.is_headline(gap.quantity)]
    varying = {_key(gap) for gap in gaps if _varies(gap)}
    by_key: dict[Key, list[forest.Panel]] = {}
    for gap in gaps:
        identity = _identity(gap)
        if _key(gap) in varying and identity in everyone:
            panel = forest.Panel(
                quantity=gap.quantity,
                editor=gap.editor,
                arm=gap.arm,
                factor=gap.factor,
                overall=everyone[identity],
                groups=tuple(sorted(groups.get((*identity, gap.factor), []), key=lambda group: group.group)),
                gap=gap,
            )
            by_key.setdefault(_key(gap), []).append(panel)
    certain = {key for key, _ in significant(findings)}
    factors = data.settings.factors

    def order(key: Key) -> tuple[bool, int, int, Key]:
        quantity, _, factor = key
        factor_order = factors.index(factor) if factor in factors else len(factors)
        return key not in certain, headlines.order_of(quantity), factor_order, key

    return {key: by_key[key] for key in sorted(by_key, key=order)}


def significant(findings: Findings) -> dict[tuple[Key, str], str]:
    """By figure and editor: the test's result in words, where the groups are said to differ."""
    return {
        (_key(gap.disparity), gap.disparity.editor): f"{gap.finding.word}, {numbers.p_value(gap.finding.p)} (Holm)"
        for gap in findings.gaps
        if gap.is_significant and gap.finding.p is not None
    }


def twins(data: ReportData, keys: Iterable[Key]) -> dict[Key, list[str]]:
    """The figures to draw, each with the titles of quantities that are equal to it, edit by edit."""
    first: dict[tuple[str, bytes], Key] = {}
    drawn: dict[Key, list[str]] = {}
    for key in keys:
        quantity, judge, factor = key
        twin = first.setdefault((factor, _column(data, quantity, judge)), key)
        if twin is key:
            drawn[key] = []
        else:
            drawn[twin].append(numbers.title(quantity))
    return drawn


def _column(data: ReportData, quantity: str, judge: str) -> bytes:
    """The quantity's values edit by edit; of one that is counted without a judge, its name."""
    axis = rubric.axis_of(quantity)
    score = next((score for score in data.scores if (score.axis, score.judge) == (axis, judge)), None)
    if score is None:
        return quantity.encode()
    rate = rate_of(quantity)
    values = meets(rate, score.value) if rate else score.value
    return np.where(score.state == RatingState.RATED, values, np.nan).astype(np.float64).tobytes()


def figure(
    key: Key, panels: list[forest.Panel], tested: Mapping[tuple[Key, str], str], same: Sequence[str] = ()
) -> Figure:
    """Draw one; `tested` is what `significant` gives."""
    quantity, judge, factor = key
    scale = forest.scale(panels)
    return Figure(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        factor=numbers.factor_name(factor),
        judge=judge,
        panels=tuple(
            (panel.editor, panel.arm, forest.draw(panel, scale), tested.get((key, panel.editor), ""))
            for panel in panels
        ),
        same=tuple(same),
    )


def planted_rows(gaps: Iterable[PlantedGap]) -> list[PlantedRow]:
    """Planted beside recovered, on one scale per quantity."""
    gaps = list(gaps)
    values: dict[str, list[float]] = {}
    for gap in gaps:
        of_quantity = values.setdefault(gap.quantity, [])
        if isinstance(gap.recovered, Interval):
            of_quantity += [gap.planted, gap.recovered.low, gap.recovered.high]
    return [_planted_row(gap, forest.dumbbell_span(values[gap.quantity])) for gap in gaps]


def _planted_row(gap: PlantedGap, span: tuple[float, float]) -> PlantedRow:
    def text(value: float) -> str:
        return numbers.number(gap.quantity, value, plus=True)

    recovered = gap.recovered if isinstance(gap.recovered, Interval) else None
    return PlantedRow(
        gap=gap,
        title=numbers.title(gap.quantity),
        planted=f"{text(gap.planted)} {numbers.symbol(gap.quantity)}".strip(),
        realised=text(gap.realised.value) if isinstance(gap.realised, Interval) else "–",
        recovered=text(recovered.value) if recovered else "not estimable",
        span=numbers.span(gap.quantity, recovered, plus=True) if recovered else getattr(gap.recovered, "reason", ""),
        drawing=forest.dumbbell(gap.planted, recovered, span) if recovered else Markup(""),
        covered=recovered.low <= gap.planted <= recovered.high if recovered else None,
    )


def _varies(gap: Disparity) -> bool:
    return isinstance(gap.outcome, Interval) and (gap.outcome.value > 0 or bool(gap.null and gap.null.high > 0))


def _key(estimate: Estimate) -> Key:
    return estimate.quantity, estimate.judge, estimate.factor


def _identity(estimate: Estimate) -> tuple[str, str, str, str]:
    return estimate.quantity, estimate.editor, estimate.arm, estimate.judge
