"""Figure 4: who is lightened, and whose race changes."""

from __future__ import annotations

from typing import Any

from stillme import numbers
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import GREY, legend, new_figure, offsets, percent, points, style_of
from stillme.types import Estimate

_QUANTITIES = (("skin_lightened", "skin_delta_l"), ("race_changed", "race_distance"))
"""The paper's rates, each with what instruments measure where no judge used the paper's scales."""


def draw(data: ReportData) -> Any | str:
    """One panel per quantity, groups across, editors side by side; or why there is nothing to draw."""
    factor = data.settings.factors[0] if data.settings.factors else ""
    panels = [
        groups
        for quantity, instead in _QUANTITIES
        if (groups := _groups(data, quantity, factor) or _groups(data, instead, factor))
    ]
    if not panels:
        return "no judge rated skin tone or race by group"
    figure = new_figure(3.4 * len(panels), 2.7, data)
    for number, (groups, letter) in enumerate(zip(panels, "ab", strict=False), start=1):
        axes: Any = figure.add_subplot(1, len(panels), number)
        _panel(axes, data, groups)
        axes.set_title(f"({letter}) {numbers.title(groups[0].quantity)}", loc="left")
    legend(figure)
    return figure


def _groups(data: ReportData, quantity: str, factor: str) -> list[Estimate]:
    estimates = [estimate for estimate in data.headlines if (estimate.quantity, estimate.factor) == (quantity, factor)]
    judge = next((estimate.judge for estimate in estimates), "")
    return [estimate for estimate in estimates if estimate.scope == "group" and estimate.judge == judge]


def _panel(axes: Any, data: ReportData, groups: list[Estimate]) -> None:
    levels = sorted({group.group for group in groups})
    editors = sorted({group.editor for group in groups})
    for offset, editor in zip(offsets(len(editors)), editors, strict=True):
        of_editor = [group for group in groups if group.editor == editor]
        positions = [levels.index(group.group) + offset for group in of_editor]
        points(axes, positions, [group.outcome for group in of_editor], style_of(data, editor), editor)
    axes.set_xticks(range(len(levels)), levels, rotation=35, ha="right")
    if numbers.is_rate(groups[0].quantity):
        percent(axes)
        axes.set_ylim(bottom=0)
    else:
        axes.set_ylabel(numbers.unit(groups[0].quantity))
        axes.axhline(0, color=GREY, linewidth=0.6)
