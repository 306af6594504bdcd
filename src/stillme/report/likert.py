"""Diverging bars: how each group's answers are distributed over a scale, to either side of an unchanged person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.rubric import Axis
from stillme.estimates import EditState, RatingState, Scores, numbers
from stillme.report import svg
from stillme.report.data import ReportData
from stillme.report.svg import LABEL, WIDTH, px

ROW, END, TOP, BAR = 24, 44, 8, 16
STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One editor's answers on one axis, by group."""

    axis: Axis
    judge: str
    editor: str
    arm: str
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Group, and the number of answers 1, 2, 3, 4 and 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarFigure:
    """One axis by one factor: a panel per editor."""

    axis: str
    title: str
    judge: str
    factor: str
    legend: tuple[tuple[str, str], ...]
    """The step's class, and its words."""
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""


def bar_figures(data: ReportData) -> list[BarFigure]:
    """Every scale with answers, by every factor; axes on which all answers are the same are left out."""
    axes = rubric.load().axes
    order = {name: index for index, name in enumerate(axes)}
    figures: list[BarFigure] = []
    for score in sorted(data.headline_scores, key=lambda score: (order.get(score.axis, len(order)), score.judge)):
        axis = axes.get(score.axis)
        if axis is None or not axis.is_scale:
            continue
        for factor in data.settings.factors:
            distributions = list(_distributions(data, score, axis, factor))
            if any(_varies(distribution) for distribution in distributions):
                figures.append(_figure(factor, distributions))
    return figures


def steps(values: NDArray[np.float64], axis: Axis) -> NDArray[np.int64]:
    """The step that a value counts to: between two, the one nearer to an unchanged person.

    So a bar's steps agree with the named rates, which count from a whole score on.
    """
    middle = _middle(axis)
    return np.clip(middle + np.trunc(np.round(values - middle, 9)), 1, STEPS).astype(np.int64)


def _middle(axis: Axis) -> float:
    # Edit success has no unchanged person; its named rates lie to either side of 3.
    return 3.0 if axis.unchanged is None else axis.unchanged


def _distributions(data: ReportData, score: Scores, axis: Axis, factor: str) -> Iterator[Distribution]:
    edits = data.edits
    levels, codes = edits.levels(factor)
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED) & (codes[edits.portrait] >= 0)
    rated &= edits.arm == edits.arms.index(data.main_arm)
    for editor in sorted(edits.editors):
        rows = rated & (edits.editor == edits.editors.index(editor))
        if not rows.any():
            continue
        counts = np.zeros((len(levels), STEPS), dtype=np.int64)
        np.add.at(counts, (codes[edits.portrait[rows]], steps(score.value[rows], axis) - 1), 1)
        yield Distribution(
            axis=axis,
            judge=score.judge,
            editor=editor,
            arm=data.main_arm,
            groups=tuple((level, tuple(counts[code].tolist())) for code, level in enumerate(levels)),
        )


def _varies(distribution: Distribution) -> bool:
    total = np.array([counts for _, counts in distribution.groups]).sum(axis=0)
    return int(np.count_nonzero(total)) > 1


def _figure(factor: str, distributions: Sequence[Distribution]) -> BarFigure:
    axis = distributions[0].axis
    sides = [_sides(axis, counts) for distribution in distributions for _, counts in distribution.groups]
    left, right = max(left for left, _ in sides), max(right for _, right in sides)
    return BarFigure(
        axis=axis.name,
        title=axis.title,
        judge=distributions[0].judge,
        factor=numbers.factor_name(factor),
        legend=tuple((_step_class(axis, step), f"{step} {axis.short[step - 1]}") for step in range(1, STEPS + 1)),
        panels=tuple(
            (distribution.editor, distribution.arm, _draw(distribution, factor, left, right))
            for distribution in distributions
        ),
    )


def _sides(axis: Axis, counts: Sequence[int]) -> tuple[float, float]:
    """How far a bar extends to the left and to the right of the middle, as shares."""
    total = sum(counts) or 1
    middle = int(_middle(axis))
    half = counts[middle - 1] / 2 if axis.unchanged != 1 else counts[0]
    left = sum(counts[: middle - 1]) + half
    return left / total, (sum(counts) - left) / total


def _draw(distribution: Distribution, factor: str, left: float, right: float) -> Markup:
    axis = distribution.axis
    unit = (WIDTH - LABEL - END) / max(left + right, 1e-9)
    zero = LABEL + left * unit
    parts: list[Markup] = []
    for row, (group, counts) in enumerate(distribution.groups):
        y = TOP + ROW * row
        middle = y + 9
        parts.append(svg.label(middle, group))
        total = sum(counts)
        if not total:
            parts.append(svg.no_value(middle, "no answers"))
            continue
        x = zero - _sides(axis, counts)[0] * unit
        for step, count in enumerate(counts, start=1):
            width = unit * count / total
            if count:
                parts.append(
                    Markup(
                        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}, {} of {}</title></rect>'
                    ).format(
                        _step_class(axis, step), px(x), y, px(width), BAR, group, axis.short[step - 1], count, total
                    )
                )
            x += width
        parts.append(Markup('<text class="count" x="{}" y="{}">{:,}</text>').format(WIDTH, px(middle + 4), total))
    height = TOP + ROW * len(distribution.groups) + 2
    parts.append(Markup('<line class="middle" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(px(zero), height - 4))
    return svg.svg("forest likert", (WIDTH, height), _alt(distribution, factor), parts)


def _step_class(axis: Axis, step: int) -> str:
    """The class that colours a step, by its distance from the middle and its side."""
    away = step - int(_middle(axis))
    if axis.unchanged == 1:
        return f"up-{away}" if away else "mid"
    return f"{'up' if away > 0 else 'down'}-{2 * abs(away)}" if away else "mid"


def _alt(distribution: Distribution, factor: str) -> str:
    axis = distribution.axis
    groups: list[str] = []
    for group, counts in distribution.groups:
        total = sum(counts)
        shares = (
            f"{numbers.percent(count / total, 0)} {axis.short[step]}" for step, count in enumerate(counts) if count
        )
        groups.append(f"{group}: {', '.join(shares) or 'no answers'}")
    return f"{axis.title}, {distribution.editor}, by {numbers.factor_name(factor)}. {'; '.join(groups)}."
