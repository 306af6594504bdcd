"""What every figure of a manuscript shares: colours, points with intervals, and the mark of made-up data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stillme.report.data import ReportData
from stillme.types import Interval, NotEstimable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which people with any colour vision can tell apart."""

SHAPES = ("o", "s", "D", "^", "v", "P")
GREY = "#8a8478"


def new_figure(width: float, height: float, data: ReportData) -> Any:
    """A figure in inches, marked at its foot where the data are made up."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    if data.marks:
        figure.supxlabel(" · ".join(data.marks), fontsize=7, color="#a33a00", x=1.0, ha="right")
    return figure


def place_of(data: ReportData, editor: str) -> int:
    """An editor's colour and shape are its own in every figure."""
    return data.edits.editors.index(editor) if editor in data.edits.editors else 0


def points(
    axes: Any, places: Sequence[float], outcomes: Sequence[Interval | NotEstimable], editor: int, label: str = ""
) -> None:
    """Values with their intervals, up the page."""
    known = [(at, each) for at, each in zip(places, outcomes, strict=True) if isinstance(each, Interval)]
    if not known:
        return
    colour = COLOURS[editor % len(COLOURS)]
    at = [spot for spot, _ in known]
    # A line, not an error bar: a bootstrap-t interval need not hold the value itself.
    axes.vlines(at, [each.low for _, each in known], [each.high for _, each in known], color=colour, linewidth=1.1)
    values = [each.value for _, each in known]
    axes.plot(at, values, SHAPES[editor % len(SHAPES)], color=colour, markersize=4, label=label or None)


def legend(figure: Any) -> None:
    """Who is who, once, above all panels; nothing where one editor stands alone."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def side_steps(count: int, width: float = 0.6) -> list[float]:
    """Where `count` editors stand beside one another around a group's place."""
    return [0.0] if count == 1 else [width * (each / (count - 1) - 0.5) for each in range(count)]


def percent(axes: Any, which: str = "y") -> None:
    """Label an axis of shares in percent."""
    from matplotlib.ticker import PercentFormatter

    getattr(axes, f"{which}axis").set_major_formatter(PercentFormatter(1.0, decimals=0))
