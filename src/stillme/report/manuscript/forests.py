"""Forest plots: groups with intervals, everyone behind them, and the gap against what chance gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stillme import numbers
from stillme.report.data import ReportData
from stillme.report.forest import Panel
from stillme.report.manuscript.drawing import COLOURS, GREY, SHAPES, new_figure, percent, style_of
from stillme.types import Interval


def draw(data: ReportData, panels: Sequence[Panel]) -> Any:
    """One column per editor, on one scale: groups above, the largest gap below, from zero."""
    rows = max(len(panel.groups) for panel in panels)
    figure = new_figure(3.1 * len(panels), 1.1 + 0.24 * rows, data)
    grid: Any = figure.add_gridspec(2, len(panels), height_ratios=[rows, 1.3])
    above: Any = None
    below: Any = None
    for column, panel in enumerate(panels):
        style = style_of(data, panel.editor)
        above = figure.add_subplot(grid[0, column], sharex=above, sharey=above)
        below = figure.add_subplot(grid[1, column], sharex=below, sharey=below)
        _groups(above, panel, style)
        _gap(below, panel, style)
        for axes in (above, below):
            axes.tick_params(labelleft=column == 0)
            if numbers.is_rate(panel.quantity):
                percent(axes, "x")
        below.set_xlabel(numbers.unit(panel.quantity))
    title = f"{numbers.title(panels[0].quantity)} by {numbers.factor_name(panels[0].factor)}"
    if panels[0].happened:
        title += ", among edits that were made"
    figure.suptitle(title, fontsize=9, x=0.02, ha="left")
    return figure


def _groups(axes: Any, panel: Panel, style: int) -> None:
    overall = panel.overall.outcome
    if isinstance(overall, Interval):
        axes.axvspan(overall.low, overall.high, color=GREY, alpha=0.15, linewidth=0)
        axes.axvline(overall.value, color=GREY, linewidth=0.7, linestyle=":")
    for row, group in enumerate(panel.groups):
        if isinstance(group.outcome, Interval):
            _point(axes, group.outcome, row, style, SHAPES[style % len(SHAPES)])
    axes.set_yticks(range(len(panel.groups)), [group.group for group in panel.groups])
    axes.set_ylim(len(panel.groups) - 0.4, -0.6)
    axes.set_title(panel.editor, loc="left")


def _gap(axes: Any, panel: Panel, style: int) -> None:
    gap = panel.gap
    if gap is not None and isinstance(gap.outcome, Interval):
        if gap.null is not None:
            axes.barh(0, gap.null.high, height=0.8, color=GREY, alpha=0.35, linewidth=0)
        _point(axes, gap.outcome, 0, style, "d")
    axes.set_yticks([0], ["largest gap"])
    axes.set_ylim(0.6, -0.6)
    axes.set_xlim(left=0)


def _point(axes: Any, interval: Interval, y: float, style: int, shape: str) -> None:
    colour = COLOURS[style % len(COLOURS)]
    axes.hlines([y], [interval.low], [interval.high], color=colour, linewidth=1.2)
    axes.plot([interval.value], [y], shape, color=colour, markersize=4.5)
