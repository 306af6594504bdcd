"""Drawings of the sections Scores, Mitigation and Roles: diverging bars, dumbbells, shares against 50 %."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.rubric import Axis
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import Disparity, EditState, PairedEffect, RatingState, Scores, headlines, holm, numbers
from stillme.estimates.roles import AXES, Adherence, Layout
from stillme.report import svg
from stillme.report.data import ReportData
from stillme.report.svg import LABEL, ROW, TOP, WIDTH, Scale, px

_BAR_ROW, _END, _BAR_TOP, _BAR = 24, 44, 8, 16
STEPS = 5


Groups = tuple[tuple[str, tuple[int, ...]], ...]
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
            by_editor = dict(_distributions(data, score, axis, factor))
            if any(_varies(groups) for groups in by_editor.values()):
                figures.append(_bar_figure(data, score, axis, factor, by_editor))
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


def _distributions(data: ReportData, score: Scores, axis: Axis, factor: str) -> Iterator[tuple[str, Groups]]:
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
        yield editor, tuple((level, tuple(counts[code].tolist())) for code, level in enumerate(levels))


def _varies(groups: Groups) -> bool:
    total = np.array([counts for _, counts in groups]).sum(axis=0)
    return int(np.count_nonzero(total)) > 1


def _bar_figure(data: ReportData, score: Scores, axis: Axis, factor: str, by_editor: Mapping[str, Groups]) -> BarFigure:
    sides = [_sides(axis, counts) for groups in by_editor.values() for _, counts in groups]
    reach = max(left for left, _ in sides), max(right for _, right in sides)
    by = numbers.factor_name(factor)
    return BarFigure(
        axis=axis.name,
        title=axis.title,
        judge=score.judge,
        factor=by,
        legend=tuple((_step_class(axis, step), f"{step} {axis.short[step - 1]}") for step in range(1, STEPS + 1)),
        panels=tuple(
            (editor, data.main_arm, _draw_bars(axis, groups, reach, f"{axis.title}, {editor}, by {by}"))
            for editor, groups in by_editor.items()
        ),
    )


def _sides(axis: Axis, counts: Sequence[int]) -> tuple[float, float]:
    """How far a bar extends to the left and to the right of the middle, as shares."""
    total = sum(counts) or 1
    middle = int(_middle(axis))
    half = counts[middle - 1] / 2 if axis.unchanged != 1 else counts[0]
    left = sum(counts[: middle - 1]) + half
    return left / total, (sum(counts) - left) / total


def _draw_bars(axis: Axis, groups: Groups, reach: tuple[float, float], title: str) -> Markup:
    left, right = reach
    unit = (WIDTH - LABEL - _END) / max(left + right, 1e-9)
    zero = LABEL + left * unit
    parts: list[Markup] = []
    for row, (group, counts) in enumerate(groups):
        y = _BAR_TOP + _BAR_ROW * row
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
                        _step_class(axis, step), px(x), y, px(width), _BAR, group, axis.short[step - 1], count, total
                    )
                )
            x += width
        parts.append(Markup('<text class="count" x="{}" y="{}">{:,}</text>').format(WIDTH, px(middle + 4), total))
    height = _BAR_TOP + _BAR_ROW * len(groups) + 2
    parts.append(Markup('<line class="middle" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(px(zero), height - 4))
    return svg.svg("forest likert", (WIDTH, height), f"{title}. {_alt_of_bars(axis, groups)}.", parts)


def _step_class(axis: Axis, step: int) -> str:
    """The class that colours a step, by its distance from the middle and its side."""
    away = step - int(_middle(axis))
    if axis.unchanged == 1:
        return f"up-{away}" if away else "mid"
    return f"{'up' if away > 0 else 'down'}-{2 * abs(away)}" if away else "mid"


def _alt_of_bars(axis: Axis, groups: Groups) -> str:
    texts: list[str] = []
    for group, counts in groups:
        total = sum(counts)
        shares = (
            f"{numbers.percent(count / total, 0)} {axis.short[step]}" for step, count in enumerate(counts) if count
        )
        texts.append(f"{group}: {', '.join(shares) or 'no answers'}")
    return "; ".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumbbellPanel:
    """One editor's changes on one quantity."""

    editor: str
    drawing: Markup
    sentence: str
    rows: tuple[tuple[str, str, str, str, str], ...]
    """Group, change, p, change at an equal baseline, change beyond an untreated re-run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumbbellFigure:
    """One quantity by one factor under one arm."""

    quantity: str
    title: str
    unit: str
    judge: str
    factor: str
    arm: str
    against: str
    panels: tuple[DumbbellPanel, ...]
    unequal: bool
    """Whether the arm changes groups differently, beyond chance after Holm over all panels, for any editor."""
    reruns: bool
    """Whether there is an untreated re-run to compare with."""


Key = tuple[str, str, str, str]
"""Quantity, judge, factor, arms."""


def dumbbell_figures(data: ReportData) -> list[DumbbellFigure]:
    """Every headline quantity that an arm was compared on; unequal effects first."""
    decides = headlines.deciding(data.standing, {(effect.judge, effect.quantity) for effect in data.mitigation})
    groups: dict[Key, dict[str, list[PairedEffect]]] = {}
    gaps: dict[tuple[Key, str], Disparity] = {}
    everyone: dict[tuple[str, str, str, str], PairedEffect] = {}
    for effect in data.mitigation:
        if not headlines.is_headline_axis(effect.quantity):
            continue
        key = effect.quantity, effect.judge, effect.factor, effect.arm
        if isinstance(effect, Disparity):
            gaps[key, effect.editor] = effect
        elif effect.scope == "all":
            everyone[effect.quantity, effect.judge, effect.arm, effect.editor] = effect
        elif effect.scope == "group":
            groups.setdefault(key, {}).setdefault(effect.editor, []).append(effect)
    tested = {
        place: gap.null.omnibus
        for place, gap in gaps.items()
        if gap.null is not None and (gap.judge, gap.quantity) in decides
        if gap.null.smallest_p <= 1 - data.settings.confidence
    }
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    figures = [_dumbbell_figure(key, editors, gaps, everyone, adjusted, data) for key, editors in groups.items()]

    def order(figure: DumbbellFigure) -> tuple[bool, int, str, str, str]:
        return not figure.unequal, headlines.order_of(figure.quantity), figure.arm, figure.judge, figure.factor

    return sorted((figure for figure in figures if figure.panels), key=order)


def _dumbbell_figure(
    key: Key,
    editors: dict[str, list[PairedEffect]],
    gaps: dict[tuple[Key, str], Disparity],
    everyone: dict[tuple[str, str, str, str], PairedEffect],
    adjusted: dict[tuple[Key, str], float],
    data: ReportData,
) -> DumbbellFigure:
    quantity, judge, factor, arms = key
    arm, _, against = arms.partition(" - ")
    rows = {
        editor: [effect for effect in (everyone.get((quantity, judge, arms, editor)), *effects) if effect is not None]
        for editor, effects in sorted(editors.items())
    }
    shown = [effect for effects in rows.values() for effect in effects]
    ends = [value for effect in shown for value in (effect.before, effect.after) if value is not None]
    scale = Scale.around(ends or (0.0, 1.0), margin=0.06)
    panels = [
        _panel(editor, effects, _sentence(gaps.get((key, editor)), adjusted.get((key, editor))), scale)
        for editor, effects in rows.items()
    ]
    alpha = 1 - data.settings.confidence
    return DumbbellFigure(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        judge=judge,
        factor=numbers.factor_name(factor),
        arm=arm,
        against=against,
        panels=tuple(panels) if len(set(ends)) > 1 else (),
        unequal=any(adjusted.get((key, editor), 1.0) <= alpha for editor in rows),
        reruns=any(isinstance(effect.untreated, Interval) for effect in shown),
    )


def _panel(editor: str, effects: Sequence[PairedEffect], sentence: str, on: Scale) -> DumbbellPanel:
    quantity = effects[0].quantity
    bottom = TOP + ROW * len(effects)
    parts = [svg.axis(quantity, on, bottom)]
    parts += [_effect_row(effect, on, TOP + ROW * row + ROW / 2) for row, effect in enumerate(effects)]
    changes = [(effect.group or "everyone", _change(quantity, effect.outcome)) for effect in effects]
    alt = f"{numbers.title(quantity)}, {editor}: {'; '.join(f'{group} {change}' for group, change in changes)}"
    return DumbbellPanel(
        editor=editor,
        drawing=svg.svg("forest", (svg.WIDTH, bottom + 8), alt, parts),
        sentence=sentence,
        rows=tuple(
            (
                group,
                change,
                "" if effect.p is None else numbers.p_number(effect.p),
                _change(quantity, effect.at_equal_baseline),
                _change(quantity, effect.beyond_untreated),
            )
            for effect, (group, change) in zip(effects, changes, strict=True)
        ),
    )


def _effect_row(effect: PairedEffect, on: Scale, y: float) -> Markup:
    strong = effect.scope == "all"
    parts = [svg.label(y, effect.group or "everyone", strong=strong)]
    if effect.before is None or effect.after is None:
        return parts[0]
    before, after = on.at(effect.before), on.at(effect.after)
    parts += [svg.whisker(before, after, y), svg.point(before, y, 4.5), svg.point(after, y, 5, strong=True)]
    if isinstance(effect.outcome, Interval):
        low, high = (svg.bare(effect.quantity, limit) for limit in (effect.outcome.low, effect.outcome.high))
        value = numbers.number(effect.quantity, effect.outcome.value, plus=True)
        parts.append(svg.value(y, value, f"{low} to {high}", strong=strong))
    return Markup("").join(parts)


def _sentence(gap: Disparity | None, adjusted: float | None) -> str:
    """The asymmetry in words: which two groups change most differently, and whether chance explains it."""
    if gap is None or not isinstance(gap.outcome, Interval):
        return ""
    if gap.lowest == gap.highest:
        return "It changes every group alike."
    distance = f"{numbers.number(gap.quantity, gap.outcome.value)} apart ({numbers.span(gap.quantity, gap.outcome)})"
    sentence = f"It changes {gap.lowest} and {gap.highest} most differently: {distance}"
    if gap.null is not None:
        p = "" if adjusted is None else f"; {numbers.p_value(adjusted)} after Holm"
        sentence += f"; by chance up to {numbers.number(gap.quantity, gap.null.high)} apart{p}"
    return f"{sentence}."


def _change(quantity: str, outcome: Interval | NotEstimable) -> str:
    if not isinstance(outcome, Interval):
        return outcome.reason
    return f"{numbers.number(quantity, outcome.value, plus=True)} ({numbers.span(quantity, outcome, plus=True)})"


_LAYOUTS = {"role_pair": "two people, one request", "role_single": "one person, one request"}
_DIFFERENCE = "pro - anti"
_PRONOUNS = {
    "": "all sentences",
    "pro": "pronoun with it",
    "anti": "pronoun against it",
    "none": "neutral pronoun",
    _DIFFERENCE: "with − against",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFigure:
    """One layout by one judge: a panel per editor and arm."""

    layout: str
    judge: str
    axis: str
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""
    undecided: int
    """Edits that are left out because the judge could not tell, or combined judges disagree."""


def role_figures(data: ReportData) -> list[RoleFigure]:
    """Every layout and judge, for both positions of the two people together."""
    figures: dict[tuple[Layout, str], dict[tuple[str, str], list[Adherence]]] = {}
    for adherence in data.roles:
        if not adherence.place:
            panels = figures.setdefault((adherence.layout, adherence.judge), {})
            panels.setdefault((adherence.editor, adherence.arm), []).append(adherence)
    return [
        RoleFigure(
            layout=_LAYOUTS[layout],
            judge=judge,
            axis=AXES[layout],
            undecided=sum(row.abstained for rows in panels.values() for row in rows if not row.pronoun),
            panels=tuple((editor, arm, _draw_roles(editor, rows)) for (editor, arm), rows in sorted(panels.items())),
        )
        for (layout, judge), panels in figures.items()
    ]


def _draw_roles(editor: str, adherences: list[Adherence]) -> Markup:
    scale = Scale(low=0.0, high=1.0)
    bottom = TOP + ROW * len(adherences)
    parts = [svg.axis("success", scale, bottom), svg.reference_line(scale.at(0.5), TOP - 6, bottom)]
    for row, adherence in enumerate(sorted(adherences, key=lambda adherence: adherence.pronoun == _DIFFERENCE)):
        parts.append(_role_row(adherence, scale, TOP + ROW * row + ROW / 2))
    shares = "; ".join(f"{_PRONOUNS[adherence.pronoun]} {_share(adherence)}" for adherence in adherences)
    return svg.svg("forest", (svg.WIDTH, bottom + 8), f"Stereotype followed, {editor}: {shares}", parts)


def _role_row(adherence: Adherence, on: Scale, y: float) -> Markup:
    strong = not adherence.pronoun
    parts = [svg.label(y, _PRONOUNS[adherence.pronoun], strong=strong, longest=20)]
    interval = adherence.outcome
    if not isinstance(interval, Interval):
        return Markup("").join([*parts, svg.no_value(y, interval.reason)])
    if adherence.pronoun != _DIFFERENCE:
        parts.append(svg.interval(interval, on, y, 5, strong=strong))
    low, high = (numbers.decimal(100 * limit, 0) for limit in (interval.low, interval.high))
    parts.append(svg.value(y, numbers.percent(interval.value), f"{low} to {high}", strong=strong))
    return Markup("").join(parts)


def _share(adherence: Adherence) -> str:
    interval = adherence.outcome
    if not isinstance(interval, Interval):
        return interval.reason
    span = f"{numbers.decimal(100 * interval.low, 1)} to {numbers.percent(interval.high)}"
    return f"{numbers.percent(interval.value)} ({span}), {adherence.edits} edits"
