"""Figures of gaps: forest plots of a quantity by a factor, planted gaps, and heat maps of instructions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from stillme.core import rubric
from stillme.core.rubric import rate_of
from stillme.core.types import Estimate, Interval, PlantedGap
from stillme.estimates import Disparity, EditState, RatingState, Scores, headlines, numbers
from stillme.estimates.headlines import axis_of
from stillme.estimates.intervals import wilson
from stillme.estimates.quantities import meets
from stillme.report import svg
from stillme.report.data import ReportData
from stillme.report.embedding import cell_of, rows_of
from stillme.report.findings import Findings, without_twins
from stillme.report.svg import LABEL, ROW, TOP, WIDTH, Scale, px

Key = tuple[str, str, str]
"""Quantity, judge, factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantity by a factor."""

    quantity: str
    title: str
    unit: str
    factor: str
    judge: str
    panels: tuple[tuple[str, str, Markup, str], ...]
    """Editor, arm, drawing, and what the test says of this editor's gap, if it is significant."""
    same: tuple[str, ...] = ()
    """Titles of quantities that are equal to this one, edit by edit, and therefore not drawn."""


def panels(data: ReportData, findings: Findings) -> dict[Key, list[Panel]]:
    """Every forest plot of a headline quantity that differs at all, significant gaps first."""
    gaps = [gap for gap in data.headlines if isinstance(gap, Disparity) and headlines.is_headline(gap.quantity)]
    varying = {_key(gap) for gap in gaps if _varies(gap)}
    by_key = panels_of(data, [gap for gap in gaps if _key(gap) in varying])
    certain = {key for key, _ in significant(findings)}
    factors = data.settings.factors

    def order(key: Key) -> tuple[bool, int, int, Key]:
        quantity, _, factor = key
        factor_order = factors.index(factor) if factor in factors else len(factors)
        return key not in certain, headlines.order_of(quantity), factor_order, key

    return {key: by_key[key] for key in sorted(by_key, key=order)}


def panels_of(data: ReportData, gaps: Iterable[Disparity]) -> dict[Key, list[Panel]]:
    """Each gap with its groups and with everyone, by figure."""
    everyone = {_identity(estimate): estimate for estimate in data.headlines if estimate.scope == "all"}
    groups: dict[tuple[str, ...], list[Estimate]] = {}
    for estimate in data.headlines:
        if estimate.scope == "group":
            groups.setdefault((*_identity(estimate), estimate.factor), []).append(estimate)
    by_key: dict[Key, list[Panel]] = {}
    for gap in gaps:
        identity = _identity(gap)
        if identity in everyone:
            of_gap = sorted(groups.get((*identity, gap.factor), []), key=lambda group: group.group)
            by_key.setdefault(_key(gap), []).append(Panel(gap, everyone[identity], of_gap))
    return by_key


def significant(findings: Findings) -> dict[tuple[Key, str], str]:
    """By figure and editor: the test's result in words, where the groups are said to differ."""
    return {
        (_key(gap.disparity), gap.disparity.editor): f"{gap.finding.word}, {numbers.p_value(gap.finding.p)} (Holm)"
        for gap in findings.gaps
        if gap.is_significant and gap.finding.p is not None
    }


def twins(data: ReportData, keys: Iterable[Key]) -> dict[Key, list[str]]:
    """The figures to draw, each with the titles of quantities that are equal to it, edit by edit."""
    by_factor: dict[str, list[Key]] = {}
    for key in keys:
        by_factor.setdefault(key[2], []).append(key)
    return {
        (*place, factor): same
        for factor, of_factor in by_factor.items()
        for place, same in without_twins(data, (key[:2] for key in of_factor)).items()
    }


def figure(key: Key, panels: list[Panel], tested: Mapping[tuple[Key, str], str], same: Sequence[str] = ()) -> Figure:
    """Draw one; `tested` is what `significant` gives."""
    quantity, judge, factor = key
    scale = scale_of(panels)
    return Figure(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        factor=numbers.factor_name(factor),
        judge=judge,
        panels=tuple(
            (panel.gap.editor, panel.gap.arm, draw(panel, scale), tested.get((key, panel.gap.editor), ""))
            for panel in panels
        ),
        same=tuple(same),
    )


def planted_rows(gaps: Iterable[PlantedGap]) -> list[dict[str, object]]:
    """Injected next to measured, on one scale per quantity."""
    gaps = list(gaps)
    values: dict[str, list[float]] = {}
    for gap in gaps:
        of_quantity = values.setdefault(gap.quantity, [])
        if isinstance(gap.recovered, Interval):
            of_quantity += [gap.planted, gap.recovered.low, gap.recovered.high]
    return [_planted_row(gap, dumbbell_span(values[gap.quantity])) for gap in gaps]


