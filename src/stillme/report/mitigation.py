"""What another arm changes: dumbbells from before to after, and the asymmetry between groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import Disparity, PairedEffect, headlines, holm, numbers
from stillme.report import forest, svg
from stillme.report.data import ReportData
from stillme.report.forest import Scale

ROW, TOP = 26, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
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
    panels: tuple[Panel, ...]
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
    figures = [_figure(key, editors, gaps, everyone, adjusted, data) for key, editors in groups.items()]
    return sorted((figure for figure in figures if figure.panels), key=_order)


def _order(figure: DumbbellFigure) -> tuple[bool, int, str, str, str]:
    return not figure.unequal, headlines.order_of(figure.quantity), figure.arm, figure.judge, figure.factor


def _figure(
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
    scale = _scale(ends)
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


def _scale(ends: Sequence[float]) -> Scale:
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = 0.06 * (high - low) or 0.5
    return Scale(low=low - margin, high=high + margin)


def _panel(editor: str, effects: Sequence[PairedEffect], sentence: str, on: Scale) -> Panel:
    quantity = effects[0].quantity
    bottom = TOP + ROW * len(effects)
    parts = [forest.axis(quantity, on, bottom)]
    parts += [_row(effect, on, TOP + ROW * row + ROW / 2) for row, effect in enumerate(effects)]
    changes = [(effect.group or "everyone", _change(quantity, effect.outcome)) for effect in effects]
    alt = f"{numbers.title(quantity)}, {editor}: {'; '.join(f'{group} {change}' for group, change in changes)}"
    return Panel(
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


def _row(effect: PairedEffect, on: Scale, y: float) -> Markup:
    strong = effect.scope == "all"
    parts = [svg.label(y, effect.group or "everyone", strong=strong)]
    if effect.before is None or effect.after is None:
        return parts[0]
    before, after = on.at(effect.before), on.at(effect.after)
    parts += [svg.whisker(before, after, y), svg.point(before, y, 4.5), svg.point(after, y, 5, strong=True)]
    if isinstance(effect.outcome, Interval):
        low, high = (forest.bare(effect.quantity, limit) for limit in (effect.outcome.low, effect.outcome.high))
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
