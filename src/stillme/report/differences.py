"""Differences from zero, by group: as a drawing and as cells of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import numbers
from stillme.report import forest, svg
from stillme.report.forest import Scale

ROW, TOP = 24, 26

Row = tuple[str, str, tuple[str, ...]]
"""Title, who and on how much, and a cell per measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Axes down, measures across."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]


def draw(axis: str, what: str, groups: Sequence[tuple[str, Interval | NotEstimable]]) -> Markup:
    """Everyone and each group, with the line of no difference."""
    intervals = [outcome for _, outcome in groups if isinstance(outcome, Interval)]
    scale = Scale(
        low=min([-0.25, *(interval.low for interval in intervals)]),
        high=max([0.25, *(interval.high for interval in intervals)]),
    )
    bottom = TOP + ROW * len(groups)
    parts = [forest.axis(axis, scale, bottom), svg.reference_line(scale.at(0), TOP - 6, bottom)]
    for row, (group, outcome) in enumerate(groups):
        y = TOP + ROW * row + ROW / 2
        parts.append(svg.label(y, group or "everyone"))
        if isinstance(outcome, Interval):
            value, low, high = (points(part) for part in (outcome.value, outcome.low, outcome.high))
            parts.append(svg.whisker(scale.at(outcome.low), scale.at(outcome.high), y))
            parts.append(svg.point(scale.at(outcome.value), y, 4.5))
            parts.append(svg.value(y, value, f"{low} to {high}"))
    spoken = "; ".join(f"{group or 'everyone'} {cell(outcome, plus=True)}" for group, outcome in groups)
    return svg.svg("forest", (svg.WIDTH, bottom + 8), f"{numbers.title(axis)}, {what}: {spoken}", parts)


def cell(outcome: Interval | NotEstimable | None, *, share: bool = False, plus: bool = False) -> str:
    """`+0.31 (+0.20 to +0.42)`, a share as `12 % (8 to 17)`, or a dash."""
    if not isinstance(outcome, Interval):
        return "–"
    if share:
        low, high = (numbers.decimal(100 * limit, 0) for limit in (outcome.low, outcome.high))
        return f"{numbers.percent(outcome.value, 0)} ({low} to {high})"
    value, low, high = (numbers.decimal(part, 2, plus=plus) for part in (outcome.value, outcome.low, outcome.high))
    return f"{value} ({low} to {high})"


def points(value: float) -> str:
    """A difference on a scale, with its sign."""
    return numbers.decimal(value, 2, plus=True)
