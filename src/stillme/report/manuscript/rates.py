"""Figure 4: who is lightened, and whose race changes."""

from __future__ import annotations

from typing import Any

from stillme.report import numbers
from stillme.report.data import ReportData
from stillme.report.manuscript.marks import GREY, legend, new_figure, percent, place_of, points, side_steps
from stillme.types import Estimate

_WANTED = ("skin_lightened", "race_changed")
_INSTEAD = ("skin_delta_l", "race_distance")
"""What instruments measure where nobody gave the paper's scales."""


def draw(data: ReportData) -> Any | str:
    """One panel per quantity, groups across, editors side by side; or why there is nothing to draw."""
    factor = data.settings.factors[0] if data.settings.factors else ""
    shown = [
        groups
        for wanted, instead in zip(_WANTED, _INSTEAD, strict=True)
        if (groups := _groups(data, wanted, factor) or _groups(data, instead, factor))
    ]
    if not shown:
        return "no judge rated skin tone or race by group"
    figure = new_figure(3.4 * len(shown), 2.7, data)
    for place, (found, letter) in enumerate(zip(shown, "abcd", strict=False), start=1):
        axes: Any = figure.add_subplot(1, len(shown), place)
        _panel(axes, data, found)
        axes.set_title(f"({letter}) {numbers.title(found[0].quantity)}", loc="left")
    legend(figure)
    return figure


def _groups(data: ReportData, quantity: str, factor: str) -> list[Estimate]:
    mine = [each for each in data.headlines if each.quantity == quantity and each.factor == factor]
    judge = next((each.judge for each in mine), "")
    return [each for each in mine if each.scope == "group" and each.judge == judge]


def _panel(axes: Any, data: ReportData, found: list[Estimate]) -> None:
    levels = sorted({each.group for each in found})
    editors = sorted({each.editor for each in found})
    for step, editor in zip(side_steps(len(editors), 0.5), editors, strict=True):
        mine = [each for each in found if each.editor == editor]
        places = [levels.index(each.group) + step for each in mine]
        points(axes, places, [each.outcome for each in mine], place_of(data, editor), editor)
    axes.set_xticks(range(len(levels)), levels, rotation=35, ha="right")
    if numbers.is_rate(found[0].quantity):
        percent(axes)
        axes.set_ylim(bottom=0)
    else:
        axes.set_ylabel(numbers.unit(found[0].quantity))
        axes.axhline(0, color=GREY, linewidth=0.6)
