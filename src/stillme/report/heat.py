"""Heat maps, group × instruction: where a change happens, and to whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.core import rubric
from stillme.core.rubric import axis_of, rate_of
from stillme.core.types import Interval
from stillme.estimates import Disparity, EditState, RatingState, Scores, numbers
from stillme.estimates.intervals import wilson
from stillme.estimates.quantities import meets
from stillme.report import links
from stillme.report.data import ReportData

SHADES = 9
"""Steps of colour on each side of no change."""

_FEWEST = 2
"""Instructions and groups below which a heat map says no more than a forest plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One group under one instruction."""

    text: str
    shade: str
    tooltip: str
    rows: str
    """The address of the rows behind it; empty where there are none."""


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
                    yield Square(text="·", shade="", tooltip="no value", rows="")
                    continue
                mean = float(means[index, prompt, code])
                yield Square(
                    text=_text(quantity, mean),
                    shade=_shade(quantity, mean, largest),
                    tooltip=f"{level}: {_tooltip(quantity, mean, count, data.settings.confidence)}",
                    rows=links.cell_of(gap, prompt=edits.prompts[prompt].id, group=level),
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
