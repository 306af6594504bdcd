"""What judges did on changes of known size, drawn: limits by skin tone, and the share noticed at each size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.report import numbers
from stillme.report.data import Calibrated, CalibratedAxis, Dose, Tried

WIDTH, ROW, LABEL, TOP = 320, 18, 76, 18
_CURVE = (320, 118, 30, 20)
"""Width, height, left and bottom margin of a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAxis:
    """One axis of one judge."""

    title: str
    verdict: str
    limits: Markup
    curve: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnJudge:
    """One judge's calibration, ready to be set."""

    judge: str
    portraits: str
    pairs: int
    axes: tuple[DrawnAxis, ...]


def drawn(calibrated: Sequence[Calibrated]) -> list[DrawnJudge]:
    """Every judge with every axis that was tried."""
    return [
        DrawnJudge(
            judge=each.judge,
            portraits=each.portraits,
            pairs=each.pairs,
            axes=tuple(
                DrawnAxis(
                    title=numbers.title(axis.axis),
                    verdict=axis.verdict,
                    limits=_limits(axis),
                    curve=_curve(axis.axis, axis.curve),
                )
                for axis in each.axes
                if axis.false_alarms or axis.noticed
            ),
        )
        for each in calibrated
    ]


def _limits(axis: CalibratedAxis) -> Markup:
    blocks = [
        ("says “changed” where nothing did", "at most", axis.most_alarms, axis.false_alarms),
        ("notices what it must notice", "at least", axis.least_noticed, axis.noticed),
    ]
    height = TOP + ROW * sum(len(tried) + 1 for *_, tried in blocks if tried)
    body: list[Markup] = []
    for tick in (0.0, 0.5, 1.0):
        body.append(
            Markup(
                '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text class="tick" x="{0}" y="10">{3} %</text>'
            ).format(_px(_x(tick)), TOP - 4, height, round(100 * tick))
        )
    y = TOP + ROW / 2
    for what, _, limit, tried in blocks:
        if not tried:
            continue
        body.append(Markup('<text class="head" x="0" y="{}">{}</text>').format(_px(y + 4), what))
        for each in tried:
            y += ROW
            body.append(_row(each.group, limit, each, y))
        y += ROW
    said = "; ".join(
        f"{what}, {each.group}: {100 * each.value:.0f} %, should be {least} {100 * limit:.0f} %"
        for what, least, limit, tried in blocks
        for each in tried
    )
    return Markup('<svg class="forest calibration" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height + 4, f"{numbers.title(axis.axis)}: {said}", Markup("").join(body)
    )


def _row(label: str, limit: float, tried: Tried, y: float) -> Markup:
    return Markup(
        '<text class="label" x="{}" y="{}">{}</text><line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<circle class="point" cx="{}" cy="{}" r="3.6"/><line class="limit" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    ).format(
        LABEL - 8,
        _px(y + 4),
        label,
        _px(_x(tried.low)),
        _px(_x(tried.high)),
        _px(y),
        _px(y),
        _px(_x(tried.value)),
        _px(y),
        _px(_x(limit)),
        _px(_x(limit)),
        _px(y - 7),
        _px(y + 7),
    )


def _x(share: float) -> float:
    return LABEL + min(1.0, max(0.0, share)) * (WIDTH - LABEL - 14)


def _curve(axis: str, doses: Sequence[Dose]) -> Markup:
    if len(doses) < 2:
        return Markup("")
    width, height, left, bottom = _CURVE
    low, high = min(0.0, doses[0].amount), max(0.0, doses[-1].amount)

    def at(amount: float, share: float) -> tuple[float, float]:
        return left + (amount - low) / (high - low) * (width - left - 12), 8 + (1 - share) * (height - 8 - bottom)

    body: list[Markup] = []
    for share in (0.0, 0.5, 1.0):
        y = at(low, share)[1]
        body.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="tick end" x="{}" y="{}">{:.0f}</text>'
            ).format(left, width - 12, _px(y), _px(y), left - 4, _px(y + 3.5), 100 * share)
        )
    for dose in doses:
        body.append(
            Markup('<text class="tick" x="{}" y="{}">{}</text>').format(
                _px(at(dose.amount, 0)[0]), height - 6, f"{dose.amount:+g}".replace("-", "−")
            )
        )
    for place, group in enumerate(tried.group for tried in doses[0].noticed):
        points = list(_points(doses, group))
        line = " ".join(f"{_px(x)},{_px(y)}" for x, y in (at(amount, share) for amount, share in points))
        body.append(
            Markup('<polyline class="dose dose-{}" points="{}"><title>{}</title></polyline>').format(place, line, group)
        )
    said = "; ".join(
        f"{dose.amount:+g}: " + ", ".join(f"{tried.group} {100 * tried.value:.0f} %" for tried in dose.noticed)
        for dose in doses
    )
    return Markup('<svg class="forest curve" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, f"{numbers.title(axis)}, share noticed by size of the change. {said}", Markup("").join(body)
    )


def _points(doses: Sequence[Dose], group: str) -> Iterator[tuple[float, float]]:
    for dose in doses:
        for tried in dose.noticed:
            if tried.group == group:
                yield dose.amount, tried.value


def _px(value: float) -> str:
    return f"{value:.1f}"
