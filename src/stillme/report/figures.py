"""Forest plots, grouped: a quantity by a factor, one panel per editor, on one scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from stillme.estimates import Disparity
from stillme.report import forest, numbers
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
    found: bool | None
    """Whether the interval holds the planted value; None where there is no interval."""


def panels(data: ReportData, findings: Findings) -> dict[Key, list[forest.Panel]]:
    """Everything worth a forest plot, what is beyond chance first."""
    everyone = {_owner(each): each for each in data.headlines if each.scope == "all"}
    groups: dict[tuple[str, ...], list[Estimate]] = {}
    for each in data.headlines:
        if each.scope == "group":
            groups.setdefault((*_owner(each), each.factor), []).append(each)
    gaps = [gap for gap in data.headlines if isinstance(gap, Disparity) and numbers.is_headline(gap.quantity)]
    varying = {(gap.quantity, gap.judge, gap.factor) for gap in gaps if _varies(gap)}
    found: dict[Key, list[forest.Panel]] = {}
    for gap in gaps:
        key = gap.quantity, gap.judge, gap.factor
        if key in varying and _owner(gap) in everyone:
            panel = forest.Panel(
                quantity=gap.quantity,
                editor=gap.editor,
                arm=gap.arm,
                factor=gap.factor,
                overall=everyone[_owner(gap)],
                groups=tuple(sorted(groups.get((*_owner(gap), gap.factor), []), key=lambda each: each.group)),
                gap=gap,
            )
            found.setdefault(key, []).append(panel)
    certain = beyond_chance(findings)
    factors = data.settings.factors
    ordered = sorted(
        found,
        key=lambda key: (
            key not in certain,
            numbers.headline_place(key[0]),
            factors.index(key[2]) if key[2] in factors else len(factors),
            key,
        ),
    )
    return {key: found[key] for key in ordered}


def beyond_chance(findings: Findings) -> set[Key]:
    """What differs by more than chance, for any editor."""
    return {(gap.found.quantity, gap.found.judge, gap.found.factor) for gap in findings.gaps if gap.beyond_chance}


def figure(key: Key, drawn: list[forest.Panel], *, beyond_chance: bool) -> Figure:
    """Draw one."""
    quantity, judge, factor = key
    scale = forest.scale(drawn)
    return Figure(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        factor=numbers.factor(factor),
        judge=judge,
        panels=tuple((panel.editor, panel.arm, forest.draw(panel, scale)) for panel in drawn),
        beyond_chance=beyond_chance,
    )


def planted_rows(gaps: Iterable[PlantedGap]) -> list[PlantedRow]:
    """Planted beside recovered, on one scale per quantity."""
    gaps = list(gaps)
    spans: dict[str, tuple[float, float]] = {}
    for quantity in {gap.quantity for gap in gaps}:
        values = [
            value
            for gap in gaps
            if gap.quantity == quantity and isinstance(gap.recovered, Interval)
            for value in (gap.planted, gap.recovered.low, gap.recovered.high)
        ]
        spans[quantity] = forest.dumbbell_span(values)
    return [_planted_row(gap, spans[gap.quantity]) for gap in gaps]


def _planted_row(gap: PlantedGap, span: tuple[float, float]) -> PlantedRow:
    def shown(value: float) -> str:
        return numbers.number(gap.quantity, value, plus=True)

    known = gap.recovered if isinstance(gap.recovered, Interval) else None
    return PlantedRow(
        gap=gap,
        title=numbers.title(gap.quantity),
        planted=f"{shown(gap.planted)} {numbers.symbol(gap.quantity)}".strip(),
        realised=shown(gap.realised.value) if isinstance(gap.realised, Interval) else "–",
        recovered=shown(known.value) if known else "not estimable",
        span=f"{shown(known.low)} to {shown(known.high)}" if known else getattr(gap.recovered, "reason", ""),
        drawing=forest.dumbbell(gap.planted, known, span) if known else Markup(""),
        found=known.low <= gap.planted <= known.high if known else None,
    )


def _varies(gap: Disparity) -> bool:
    return isinstance(gap.outcome, Interval) and (gap.outcome.value > 0 or bool(gap.null and gap.null.high > 0))


def _owner(found: Estimate) -> tuple[str, str, str, str]:
    return found.quantity, found.editor, found.arm, found.judge
