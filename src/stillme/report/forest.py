"""Forest plots as SVG: groups with their intervals, and the gap against what chance gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.core.types import Estimate, Interval
from stillme.estimates import Disparity, numbers
from stillme.report import links, svg
from stillme.report.svg import LABEL, VALUES, WIDTH, px

ROW, TOP = 26, 26


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
        """The x of a value, kept inside the plot."""
        share = (value - self.low) / (self.high - self.low)
        return LABEL + min(1.0, max(0.0, share)) * (WIDTH - LABEL - VALUES)

    @property
    def origin(self) -> float:
        """Where a difference of 0 is drawn: at the axis's own 0 if it has one, else at the left edge."""
        return 0.0 if self.low <= 0 <= self.high else self.low

    def length(self, difference: float) -> float:
        """The x of a difference."""
        return self.at(self.origin + difference)

    def ticks(self) -> list[float]:
        """Round numbers, about four of them."""
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        return [multiple * step for multiple in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale(panels: Iterable[Panel]) -> Scale:
    """Wide enough for every interval, and for a gap drawn from the left edge."""
    ends: list[float] = []
    widest = 0.0
    for panel in panels:
        for estimate in (panel.overall, *panel.groups):
            if isinstance(estimate.outcome, Interval):
                ends += [estimate.outcome.low, estimate.outcome.high]
        if panel.gap and isinstance(panel.gap.outcome, Interval):
            widest = max(widest, panel.gap.outcome.value, panel.gap.null.high if panel.gap.null else 0.0)
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    high = max(high, (0.0 if low <= 0 else low) + 1.05 * widest)
    margin = 0.04 * (high - low) or 0.5
    return Scale(low=low - margin, high=high + margin)


def draw(panel: Panel, on: Scale) -> Markup:
    """One panel as an inline SVG with a text alternative."""
    bottom = TOP + ROW * len(panel.groups)
    parts = [axis(panel.quantity, on, bottom)]
    if isinstance(panel.overall.outcome, Interval):
        parts.append(_overall(panel.overall.outcome, on, bottom))
    extremes = {panel.gap.highest, panel.gap.lowest} if panel.gap else set[str]()
    for row, group in enumerate(panel.groups):
        strong = group.group in extremes
        parts.append(_row(group, on, TOP + ROW * row + ROW / 2, strong=strong))
    if panel.gap:
        parts.append(_gap(panel.gap, on, bottom + ROW * 1.9))
    # Its values are links, so it is a group and not one image.
    return svg.svg("forest", (WIDTH, bottom + (ROW * 3 if panel.gap else 8)), _alt(panel), parts, role="group")


def axis(quantity: str, on: Scale, bottom: float) -> Markup:
    """Grid lines with their numbers."""
    parts: list[Markup] = []
    for tick in on.ticks():
        text = numbers.percent(tick, 0) if numbers.is_rate(quantity) else f"{tick + 0.0:g}".replace("-", "−")
        parts.append(
            Markup(
                '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text class="tick" x="{0}" y="{3}">{4}</text>'
            ).format(px(on.at(tick)), TOP - 6, px(bottom + 4), TOP - 12, text)
        )
    return Markup("").join(parts)


def bare(quantity: str, value: float) -> str:
    """A limit without its unit: the value beside it carries one."""
    return numbers.decimal(100 * value, 0) if numbers.is_rate(quantity) else numbers.number(quantity, value)


def _overall(interval: Interval, on: Scale, bottom: float) -> Markup:
    low, high = on.at(interval.low), on.at(interval.high)
    return Markup(
        '<rect class="overall" x="{}" y="{}" width="{}" height="{}"/>'
        '<line class="overall-mean" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    ).format(
        px(low),
        TOP - 6,
        px(max(1.0, high - low)),
        px(bottom - TOP + 10),
        px(on.at(interval.value)),
        px(on.at(interval.value)),
        TOP - 6,
        px(bottom + 4),
    )


def _row(group: Estimate, on: Scale, y: float, *, strong: bool) -> Markup:
    label = svg.label(y, group.group, strong=strong)
    if not isinstance(group.outcome, Interval):
        return label + svg.no_value(y, group.outcome.reason)
    return (
        label
        + svg.whisker(on.at(group.outcome.low), on.at(group.outcome.high), y)
        + svg.point(on.at(group.outcome.value), y, 5.5 if strong else 4.5, strong=strong)
        + _value(group, group.outcome, y, strong=strong)
    )


def _gap(gap: Disparity, on: Scale, y: float) -> Markup:
    parts = [
        Markup('<line class="rule" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, px(y - ROW), px(y - ROW)),
        svg.label(y, "largest gap", strong=True),
    ]
    if not isinstance(gap.outcome, Interval):
        return Markup("").join([*parts, svg.no_value(y, gap.outcome.reason)])
    if on.origin:
        parts.append(_gap_axis(gap.quantity, on, y))
    if gap.null:
        parts.append(
            Markup(
                '<rect class="chance" x="{}" y="{}" width="{}" height="22"><title>{}</title></rect>'
                '<text class="chance-label" x="{}" y="{}">chance alone: up to {}</text>'
            ).format(
                px(on.length(0.0)),
                px(y - 11),
                px(max(1.0, on.length(gap.null.high) - on.length(0.0))),
                "Gaps when group labels are permuted at random",
                LABEL,
                px(y + 25),
                numbers.number(gap.quantity, gap.null.high),
            )
        )
    interval = gap.outcome
    right = on.length(interval.high)
    parts.append(svg.whisker(on.length(max(0.0, interval.low)), right, y))
    if on.origin + interval.high > on.high:
        # The upper limit lies outside the plot; an arrow says that the line goes on.
        parts.append(Markup('<path class="arrow" d="M{} {}l7 4l-7 4z"/>').format(px(right - 3), px(y - 4)))
    x = on.length(interval.value)
    parts.append(Markup('<path class="gap-point" d="M{} {}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"/>').format(px(x), px(y - 6.5)))
    parts.append(_value(gap, interval, y, strong=True))
    return Markup("").join(parts)


def _gap_axis(quantity: str, on: Scale, y: float) -> Markup:
    """Numbers for the gap where the groups' axis has no 0: two differences, on the same scale."""
    step = _round_step((on.high - on.low) / 4)
    parts: list[Markup] = []
    for tick in (0.0, step, 2 * step):
        text = numbers.percent(tick, 0) if numbers.is_rate(quantity) else f"{tick:g}"
        place = px(on.length(tick)), px(y - ROW + 13)
        parts.append(Markup('<text class="tick" x="{}" y="{}">{}</text>').format(*place, text))
    return Markup("").join(parts)


def _value(estimate: Estimate, interval: Interval, y: float, *, strong: bool) -> Markup:
    # A gap has no direction.
    plus = numbers.is_signed(estimate.quantity) and estimate.scope != "disparity"
    value = numbers.number(estimate.quantity, interval.value, plus=plus)
    span = f"{bare(estimate.quantity, interval.low)} to {bare(estimate.quantity, interval.high)}"
    address = links.rows_of(estimate)
    return Markup('<a href="{}">{}</a>').format(address, svg.value(y, value, span, strong=strong))


def _alt(panel: Panel) -> str:
    groups = "; ".join(f"{group.group} {numbers.with_interval(group)}" for group in panel.groups)
    text = f"{numbers.title(panel.quantity)}, {panel.editor}, by {panel.factor}: {groups}."
    if panel.gap:
        text += f" Largest gap {numbers.with_interval(panel.gap)}"
        if panel.gap.null:
            text += f", chance alone up to {numbers.number(panel.quantity, panel.gap.null.high)}"
    return text


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def dumbbell(planted: float, recovered: Interval, span: tuple[float, float]) -> Markup:
    """A planted value as a tick, the recovered one as a point with its interval."""
    low, high = span

    def x(value: float) -> str:
        return px(6 + 168 * (value - low) / (high - low))

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
