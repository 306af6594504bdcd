"""Forest plots as SVG, drawn by hand: groups with their intervals, and the gap against what chance makes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.estimates import Disparity
from stillme.report import links, numbers
from stillme.types import Estimate, Interval

WIDTH, ROW, LABEL, VALUES, TOP = 470, 26, 112, 138, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One editor's groups on one quantity."""

    quantity: str
    editor: str
    arm: str
    factor: str
    overall: Estimate
    groups: tuple[Estimate, ...]
    gap: Disparity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to pixels; shared by the panels of a figure, so that editors can be compared by eye."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """The horizontal place of a value, kept inside the plot."""
        share = (value - self.low) / (self.high - self.low)
        return LABEL + min(1.0, max(0.0, share)) * (WIDTH - LABEL - VALUES)

    def length(self, value: float) -> float:
        """The horizontal place of a difference, measured from the left edge in the same unit."""
        return self.at(self.low + value)

    def ticks(self) -> list[float]:
        """Round numbers, about four of them."""
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale(panels: Iterable[Panel]) -> Scale:
    """Wide enough for every interval, and for a gap drawn from the left edge."""
    ends: list[float] = []
    widest = 0.0
    for panel in panels:
        for each in (panel.overall, *panel.groups):
            if isinstance(each.outcome, Interval):
                ends += [each.outcome.low, each.outcome.high]
        if panel.gap and isinstance(panel.gap.outcome, Interval):
            widest = max(widest, panel.gap.outcome.value, panel.gap.null.high if panel.gap.null else 0.0)
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    high = max(high, low + 1.05 * widest)
    room = 0.04 * (high - low) or 0.5
    return Scale(low=low - room, high=high + room)


def draw(panel: Panel, on: Scale) -> Markup:
    """One panel as an inline SVG with a text alternative."""
    quantity = panel.quantity
    height = TOP + ROW * len(panel.groups) + (ROW * 3 if panel.gap else 8)
    bottom = TOP + ROW * len(panel.groups)
    body = [axis(quantity, on, bottom)]
    if isinstance(panel.overall.outcome, Interval):
        body.append(_overall(panel.overall.outcome, on, bottom))
    extremes = {panel.gap.highest, panel.gap.lowest} if panel.gap else set[str]()
    for row, group in enumerate(panel.groups):
        body.append(_row(group, on, TOP + ROW * row + ROW / 2, strong=group.group in extremes))
    if panel.gap:
        body.append(_gap(panel.gap, on, bottom + ROW * 1.9))
    return Markup('<svg class="forest" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        WIDTH, round(height), _spoken(panel), Markup("").join(body)
    )


def axis(quantity: str, on: Scale, bottom: float) -> Markup:
    """Grid lines with their numbers."""
    parts: list[Markup] = []
    for tick in on.ticks():
        x = _px(on.at(tick))
        text = f"{100 * tick:.0f} %" if numbers.is_rate(quantity) else f"{tick + 0.0:g}".replace("-", "−")
        parts.append(
            Markup('<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(x, TOP - 6, _px(bottom + 4))
        )
        parts.append(Markup('<text class="tick" x="{}" y="{}">{}</text>').format(x, TOP - 12, text))
    return Markup("").join(parts)


def _overall(interval: Interval, on: Scale, bottom: float) -> Markup:
    low, high = on.at(interval.low), on.at(interval.high)
    return Markup(
        '<rect class="overall" x="{}" y="{}" width="{}" height="{}"/>'
        '<line class="overall-mean" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    ).format(
        _px(low),
        TOP - 6,
        _px(max(1.0, high - low)),
        _px(bottom - TOP + 10),
        _px(on.at(interval.value)),
        _px(on.at(interval.value)),
        TOP - 6,
        _px(bottom + 4),
    )


def _row(group: Estimate, on: Scale, y: float, *, strong: bool) -> Markup:
    label = Markup('<text class="label{}" x="{}" y="{}">{}<title>{}</title></text>').format(
        " strong" if strong else "", LABEL - 10, _px(y + 4), shortened(group.group), group.group
    )
    if not isinstance(group.outcome, Interval):
        reason = Markup('<text class="none" x="{}" y="{}">{}</text>').format(LABEL, _px(y + 4), group.outcome.reason)
        return label + reason
    interval = group.outcome
    return (
        label
        + Markup('<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            _px(on.at(interval.low)), _px(on.at(interval.high)), _px(y), _px(y)
        )
        + Markup('<circle class="point{}" cx="{}" cy="{}" r="{}"/>').format(
            " strong" if strong else "", _px(on.at(interval.value)), _px(y), 5.5 if strong else 4.5
        )
        + _value(group, interval, y, plus=numbers.signed(group.quantity), strong=strong)
    )


def _gap(gap: Disparity, on: Scale, y: float) -> Markup:
    rule = Markup('<line class="rule" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, _px(y - ROW), _px(y - ROW))
    label = Markup('<text class="label strong" x="{}" y="{}">largest gap</text>').format(LABEL - 10, _px(y + 4))
    if not isinstance(gap.outcome, Interval):
        reason = Markup('<text class="none" x="{}" y="{}">{}</text>').format(LABEL, _px(y + 4), gap.outcome.reason)
        return rule + label + reason
    parts = [rule, label]
    if gap.null:
        width = on.length(gap.null.high) - LABEL
        parts.append(
            Markup(
                '<rect class="chance" x="{}" y="{}" width="{}" height="22"><title>{}</title></rect>'
                '<text class="chance-label" x="{}" y="{}">chance alone: up to {}</text>'
            ).format(
                LABEL,
                _px(y - 11),
                _px(max(1.0, width)),
                "Where the gap falls when group labels are dealt at random",
                LABEL,
                _px(y + 25),
                numbers.number(gap.quantity, gap.null.high),
            )
        )
    interval = gap.outcome
    left, right = on.length(max(0.0, interval.low)), on.length(interval.high)
    parts.append(
        Markup('<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_px(left), _px(right), _px(y), _px(y))
    )
    if interval.high > on.high - on.low:
        # The upper limit lies outside the plot; an arrow says that the line goes on.
        parts.append(Markup('<path class="arrow" d="M{} {}l7 4l-7 4z"/>').format(_px(right - 3), _px(y - 4)))
    x = on.length(interval.value)
    parts.append(
        Markup('<path class="gap-point" d="M{} {}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"/>').format(_px(x), _px(y - 6.5))
    )
    parts.append(_value(gap, interval, y, plus=False, strong=True))
    return Markup("").join(parts)


def _value(found: Estimate, interval: Interval, y: float, *, plus: bool, strong: bool) -> Markup:
    quantity = found.quantity
    return Markup(
        '<a href="{}"><text class="value{}" x="{}" y="{}">{}<tspan class="span" dx="6">{}</tspan></text></a>'
    ).format(
        links.rows_of(found),
        " strong" if strong else "",
        WIDTH - VALUES + 14,
        _px(y + 4),
        numbers.number(quantity, interval.value, plus=plus),
        f"{bare(quantity, interval.low)} to {bare(quantity, interval.high)}",
    )


def bare(quantity: str, value: float) -> str:
    """A limit without its unit: the value beside it carries one."""
    if numbers.is_rate(quantity):
        return f"{round(100 * value) + 0:d}".replace("-", "−")
    return numbers.number(quantity, value)


def _spoken(panel: Panel) -> str:
    groups = "; ".join(f"{each.group} {numbers.limits(each)}" for each in panel.groups)
    said = f"{numbers.title(panel.quantity)}, {panel.editor}, by {panel.factor}: {groups}."
    if panel.gap:
        said += f" Largest gap {numbers.limits(panel.gap)}"
        if panel.gap.null:
            said += f", chance alone up to {numbers.number(panel.quantity, panel.gap.null.high)}"
    return said


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def shortened(name: str) -> str:
    """A label that fits beside a plot."""
    return name if len(name) <= 15 else name[:14] + "…"


def _px(value: float) -> str:
    return f"{value:.1f}"


def dumbbell(planted: float, recovered: Interval, span: tuple[float, float]) -> Markup:
    """A planted value as a tick, what was recovered as a point with its interval."""
    low, high = span

    def x(value: float) -> str:
        return _px(6 + 168 * (value - low) / (high - low))

    return Markup(
        '<svg class="dumbbell" viewBox="0 0 180 22" aria-hidden="true">'
        '<line class="zero" x1="{0}" x2="{0}" y1="1" y2="21"/>'
        '<line class="whisker" x1="{1}" x2="{2}" y1="11" y2="11"/>'
        '<circle class="point" cx="{3}" cy="11" r="4.5"/>'
        '<path class="planted" d="M{4} 2v18"/></svg>'
    ).format(x(0), x(recovered.low), x(recovered.high), x(recovered.value), x(planted))


def dumbbell_span(values: Sequence[float]) -> tuple[float, float]:
    """One scale for a quantity's planted and recovered values, always with zero in it."""
    low, high = min([0.0, *values]), max([0.0, *values])
    return (low, high) if high > low else (low - 0.5, high + 0.5)