def _planted_row(gap: PlantedGap, span: tuple[float, float]) -> dict[str, object]:
    def text(value: float) -> str:
        return numbers.number(gap.quantity, value, plus=True)

    recovered = gap.recovered if isinstance(gap.recovered, Interval) else None
    return {
        "gap": gap,
        "title": numbers.title(gap.quantity),
        "planted": f"{text(gap.planted)} {numbers.symbol(gap.quantity)}".strip(),
        "realised": text(gap.realised.value) if isinstance(gap.realised, Interval) else "–",
        "recovered": text(recovered.value) if recovered else "not estimable",
        "span": numbers.span(gap.quantity, recovered, plus=True) if recovered else getattr(gap.recovered, "reason", ""),
        "drawing": dumbbell(gap.planted, recovered, span) if recovered else Markup(""),
        "covered": recovered.low <= gap.planted <= recovered.high if recovered else None,
    }


def _varies(gap: Disparity) -> bool:
    return isinstance(gap.outcome, Interval) and (gap.outcome.value > 0 or bool(gap.null and gap.null.high > 0))


def _key(estimate: Estimate) -> Key:
    return estimate.quantity, estimate.judge, estimate.factor


def _identity(estimate: Estimate) -> tuple[str, str, str, str]:
    return estimate.quantity, estimate.editor, estimate.arm, estimate.judge


SHADES = 9
"""Steps of colour on each side of no change."""

_FEWEST = 2
"""Instructions and groups below which a heat map says no more than a forest plot."""


Square = tuple[str, str, str, str]
"""One group under one instruction: text, shade, tooltip, and the address of its rows; empty where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """One quantity: instructions down, groups of each editor across."""

    quantity: str
    title: str
    unit: str
    judge: str
    factor: str
    editors: tuple[tuple[str, str], ...]
    """Editor and arm."""
    groups: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Square, ...]], ...]
    """The instruction's id and text, and its squares."""


def heat_maps(data: ReportData, order: Sequence[tuple[str, str, str]]) -> list[HeatMap]:
    """A map for each (quantity, judge, factor), in this order, where there are several instructions and groups."""
    maps: list[HeatMap] = []
    for quantity, judge, factor in order:
        axis = axis_of(quantity)
        score = next((score for score in data.scores if score.axis == axis and score.judge == judge), None)
        if score is not None and len(data.edits.levels(factor)[0]) >= _FEWEST:
            heat_map = _heat_map(data, quantity, score, factor)
            if len(heat_map.rows) >= _FEWEST:
                maps.append(heat_map)
    return maps


