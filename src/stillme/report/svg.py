"""The vocabulary of the drawings: a scale with its axis, rows with labels, points, intervals and values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from markupsafe import Markup

from stillme.core.types import Interval
from stillme.estimates import numbers

WIDTH, LABEL, VALUES = 470, 112, 138
"""Of a drawing, of the labels at its left and of the values at its right."""
ROW, TOP = 26, 26
"""Height of a row, and of what stands above the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to pixels; shared by the panels of a figure, so that editors can be compared by eye."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """The x of a value, kept inside the plot."""
        share = (value - self.low) / (self.high - self.low)
        return LABEL + min(1.0, max(0.0, share)) * (WIDTH - LABEL - VALUES)

    @classmethod
    def around(cls, values: Collection[float], margin: float = 0.04) -> Scale:
        """From the smallest value to the largest, with a margin of this share at either side."""
        low, high = min(values), max(values)
        room = margin * (high - low) or 0.5
        return cls(low=low - room, high=high + room)

    @property
    def origin(self) -> float:
        """Where a difference of 0 is drawn: at the axis's own 0 if it has one, else at the left edge."""
        return 0.0 if self.low <= 0 <= self.high else self.low

    def length(self, difference: float) -> float:
        """The x of a difference."""
        return self.at(self.origin + difference)

    def ticks(self) -> list[float]:
        """Round numbers, about four of them."""
        step = round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        return [multiple * step for multiple in range(first, math.floor(self.high / step + 1e-9) + 1)]


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


def round_step(rough: float) -> float:
    """The next of 1, 2, 5, 10, 20 and so on."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def svg(css: str, size: tuple[float, float], alt: str, parts: Iterable[Markup], *, role: str = "img") -> Markup:
    """An inline drawing with a text alternative."""
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="{}" aria-label="{}">{}</svg>').format(
        css, *size, role, alt, Markup("").join(parts)
    )


def label(y: float, text: str, *, x: float = LABEL - 10, strong: bool = False, longest: int = 13) -> Markup:
    """A row's name at its left: on two lines if it is long, with the full name as tooltip if even that is too short."""
    if len(text) <= longest:
        return Markup('<text class="label{}" x="{}" y="{}">{}</text>').format(_strong(strong), x, px(y + 4), text)
    first, second = _two_lines(text, longest + 4)
    full = Markup("<title>{}</title>").format(text)
    line = Markup('<tspan x="{}" y="{}">{}</tspan>')
    return Markup('<text class="label long{}">{}{}{}</text>').format(
        _strong(strong), line.format(x, px(y - 1.5), first), line.format(x, px(y + 9), second), full
    )


def no_value(y: float, reason: str) -> Markup:
    """Why a row has no value."""
    return Markup('<text class="none" x="{}" y="{}">{}</text>').format(LABEL, px(y + 4), reason)


def value(y: float, text: str, span: str, *, strong: bool = False) -> Markup:
    """A row's value and interval at its right."""
    return Markup('<text class="value{}" x="{}" y="{}">{}<tspan class="span" dx="6">{}</tspan></text>').format(
        _strong(strong), WIDTH - VALUES + 14, px(y + 4), text, span
    )


def whisker(low: float, high: float, y: float) -> Markup:
    """An interval."""
    return Markup('<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(px(low), px(high), px(y), px(y))


def point(x: float, y: float, radius: float, *, strong: bool = False) -> Markup:
    """A value."""
    return Markup('<circle class="point{}" cx="{}" cy="{}" r="{}"/>').format(_strong(strong), px(x), px(y), radius)


def interval(known: Interval, on: Scale, y: float, radius: float, *, strong: bool = False) -> Markup:
    """A value with its interval."""
    return whisker(on.at(known.low), on.at(known.high), y) + point(on.at(known.value), y, radius, strong=strong)


def reference_line(x: float, top: float, bottom: float) -> Markup:
    """An upright line to compare values with."""
    return Markup('<line class="reference" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(px(x), top, bottom)


def px(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}"


def _two_lines(text: str, longest: int) -> tuple[str, str]:
    """Broken at the space nearest to the middle that fits, else wherever the first line is full."""
    spaces = [place for place, letter in enumerate(text) if letter == " " and place <= longest]
    middle = min(spaces, key=lambda place: abs(place - len(text) / 2), default=min(longest, -(-len(text) // 2)))
    first, second = text[:middle], text[middle:].strip()
    return first, second if len(second) <= longest else second[: longest - 1] + "…"


def _strong(strong: bool) -> str:
    return " strong" if strong else ""
