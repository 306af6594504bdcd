"""Group × instruction: where a change happens, and to whom, in one table of shades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import Disparity, EditState, RatingState, Scores
from stillme.estimates.cuts import rate_of
from stillme.estimates.quantiles import wilson
from stillme.estimates.quantities import holds
from stillme.report import links, numbers
from stillme.report.data import ReportData
from stillme.types import Interval

SHADES = 9
"""Steps of colour on each side of nothing."""

_FEWEST = 2
"""Instructions and groups below which a table of shades says no more than a forest plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One group under one instruction."""

    text: str
    shade: str
    said: str
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
    """Instruction's id and text, and its squares."""


def heat_maps(data: ReportData, order: Sequence[tuple[str, str, str]]) -> list[HeatMap]:
    """A map for each (quantity, judge, factor), in this order, where there are several instructions and groups."""
    found: list[HeatMap] = []
    for quantity, judge, factor in order:
        score = _score(data, quantity, judge)
        if score is not None and len(data.edits.levels(factor)[0]) >= _FEWEST:
            heat = _map(data, quantity, score, factor)
            if len(heat.rows) >= _FEWEST:
                found.append(heat)
    return found


def _score(data: ReportData, quantity: str, judge: str) -> Scores | None:
    rate = rate_of(quantity)
    axis = rate.axis if rate else quantity
    return next((each for each in data.scores if each.axis == axis and each.judge == judge), None)


def _map(data: ReportData, quantity: str, score: Scores, factor: str) -> HeatMap:
    edits = data.edits
    levels, codes = edits.levels(factor)
    owners = [
        each
        for each in data.headlines
        if isinstance(each, Disparity) and each.quantity == quantity and each.judge == score.judge
        if each.factor == factor and isinstance(each.outcome, Interval)
    ]
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED) & (codes[edits.portrait] >= 0)
    values = _values(quantity, score.value)
    sums, counts = (np.zeros((len(owners), len(edits.prompts), len(levels))) for _ in range(2))
    for place, owner in enumerate(owners):
        here = rated & (edits.editor == edits.editors.index(owner.editor)) & (edits.arm == edits.arms.index(owner.arm))
        at = edits.prompt[here], codes[edits.portrait[here]]
        np.add.at(sums[place], at, values[here])
        np.add.at(counts[place], at, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    largest = float(np.nanmax(np.abs(means))) if np.isfinite(means).any() else 0.0
    asked = np.flatnonzero(counts.sum(axis=(0, 2)))
    return HeatMap(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        judge=score.judge,
        factor=numbers.factor(factor),
        editors=tuple((owner.editor, owner.arm) for owner in owners),
        groups=levels,
        rows=tuple(
            (
                edits.prompts[prompt].id,
                edits.prompts[prompt].text,
                tuple(_squares(owners, levels, edits.prompts[prompt].id, sums, counts, int(prompt), largest, data)),
            )
            for prompt in asked
        ),
    )


def _squares(
    owners: Sequence[Disparity],
    levels: Sequence[str],
    prompt: str,
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
    row: int,
    largest: float,
    data: ReportData,
) -> Iterator[Square]:
    for place, owner in enumerate(owners):
        for column, level in enumerate(levels):
            count = int(counts[place, row, column])
            if not count:
                yield Square(text="·", shade="", said="no value", rows="")
                continue
            mean = float(sums[place, row, column]) / count
            yield Square(
                text=_text(owner.quantity, mean),
                shade=_shade(owner.quantity, mean, largest),
                said=_said(owner.quantity, mean, count, level, data.settings.confidence),
                rows=links.cell_of(owner, prompt=prompt, group=level),
            )


def _values(quantity: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    rate = rate_of(quantity)
    return holds(rate, values) if rate else values


def _text(quantity: str, mean: float) -> str:
    if numbers.is_rate(quantity):
        return f"{100 * mean:.0f}"
    return numbers.number(quantity, mean, plus=numbers.signed(quantity))


def _said(quantity: str, mean: float, count: int, level: str, confidence: float) -> str:
    if not numbers.is_rate(quantity):
        return f"{level}: {numbers.number(quantity, mean, plus=numbers.signed(quantity))}, mean of {count}"
    low, high = wilson(mean, count, confidence)
    return f"{level}: {round(mean * count)} of {count}, {100 * mean:.0f} % ({100 * low:.0f} to {100 * high:.0f} %)"


def _shade(quantity: str, mean: float, largest: float) -> str:
    """`up-7` or `down-2`; rates share one scale from nothing to everybody, so that maps can be compared."""
    axis = rubric.load().axes.get(quantity)
    middle = axis.unchanged if axis is not None and axis.is_scale and axis.unchanged else 0.0
    reach = 1.0 if numbers.is_rate(quantity) else max(largest - middle, 1e-9)
    step = min(SHADES, math.ceil(SHADES * abs(mean - middle) / reach - 1e-9))
    return f"{'up' if mean >= middle else 'down'}-{step}" if step else "zero"
