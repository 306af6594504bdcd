"""Judges on changes of known size, drawn: shares by skin tone with their limits, and the share noticed at each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.estimates import numbers
from stillme.report import svg
from stillme.report.data import Calibrated, CalibratedAxis, Dose, GroupShare

WIDTH, ROW, LABEL, TOP = 320, 18, 76, 18
_CURVE = (320, 118, 30, 20)
"""Width, height, left and bottom margin of a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisDrawing:
    """One axis of one judge."""

    title: str
    verdict: str
    limits: Markup
    curve: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationDrawing:
    """One judge's calibration."""

    judge: str
    portraits: str
    pairs: int
    axes: tuple[AxisDrawing, ...]


def drawings(calibrations: Sequence[Calibrated]) -> list[CalibrationDrawing]:
    """Every judge with every axis that has calibration pairs."""
    return [
        CalibrationDrawing(
            judge=calibration.judge,
            portraits=calibration.portraits,
            pairs=calibration.pairs,
            axes=tuple(
                AxisDrawing(
                    title=numbers.title(axis.axis),
                    verdict=axis.verdict,
                    limits=_limits(axis),
                    curve=_curve(axis.axis, axis.curve),
                )
                for axis in calibration.axes
                if axis.false_alarms or axis.sensitivity
            ),
        )
        for calibration in calibrations
    ]


def _limits(axis: CalibratedAxis) -> Markup:
    blocks = [
        ("says “changed” where nothing did", "at most", axis.false_alarm_limit, axis.false_alarms),
        ("notices what it must notice", "at least", axis.sensitivity_limit, axis.sensitivity),
    ]
    height = TOP + ROW * sum(len(shares) + 1 for *_, shares in blocks if shares)
    parts = [
        Markup(
            '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text class="tick" x="{0}" y="10">{3} %</text>'
        ).format(svg.px(_x(tick)), TOP - 4, height, round(100 * tick))
        for tick in (0.0, 0.5, 1.0)
    ]
    y = TOP + ROW / 2
    for head, _, limit, shares in blocks:
        if not shares:
            continue
        parts.append(Markup('<text class="head" x="0" y="{}">{}</text>').format(svg.px(y + 4), head))
        for share in shares:
            y += ROW
            parts.append(_row(share, limit, y))
        y += ROW
    alt = "; ".join(
        f"{head}, {share.group}: {numbers.percent(share.value, 0)}, should be {bound} {numbers.percent(limit, 0)}"
        for head, bound, limit, shares in blocks
        for share in shares
    )
    return svg.svg("forest calibration", (WIDTH, height + 4), f"{numbers.title(axis.axis)}: {alt}", parts)


def _row(share: GroupShare, limit: float, y: float) -> Markup:
    tick = Markup('<line class="limit" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
    return (
        svg.label(y, share.group, x=LABEL - 8)
        + svg.whisker(_x(share.low), _x(share.high), y)
        + svg.point(_x(share.value), y, 3.6)
        + tick.format(svg.px(_x(limit)), svg.px(y - 7), svg.px(y + 7))
    )


def _x(share: float) -> float:
    return LABEL + min(1.0, max(0.0, share)) * (WIDTH - LABEL - 14)


def _curve(axis: str, doses: Sequence[Dose]) -> Markup:
    if len(doses) < 2:
        return Markup("")
    width, height, left, bottom = _CURVE
    low, high = min(0.0, doses[0].amount), max(0.0, doses[-1].amount)

    def x(amount: float) -> float:
        return left + (amount - low) / (high - low) * (width - left - 12)

    def y(share: float) -> float:
        return 8 + (1 - share) * (height - 8 - bottom)

    parts = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="tick end" x="{}" y="{}">{:.0f}</text>'
        ).format(left, width - 12, svg.px(y(share)), svg.px(y(share)), left - 4, svg.px(y(share) + 3.5), 100 * share)
        for share in (0.0, 0.5, 1.0)
    ]
    parts += [
        Markup('<text class="tick" x="{}" y="{}">{}</text>').format(
            svg.px(x(dose.amount)), height - 6, f"{dose.amount:+g}".replace("-", "−")
        )
        for dose in doses
    ]
    for order, group in enumerate(share.group for share in doses[0].shares):
        points = " ".join(
            f"{svg.px(x(dose.amount))},{svg.px(y(share.value))}"
            for dose in doses
            for share in dose.shares
            if share.group == group
        )
        line = Markup('<polyline class="dose dose-{}" points="{}"><title>{}</title></polyline>')
        parts.append(line.format(order, points, group))
    alt = "; ".join(
        f"{dose.amount:+g}: " + ", ".join(f"{share.group} {numbers.percent(share.value, 0)}" for share in dose.shares)
        for dose in doses
    )
    title = f"{numbers.title(axis)}, share noticed by size of the change. {alt}"
    return svg.svg("forest curve", (width, height), title, parts)
