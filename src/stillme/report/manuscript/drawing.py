"""What the figures of a manuscript share: colours, points with intervals, and the disclosure of made-up data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillme import images, numbers
from stillme.report import thumbnails
from stillme.report.data import ReportData
from stillme.types import Interval, NotEstimable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which people with colour-vision deficiency can tell apart."""

SHAPES = ("o", "s", "D", "^", "v", "P")
GREY = "#8a8478"
LEFT_OUT = "pictures are left out"
_WIDTH = 320
"""Pixels of a picture."""


def new_figure(width: float, height: float, data: ReportData) -> Any:
    """A figure in inches, with a line at its foot where the data are made up."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    if data.disclosures:
        figure.supxlabel(" · ".join(data.disclosures), fontsize=7, color="#a33a00", x=1.0, ha="right")
    return figure


def style_of(data: ReportData, editor: str) -> int:
    """An editor's index in the colours and shapes, the same in every figure."""
    return data.edits.editors.index(editor) if editor in data.edits.editors else 0


def points(
    axes: Any, positions: Sequence[float], outcomes: Sequence[Interval | NotEstimable], style: int, label: str = ""
) -> None:
    """Values with vertical intervals."""
    known = [(x, outcome) for x, outcome in zip(positions, outcomes, strict=True) if isinstance(outcome, Interval)]
    if not known:
        return
    xs, intervals = zip(*known, strict=True)
    colour = COLOURS[style % len(COLOURS)]
    # A line, not an error bar: an interval need not contain the value itself.
    lows, highs = [interval.low for interval in intervals], [interval.high for interval in intervals]
    axes.vlines(xs, lows, highs, color=colour, linewidth=1.1)
    values = [interval.value for interval in intervals]
    axes.plot(xs, values, SHAPES[style % len(SHAPES)], color=colour, markersize=4, label=label or None)


def legend(figure: Any) -> None:
    """One legend above all panels; none where there is one editor."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def offsets(count: int, width: float = 0.5) -> list[float]:
    """How far `count` editors are shifted sideways, so that they do not overlap at a group's position."""
    return [0.0] if count == 1 else [width * (index / (count - 1) - 0.5) for index in range(count)]


def show(
    axes: Any, path: Path | None, data: ReportData, *, head: str = "", label: str = "", absent: str = "not found"
) -> None:
    """A picture without ticks, blurred where the report is; `absent` where there is none."""
    encoded = thumbnails.encode(path, data.redact, _WIDTH) if path is not None else b""
    if encoded:
        axes.imshow(images.read_rgb(encoded), interpolation="bicubic")
    else:
        axes.text(0.5, 0.5, absent, ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(numbers.factor_name(head), fontsize=7)
    axes.set_ylabel(label, fontsize=7)


def percent(axes: Any, which: str = "y") -> None:
    """Label an axis of shares in percent."""
    from matplotlib.ticker import PercentFormatter

    getattr(axes, f"{which}axis").set_major_formatter(PercentFormatter(1.0, decimals=0))
