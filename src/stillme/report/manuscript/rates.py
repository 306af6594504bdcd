"""Figure 4: who is lightened, and whose race changes, over all editors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stillme import numbers
from stillme.estimates import at_every_cut, estimate
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import GREY, new_figure, percent, points
from stillme.types import Estimate, Interval

_QUANTITIES = (("skin_lightened", "skin_delta_l"), ("race_changed", "race_distance"))
"""The paper's rates, each with what instruments measure where no judge used the paper's scales."""
_AXES = ("skin_tone", "skin_delta_l", "race_change", "race_distance")


def draw(data: ReportData) -> Any | str:
    """One panel per quantity, groups across, all editors together; or why there is nothing to draw."""
    estimates = _pooled(data)
    cut = {"race_changed": f"race_change>={data.race_cut}"} if data.race_cut else {}
    panels = [
        groups
        for quantity, instead in _QUANTITIES
        if (groups := _groups(estimates, cut.get(quantity, quantity)) or _groups(estimates, instead))
    ]
    if not panels:
        return "no judge rated skin tone or race by group"
    figure = new_figure(3.4 * len(panels), 2.7, data)
    for number, (groups, letter) in enumerate(zip(panels, "ab", strict=False), start=1):
        axes: Any = figure.add_subplot(1, len(panels), number)
        _panel(axes, groups)
        editors = "all editors" if len(data.edits.editors) > 1 else "".join(data.edits.editors)
        axes.set_title(f"({letter}) {numbers.title(groups[0].quantity)}\n{editors}, {groups[0].judge}", loc="left")
    return figure


def _pooled(data: ReportData) -> list[Estimate]:
    """The rates of every group of the first factor, as if one editor had made all edits of the main arm."""
    rows = data.edits.arm == data.edits.arms.index(data.main_arm)
    scores = [score.where(rows) for score in data.headline_scores if score.axis in _AXES]
    factors = data.settings.factors[:1]
    if not (rows.any() and scores and factors):
        return []
    reference = {name: level for name, level in data.settings.reference.items() if name in factors}
    edits, settings = data.edits.where(rows).pooled(), data.settings.comparing(*factors, reference=reference)
    race = [score for score in scores if score.axis == "race_change"] if data.race_cut else []
    return [*estimate(edits, scores, settings), *at_every_cut(edits, race, settings)]


def _groups(estimates: Sequence[Estimate], quantity: str) -> list[Estimate]:
    groups = [
        estimate
        for estimate in estimates
        if (estimate.quantity, estimate.scope) == (quantity, "group") and isinstance(estimate.outcome, Interval)
    ]
    return [group for group in groups if group.judge == groups[0].judge]


def _panel(axes: Any, groups: list[Estimate]) -> None:
    levels = sorted({group.group for group in groups})
    points(axes, [levels.index(group.group) for group in groups], [group.outcome for group in groups], 0)
    axes.set_xticks(range(len(levels)), levels, rotation=35, ha="right")
    if numbers.is_rate(groups[0].quantity):
        percent(axes)
        axes.set_ylim(bottom=0)
    else:
        axes.set_ylabel(numbers.unit(groups[0].quantity))
        axes.axhline(0, color=GREY, linewidth=0.6)
