"""Figure 6: (a) mean skin tone by group, (b1) what the arm does to edit success, (b2) to race change."""

from __future__ import annotations

from typing import Any

from stillme.estimates import PairedEffect
from stillme.report import numbers
from stillme.report.data import ReportData
from stillme.report.manuscript.marks import GREY, legend, new_figure, place_of, points, side_steps
from stillme.types import Estimate, Interval, NotEstimable

_TONE = ("skin_tone", "skin_delta_l")
_SUCCESS = ("edit_success", "unchanged")
_DRIFT = ("race_change", "skin_tone", "skin_delta_l")


def draw(data: ReportData) -> Any | str:
    """Up to three panels; or why there is nothing to draw."""
    panels = [
        panel
        for panel in (
            _levels(data, "a"),
            _changes(data, _SUCCESS, "b1"),
            _changes(data, _DRIFT, "b2"),
        )
        if panel
    ]
    if len(panels) < 2:
        return "no second arm was run on the same edits"
    figure = new_figure(2.9 * len(panels), 2.7, data)
    for place, (title, label, rows) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, len(panels), place)
        levels = sorted({group for _, group, _ in rows})
        editors = sorted({editor for editor, _, _ in rows})
        for step, editor in zip(side_steps(len(editors), 0.5), editors, strict=True):
            mine = [(group, outcome) for name, group, outcome in rows if name == editor]
            at = [levels.index(group) + step for group, _ in mine]
            points(axes, at, [outcome for _, outcome in mine], place_of(data, editor), editor)
        axes.set_xticks(range(len(levels)), levels, rotation=35, ha="right")
        axes.set_title(title, loc="left")
        axes.set_ylabel(label)
        if label.startswith("change"):
            axes.axhline(0, color=GREY, linewidth=0.7)
    legend(figure)
    return figure


Row = tuple[str, str, Interval | NotEstimable]
"""Editor, group, outcome."""


def _levels(data: ReportData, letter: str) -> tuple[str, str, list[Row]] | None:
    for quantity in _TONE:
        found = [each for each in data.headlines if each.quantity == quantity and each.scope == "group"]
        mine = _first(data, found)
        if mine:
            title = f"({letter}) {numbers.title(quantity)}, {mine[0].judge}"
            return title, "mean", [(each.editor, each.group, each.outcome) for each in mine]
    return None


def _changes(data: ReportData, wanted: tuple[str, ...], letter: str) -> tuple[str, str, list[Row]] | None:
    for quantity in wanted:
        found: list[Estimate] = [
            each
            for each in data.mitigation
            if isinstance(each, PairedEffect) and each.quantity == quantity and each.scope == "group"
        ]
        mine = _first(data, found)
        if mine:
            title = f"({letter}) {numbers.title(quantity)}, {mine[0].arm.replace(' - ', ' − ')}"
            return title, "change", [(each.editor, each.group, each.outcome) for each in mine]
    return None


def _first(data: ReportData, found: list[Estimate]) -> list[Estimate]:
    """Those of the first judge, factor and arm."""
    ordered = [each for factor in data.settings.factors for each in found if each.factor == factor]
    if not ordered:
        return []
    first = ordered[0]
    alike = (first.judge, first.factor, first.arm)
    return [each for each in ordered if (each.judge, each.factor, each.arm) == alike]
