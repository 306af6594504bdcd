"""Figure 6: (a) mean skin tone by group, (b1) the arm's effect on edit success, (b2) on every axis of change.

By people where people rated, as in the paper; by the judge that `report --judge` names; else by the headline's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stillme import numbers
from stillme.estimates import PairedEffect
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import GREY, legend, new_figure, offsets, points, style_of
from stillme.types import Estimate, Interval

_TONE = ("skin_tone", "skin_delta_l")
_SUCCESS = ("edit_success", "unchanged")
_DRIFT = ("skin_tone", "race_change", "gender_change", "age_change")
_MEASURED_DRIFT = ("skin_delta_l",)
"""Where no judge used the paper's scales."""


def draw(data: ReportData) -> Any | str:
    """Up to three panels; or why there is nothing to draw."""
    candidates = (_levels(data, "a"), _changes(data, _SUCCESS, "b1"), _drift(data, "b2"))
    panels = [panel for panel in candidates if panel]
    if not panels:
        return "no judge rated skin tone by group, and no second arm was run on the same edits"
    figure = new_figure(2.9 * len(panels), 2.7, data)
    for number, (title, label, estimates) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, len(panels), number)
        # Groups across; or quantities, of everyone.
        levels = list(dict.fromkeys(map(_column, estimates)))
        editors = sorted({estimate.editor for estimate in estimates})
        for offset, editor in zip(offsets(len(editors)), editors, strict=True):
            of_editor = [estimate for estimate in estimates if estimate.editor == editor]
            positions = [levels.index(_column(estimate)) + offset for estimate in of_editor]
            points(axes, positions, [estimate.outcome for estimate in of_editor], style_of(data, editor), editor)
        axes.set_xticks(range(len(levels)), levels, rotation=35, ha="right")
        axes.set_title(title, loc="left")
        axes.set_ylabel(label)
        if label == "change":
            axes.axhline(0, color=GREY, linewidth=0.7)
    legend(figure)
    return figure


Panel = tuple[str, str, list[Estimate]]
"""Title, label of the vertical axis, one estimate per editor and group, or per editor and quantity."""


def _column(estimate: Estimate) -> str:
    return estimate.group or numbers.title(estimate.quantity)


def _levels(data: ReportData, letter: str) -> Panel | None:
    for quantity in _TONE:
        if groups := _first(data, [one for one in data.estimates if one.arm == data.main_arm], quantity):
            return f"({letter}) {numbers.title(quantity)}\n{groups[0].judge}", "mean", groups
    return None


def _changes(data: ReportData, quantities: tuple[str, ...], letter: str) -> Panel | None:
    effects = [effect for effect in data.mitigation if isinstance(effect, PairedEffect)]
    for quantity in quantities:
        if groups := _first(data, effects, quantity):
            arms = groups[0].arm.replace(" - ", " − ")
            return f"({letter}) {numbers.title(quantity)}\n{arms}, {groups[0].judge}", "change", groups
    return None


def _drift(data: ReportData, letter: str) -> Panel | None:
    """How much less everyone changes, axis by axis: negative is an improvement where 1 is an unchanged person."""
    effects = [effect for effect in data.mitigation if isinstance(effect, PairedEffect) and effect.scope == "all"]
    for quantities in (_DRIFT, _MEASURED_DRIFT):
        everyone = _by_first_judge(data, [effect for effect in effects if effect.quantity in quantities])
        if everyone:
            arms = everyone[0].arm.replace(" - ", " − ")
            ordered = sorted(everyone, key=lambda effect: quantities.index(effect.quantity))
            return f"({letter}) Change\n{arms}, {everyone[0].judge}", "change", ordered
    return None


def _first(data: ReportData, estimates: Sequence[Estimate], quantity: str) -> list[Estimate]:
    """The quantity's groups by the judge who comes first, and the first factor and arm."""
    groups = [
        estimate
        for factor in data.settings.factors
        for estimate in estimates
        if (estimate.quantity, estimate.scope, estimate.factor) == (quantity, "group", factor)
    ]
    return sorted(_by_first_judge(data, groups), key=lambda group: group.group)


def _by_first_judge(data: ReportData, estimates: Sequence[Estimate]) -> list[Estimate]:
    # A judge who rated nothing here leaves the figure to the next.
    estimable = [estimate for estimate in estimates if isinstance(estimate.outcome, Interval)]
    first = min(estimable, key=lambda estimate: _preference(data, estimate.judge), default=None)
    return [estimate for estimate in estimable if first is not None and _series(estimate) == _series(first)]


def _preference(data: ReportData, judge: str) -> int:
    people = {score.judge for score in data.scores if score.kind == "person"}
    ranked = [judge == data.judge, judge in people, judge in data.headline_judges, True]
    return ranked.index(True)


def _series(estimate: Estimate) -> tuple[str, str, str]:
    return estimate.judge, estimate.factor, estimate.arm
