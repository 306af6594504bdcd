"""Forest plots, grouped: a quantity by a factor, one panel per editor, on one scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from stillme import numbers
from stillme.estimates import Disparity, headlines
from stillme.report import forest
from stillme.report.data import ReportData
from stillme.report.findings import Findings
from stillme.types import Estimate, Interval, PlantedGap

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
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""
    beyond_chance: bool
    all_edits: tuple[str, ...] = ()
    """Where only edits that were made are drawn: the same groups over all edits, a line per editor."""


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
    """Every forest plot, gaps beyond chance first."""
    everyone = {_identity(estimate): estimate for estimate in data.shown if estimate.scope == "all"}
    groups: dict[tuple[str, ...], list[Estimate]] = {}
    for estimate in data.shown:
        if estimate.scope == "group":
            groups.setdefault((*_identity(estimate), estimate.factor), []).append(estimate)
    gaps = [gap for gap in data.shown if isinstance(gap, Disparity) and headlines.is_headline(gap.quantity)]
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
                happened=data.is_restricted(gap.quantity),
            )
            by_key.setdefault(_key(gap), []).append(panel)
    certain = beyond_chance(findings)
    factors = data.settings.factors

    def order(key: Key) -> tuple[bool, int, int, Key]:
        quantity, _, factor = key
        factor_order = factors.index(factor) if factor in factors else len(factors)
        return key not in certain, headlines.order_of(quantity), factor_order, key

    return {key: by_key[key] for key in sorted(by_key, key=order)}


def beyond_chance(findings: Findings) -> set[Key]:
    """What differs by more than chance, for any editor."""
    return {_key(gap.disparity) for gap in findings.gaps if gap.beyond_chance}


def figure(data: ReportData, key: Key, panels: list[forest.Panel], *, beyond_chance: bool) -> Figure:
    """Draw one."""
    quantity, judge, factor = key
    restricted = data.is_restricted(quantity)
    scale = forest.scale(panels)
    return Figure(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        factor=numbers.factor_name(factor),
        judge=judge,
        panels=tuple((panel.editor, panel.arm, forest.draw(panel, scale)) for panel in panels),
        beyond_chance=beyond_chance,
        all_edits=tuple(_over_all(data, panel) for panel in panels) if restricted else (),
    )


def _over_all(data: ReportData, panel: forest.Panel) -> str:
    """A panel's groups by intention to treat: edits that were not made count too."""
    wanted = (*_identity(panel.overall), panel.factor)
    groups = sorted(
        (one for one in data.headlines if one.scope == "group" and (*_identity(one), one.factor) == wanted),
        key=lambda group: group.group,
    )
    values = (
        f"{group.group} {numbers.number(group.quantity, group.outcome.value, plus=numbers.is_signed(group.quantity))}"
        for group in groups
        if isinstance(group.outcome, Interval)
    )
    return f"{panel.editor}: {', '.join(values)}"


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
