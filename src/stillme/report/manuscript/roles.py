"""Figure 7: how often role instructions are drawn as the stereotype has it."""

from __future__ import annotations

from typing import Any

from stillme.report.data import ReportData
from stillme.report.manuscript.marks import GREY, legend, new_figure, percent, place_of, points, side_steps

_PRONOUNS = {"": "all", "pro": "with the\nstereotype", "anti": "against it", "none": "no\npronoun"}


def draw(data: ReportData) -> Any | str:
    """One panel per layout and judge, pronouns across; or why there is nothing to draw."""
    found = [each for each in data.roles if not each.place and each.pronoun in _PRONOUNS and each.arm == data.plain_arm]
    panels = list(dict.fromkeys((each.layout, each.judge) for each in found))
    if not panels:
        return "no role instruction was run"
    figure = new_figure(3.2 * len(panels), 2.6, data)
    for place, (layout, judge) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, len(panels), place)
        mine = [each for each in found if (each.layout, each.judge) == (layout, judge)]
        pronouns = [each for each in _PRONOUNS if any(row.pronoun == each for row in mine)]
        editors = sorted({each.editor for each in mine})
        for step, editor in zip(side_steps(len(editors), 0.5), editors, strict=True):
            rows = [each for each in mine if each.editor == editor]
            at = [pronouns.index(each.pronoun) + step for each in rows]
            points(axes, at, [each.outcome for each in rows], place_of(data, editor), editor)
        axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--")
        axes.set_xticks(range(len(pronouns)), [_PRONOUNS[each] for each in pronouns])
        axes.set_ylim(0, 1)
        percent(axes)
        people = "two people" if layout == "role_pair" else "one person"
        axes.set_title(f"Stereotype followed: {people}, {judge}", loc="left")
    legend(figure)
    return figure
