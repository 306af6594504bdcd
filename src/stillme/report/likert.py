"""Diverging bars: how each group's answers spread over a scale, to either side of an unchanged person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import EditState, RatingState, Scores
from stillme.report import forest, numbers
from stillme.report.data import ReportData
from stillme.rubric import Axis

WIDTH, ROW, LABEL, END, TOP, BAR = 470, 24, 112, 44, 8, 16
STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One editor's answers on one axis, by group."""

    axis: Axis
    judge: str
    editor: str
    arm: str
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Group and how many answers fell on 1, 2, 3, 4 and 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One axis by one factor: a panel per editor."""

    axis: str
    title: str
    judge: str
    factor: str
    legend: tuple[tuple[str, str], ...]
    """The step's class, and its words."""
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""


def bars(data: ReportData) -> list[Bars]:
    """Every scale that somebody answered, by every factor; axes on which nothing ever moved are left out."""
    found: list[Bars] = []
    for score in sorted(data.headline_scores, key=lambda each: (_place(each.axis), each.judge)):
        axis = rubric.load().axes.get(score.axis)
        if axis is None or not axis.is_scale:
            continue
        for factor in data.settings.factors:
            spreads = list(_spreads(data, score, axis, factor))
            if any(_moved(spread) for spread in spreads):
                found.append(_figure(factor, spreads))
    return found


def steps(values: NDArray[np.float64], axis: Axis) -> NDArray[np.int64]:
    """The step that a value counts to: between two, the one nearer to an unchanged person.

    So a bar's steps agree with the named rates, which count from a whole score on.
    """
    middle = _middle(axis)
    return np.clip(middle + np.trunc(np.round(values - middle, 9)), 1, STEPS).astype(np.int64)


def _place(axis: str) -> int:
    return list(rubric.load().axes).index(axis) if axis in rubric.load().axes else len(rubric.load().axes)


def _middle(axis: Axis) -> float:
    # Edit success has no unchanged person; its named rates lie to either side of 3.
    return 3.0 if axis.unchanged is None else axis.unchanged


def _spreads(data: ReportData, score: Scores, axis: Axis, factor: str) -> Iterator[Spread]:
    edits = data.edits
    levels, codes = edits.levels(factor)
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED) & (codes[edits.portrait] >= 0)
    for editor in sorted(range(len(edits.editors)), key=edits.editors.__getitem__):
        here = rated & (edits.editor == editor) & (edits.arm == edits.arms.index(data.plain_arm))
        if not here.any():
            continue
        counts = np.zeros((len(levels), STEPS), dtype=np.int64)
        np.add.at(counts, (codes[edits.portrait[here]], steps(score.value[here], axis) - 1), 1)
        yield Spread(
            axis=axis,
            judge=score.judge,
            editor=edits.editors[editor],
            arm=data.plain_arm,
            groups=tuple((level, tuple(counts[row].tolist())) for row, level in enumerate(levels)),
        )


def _moved(spread: Spread) -> bool:
    total = np.array([counts for _, counts in spread.groups]).sum(axis=0)
    return int(np.count_nonzero(total)) > 1


def _figure(factor: str, spreads: Sequence[Spread]) -> Bars:
    axis = spreads[0].axis
    shares = [share for spread in spreads for _, counts in spread.groups for share in [_sides(axis, counts)]]
    left, right = max(share[0] for share in shares), max(share[1] for share in shares)
    return Bars(
        axis=axis.name,
        title=axis.title,
        judge=spreads[0].judge,
        factor=numbers.factor(factor),
        legend=tuple((_tone(axis, step), f"{step} {axis.short[step - 1]}") for step in range(1, STEPS + 1)),
        panels=tuple((spread.editor, spread.arm, _draw(spread, factor, left, right)) for spread in spreads),
    )


def _sides(axis: Axis, counts: Sequence[int]) -> tuple[float, float]:
    """How far a bar reaches to the left and to the right of the middle, as shares."""
    total = sum(counts) or 1
    middle = int(_middle(axis))
    half = counts[middle - 1] / 2 if axis.unchanged != 1 else counts[0]
    left = sum(counts[: middle - 1]) + half
    return left / total, (sum(counts) - left) / total


def _draw(spread: Spread, factor: str, left: float, right: float) -> Markup:
    axis = spread.axis
    room = WIDTH - LABEL - END
    unit = room / max(left + right, 1e-9)
    zero = LABEL + left * unit
    body: list[Markup] = []
    for row, (group, counts) in enumerate(spread.groups):
        y = TOP + ROW * row
        body.append(
            Markup('<text class="label" x="{}" y="{}">{}<title>{}</title></text>').format(
                LABEL - 10, _px(y + 13), forest.shortened(group), group
            )
        )
        total = sum(counts)
        if not total:
            body.append(Markup('<text class="none" x="{}" y="{}">no answers</text>').format(LABEL, _px(y + 13)))
            continue
        x = zero - _sides(axis, counts)[0] * unit
        for step, count in enumerate(counts, start=1):
            width = unit * count / total
            if count:
                body.append(
                    Markup(
                        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}, {} of {}</title></rect>'
                    ).format(_tone(axis, step), _px(x), y, _px(width), BAR, group, axis.short[step - 1], count, total)
                )
            x += width
        body.append(Markup('<text class="count" x="{}" y="{}">{:,}</text>').format(WIDTH, _px(y + 13), total))
    height = TOP + ROW * len(spread.groups) + 2
    body.append(Markup('<line class="middle" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(_px(zero), height - 4))
    return Markup('<svg class="forest likert" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, _spoken(spread, factor), Markup("").join(body)
    )


def _tone(axis: Axis, step: int) -> str:
    """The class that colours a step: by its distance from the middle, and on which side it lies."""
    away = step - int(_middle(axis))
    if axis.unchanged == 1:
        return f"up-{away}" if away else "mid"
    return f"{'up' if away > 0 else 'down'}-{2 * abs(away)}" if away else "mid"


def _spoken(spread: Spread, factor: str) -> str:
    groups: list[str] = []
    for group, counts in spread.groups:
        total = sum(counts)
        said = ", ".join(
            f"{100 * count / total:.0f} % {spread.axis.short[step]}" for step, count in enumerate(counts) if count
        )
        groups.append(f"{group}: {said or 'no answers'}")
    return f"{spread.axis.title}, {spread.editor}, by {numbers.factor(factor)}. {'; '.join(groups)}."


def _px(value: float) -> str:
    return f"{value:.1f}"
