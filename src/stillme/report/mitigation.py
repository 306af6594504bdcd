"""What another arm does to whom: dumbbells from before to after, and the asymmetry between groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.estimates import Disparity, PairedEffect
from stillme.report import forest, numbers
from stillme.report.data import ReportData
from stillme.report.forest import Scale
from stillme.types import Interval, NotEstimable

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
class Dumbbells:
    """One quantity by one factor under one arm."""

    quantity: str
    title: str
    unit: str
    judge: str
    factor: str
    arm: str
    against: str
    panels: tuple[Panel, ...]
    uneven: bool
    """Whether the arm helps some groups more than others, beyond chance, for any editor."""
    reruns: bool
    """Whether there is an untreated re-run to compare with."""


Key = tuple[str, str, str, str]
"""Quantity, judge, factor, arms."""


def dumbbells(data: ReportData) -> list[Dumbbells]:
    """Every headline quantity that an arm was compared on; what is uneven first."""
    groups: dict[Key, dict[str, list[PairedEffect]]] = {}
    gaps: dict[tuple[Key, str], Disparity] = {}
    everyone: dict[tuple[str, str, str, str], PairedEffect] = {}
    for each in data.mitigation:
        if not numbers.is_telling(each.quantity):
            continue
        key = each.quantity, each.judge, each.factor, each.arm
        if isinstance(each, Disparity):
            gaps[key, each.editor] = each
        elif each.scope == "all":
            everyone[each.quantity, each.judge, each.arm, each.editor] = each
        elif each.scope == "group":
            groups.setdefault(key, {}).setdefault(each.editor, []).append(each)
    found = [_figure(key, editors, gaps, everyone, data) for key, editors in groups.items()]
    return sorted(
        (each for each in found if each.panels),
        key=lambda each: (not each.uneven, numbers.headline_place(each.quantity), each.arm, each.judge, each.factor),
    )


def _figure(
    key: Key,
    editors: dict[str, list[PairedEffect]],
    gaps: dict[tuple[Key, str], Disparity],
    everyone: dict[tuple[str, str, str, str], PairedEffect],
    data: ReportData,
) -> Dumbbells:
    quantity, judge, factor, arms = key
    arm, _, against = arms.partition(" - ")
    shown = {
        editor: [each for each in (everyone.get((quantity, judge, arms, editor)), *effects) if each is not None]
        for editor, effects in sorted(editors.items())
    }
    ends = [v for effects in shown.values() for e in effects for v in (e.before, e.after) if v is not None]
    scale = _scale(ends)
    panels = [_panel(editor, effects, gaps.get((key, editor)), scale) for editor, effects in shown.items()]
    chance = 1 - data.settings.confidence
    bands = [gaps[key, editor].null for editor in shown if (key, editor) in gaps]
    return Dumbbells(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        judge=judge,
        factor=numbers.factor(factor),
        arm=arm,
        against=against,
        panels=tuple(panels) if len(set(ends)) > 1 else (),
        uneven=any(band is not None and band.omnibus <= chance for band in bands),
        reruns=any(isinstance(e.untreated, Interval) for effects in shown.values() for e in effects),
    )


def _scale(ends: Sequence[float]) -> Scale:
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    room = 0.06 * (high - low) or 0.5
    return Scale(low=low - room, high=high + room)


def _panel(editor: str, effects: Sequence[PairedEffect], gap: Disparity | None, on: Scale) -> Panel:
    quantity = effects[0].quantity
    bottom = TOP + ROW * len(effects)
    body = [forest.axis(quantity, on, bottom)]
    for row, effect in enumerate(effects):
        body.append(_row(effect, on, TOP + ROW * row + ROW / 2))
    said = "; ".join(f"{each.group or 'everyone'} {_change(each)}" for each in effects)
    return Panel(
        editor=editor,
        drawing=Markup('<svg class="forest" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            forest.WIDTH, bottom + 8, f"{numbers.title(quantity)}, {editor}: {said}", Markup("").join(body)
        ),
        sentence=_sentence(gap),
        rows=tuple(
            (
                each.group or "everyone",
                _change(each),
                "" if each.p is None else f"{each.p:.4f}",
                _limits(quantity, each.at_equal_baseline),
                _limits(quantity, each.beyond_untreated),
            )
            for each in effects
        ),
    )


def _row(effect: PairedEffect, on: Scale, y: float) -> Markup:
    strong = " strong" if effect.scope == "all" else ""
    parts = [
        Markup('<text class="label{}" x="{}" y="{}">{}</text>').format(
            strong, forest.LABEL - 10, _px(y + 4), forest.shortened(effect.group or "everyone")
        )
    ]
    if effect.before is None or effect.after is None:
        return parts[0]
    before, after = on.at(effect.before), on.at(effect.after)
    parts.append(
        Markup('<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            _px(before), _px(after), _px(y), _px(y)
        )
    )
    parts.append(Markup('<circle class="point" cx="{}" cy="{}" r="4.5"/>').format(_px(before), _px(y)))
    parts.append(Markup('<circle class="point strong" cx="{}" cy="{}" r="5"/>').format(_px(after), _px(y)))
    if isinstance(effect.outcome, Interval):
        interval = effect.outcome
        limits = [forest.bare(effect.quantity, each) for each in (interval.low, interval.high)]
        parts.append(
            Markup('<text class="value{}" x="{}" y="{}">{}<tspan class="span" dx="6">{}</tspan></text>').format(
                strong,
                forest.WIDTH - forest.VALUES + 14,
                _px(y + 4),
                numbers.number(effect.quantity, interval.value, plus=True),
                " to ".join(limits),
            )
        )
    return Markup("").join(parts)


def _sentence(gap: Disparity | None) -> str:
    """The asymmetry in words: who gains most, who least, and whether chance does as much."""
    if gap is None or not isinstance(gap.outcome, Interval):
        return ""
    if gap.lowest == gap.highest:
        return "It changes every group alike."
    apart = numbers.number(gap.quantity, gap.outcome.value)
    said = f"It changes {gap.lowest} and {gap.highest} most differently: {apart} apart"
    said += f" ({numbers.span(gap.quantity, gap.outcome)})"
    if gap.null is not None:
        chance = numbers.number(gap.quantity, gap.null.high)
        said += f"; chance alone sets groups up to {chance} apart (p = {gap.null.omnibus:.4f})"
    return said + "."


def _change(effect: PairedEffect) -> str:
    return _limits(effect.quantity, effect.outcome)


def _limits(quantity: str, outcome: Interval | NotEstimable) -> str:
    if not isinstance(outcome, Interval):
        return outcome.reason
    return f"{numbers.number(quantity, outcome.value, plus=True)} ({numbers.span(quantity, outcome, plus=True)})"


def _px(value: float) -> str:
    return f"{value:.1f}"