def _heat_map(data: ReportData, quantity: str, score: Scores, factor: str) -> HeatMap:
    edits = data.edits
    levels, codes = edits.levels(factor)
    gaps = [
        gap
        for gap in data.headlines
        if isinstance(gap, Disparity) and (gap.quantity, gap.judge, gap.factor) == (quantity, score.judge, factor)
        if isinstance(gap.outcome, Interval)
    ]
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED) & (codes[edits.portrait] >= 0)
    rate = rate_of(quantity)
    values = meets(rate, score.value) if rate else score.value
    sums, counts = (np.zeros((len(gaps), len(edits.prompts), len(levels))) for _ in range(2))
    for index, gap in enumerate(gaps):
        rows = rated & (edits.editor == edits.editors.index(gap.editor)) & (edits.arm == edits.arms.index(gap.arm))
        at = edits.prompt[rows], codes[edits.portrait[rows]]
        np.add.at(sums[index], at, values[rows])
        np.add.at(counts[index], at, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    largest = float(np.nanmax(np.abs(means))) if np.isfinite(means).any() else 0.0

    def squares(prompt: int) -> Iterator[Square]:
        for index, gap in enumerate(gaps):
            for code, level in enumerate(levels):
                count = int(counts[index, prompt, code])
                if not count:
                    yield "·", "", "no value", ""
                    continue
                mean = float(means[index, prompt, code])
                yield (
                    _text(quantity, mean),
                    _shade(quantity, mean, largest),
                    f"{level}: {_tooltip(quantity, mean, count, data.settings.confidence)}",
                    cell_of(gap, prompt=edits.prompts[prompt].id, group=level),
                )

    return HeatMap(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        judge=score.judge,
        factor=numbers.factor_name(factor),
        editors=tuple((gap.editor, gap.arm) for gap in gaps),
        groups=levels,
        rows=tuple(
            (edits.prompts[prompt].id, edits.prompts[prompt].text, tuple(squares(prompt)))
            for prompt in np.flatnonzero(counts.sum(axis=(0, 2))).tolist()
        ),
    )


def _text(quantity: str, mean: float) -> str:
    if numbers.is_rate(quantity):
        return numbers.decimal(100 * mean, 0)
    return numbers.number(quantity, mean, plus=numbers.is_signed(quantity))


def _tooltip(quantity: str, mean: float, count: int, confidence: float) -> str:
    if not numbers.is_rate(quantity):
        return f"{_text(quantity, mean)}, mean of {count}"
    low, high = wilson(mean, count, confidence)
    span = f"{numbers.decimal(100 * low, 0)} to {numbers.percent(high, 0)}"
    return f"{round(mean * count)} of {count}, {numbers.percent(mean, 0)} ({span})"


def _shade(quantity: str, mean: float, largest: float) -> str:
    """`up-7` or `down-2`; all rates are on one scale from 0 to 1, so that maps can be compared."""
    axis = rubric.load().axes.get(quantity)
    middle = axis.unchanged if axis is not None and axis.is_scale and axis.unchanged else 0.0
    reach = 1.0 if numbers.is_rate(quantity) else max(largest - middle, 1e-9)
    step = min(SHADES, math.ceil(SHADES * abs(mean - middle) / reach - 1e-9))
    return f"{'up' if mean >= middle else 'down'}-{step}" if step else "zero"


class Panel(NamedTuple):
    """One editor's groups on one quantity."""

    gap: Disparity
    overall: Estimate
    groups: Sequence[Estimate]


def scale_of(panels: Iterable[Panel]) -> Scale:
    """Wide enough for every interval, and for a gap drawn from the left edge."""
    ends: list[float] = []
    widest = 0.0
    for panel in panels:
        for estimate in (panel.overall, *panel.groups):
            if isinstance(estimate.outcome, Interval):
                ends += [estimate.outcome.low, estimate.outcome.high]
        if isinstance(panel.gap.outcome, Interval):
            widest = max(widest, panel.gap.outcome.value, panel.gap.null.high if panel.gap.null else 0.0)
    lowest = min(ends, default=0.0)
    return Scale.around([*(ends or (0.0, 1.0)), max(0.0, lowest) + 1.05 * widest])


def draw(panel: Panel, on: Scale) -> Markup:
    """One panel as an inline SVG with a text alternative."""
    bottom = TOP + ROW * len(panel.groups)
    parts = [svg.axis(panel.gap.quantity, on, bottom)]
    if isinstance(panel.overall.outcome, Interval):
        parts.append(_overall(panel.overall.outcome, on, bottom))
    for row, group in enumerate(panel.groups):
        strong = group.group in (panel.gap.highest, panel.gap.lowest)
        parts.append(_row(group, on, TOP + ROW * row + ROW / 2, strong=strong))
    parts.append(_gap(panel.gap, on, bottom + ROW * 1.9))
    # Its values are links, so it is a group and not one image.
    return svg.svg("forest", (WIDTH, bottom + ROW * 3), _alt(panel), parts, role="group")


def _overall(interval: Interval, on: Scale, bottom: float) -> Markup:
    low, high, mean = on.at(interval.low), on.at(interval.high), on.at(interval.value)
    return Markup(
        '<rect class="overall" x="{0}" y="{1}" width="{2}" height="{3}"/>'
        '<line class="overall-mean" x1="{4}" x2="{4}" y1="{1}" y2="{5}"/>'
    ).format(px(low), TOP - 6, px(max(1.0, high - low)), px(bottom - TOP + 10), px(mean), px(bottom + 4))


def _row(group: Estimate, on: Scale, y: float, *, strong: bool) -> Markup:
    label = svg.label(y, group.group, strong=strong)
    if not isinstance(group.outcome, Interval):
        return label + svg.no_value(y, group.outcome.reason)
    drawn = svg.interval(group.outcome, on, y, 5.5 if strong else 4.5, strong=strong)
    return label + drawn + _value(group, group.outcome, y, strong=strong)


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
    step = svg.round_step((on.high - on.low) / 4)
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
    span = f"{svg.bare(estimate.quantity, interval.low)} to {svg.bare(estimate.quantity, interval.high)}"
    return Markup('<a href="{}">{}</a>').format(rows_of(estimate), svg.value(y, value, span, strong=strong))


def _alt(panel: Panel) -> str:
    groups = "; ".join(f"{group.group} {numbers.with_interval(group)}" for group in panel.groups)
    gap = panel.gap
    chance = f", chance alone up to {numbers.number(gap.quantity, gap.null.high)}" if gap.null else ""
    what = f"{numbers.title(gap.quantity)}, {gap.editor}, by {gap.factor}"
    return f"{what}: {groups}. Largest gap {numbers.with_interval(gap)}{chance}"


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
