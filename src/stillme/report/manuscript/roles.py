"""Figure 7: how often role instructions are drawn as the stereotype has it."""

from __future__ import annotations

from typing import Any

from stillme.estimates.roles import Adherence
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import GREY, legend, new_figure, offsets, percent, points, style_of

_PRONOUNS = {"": "all", "pro": "with the\nstereotype", "anti": "against it", "none": "no\npronoun"}


def draw(data: ReportData) -> Any | str:
    """One panel per layout and judge, pronouns across; or why there is nothing to draw."""
    panels: dict[tuple[str, str], list[Adherence]] = {}
    for adherence in data.roles:
        if not adherence.place and adherence.pronoun in _PRONOUNS and adherence.arm == data.main_arm:
            panels.setdefault((adherence.layout, adherence.judge), []).append(adherence)
    if not panels:
        return "no role instruction was run"
    figure = new_figure(3.2 * len(panels), 2.6, data)
    for number, ((layout, judge), adherences) in enumerate(panels.items(), start=1):
        axes: Any = figure.add_subplot(1, len(panels), number)
        pronouns = [pronoun for pronoun in _PRONOUNS if any(a.pronoun == pronoun for a in adherences)]
        editors = sorted({adherence.editor for adherence in adherences})
        for offset, editor in zip(offsets(len(editors)), editors, strict=True):
            of_editor = [adherence for adherence in adherences if adherence.editor == editor]
            positions = [pronouns.index(adherence.pronoun) + offset for adherence in of_editor]
            points(axes, positions, [adherence.outcome for adherence in of_editor], style_of(data, editor), editor)
        axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--")
        axes.set_xticks(range(len(pronouns)), [_PRONOUNS[pronoun] for pronoun in pronouns])
        axes.set_ylim(0, 1)
        percent(axes)
        people = "two people" if layout == "role_pair" else "one person"
        axes.set_title(f"Stereotype followed: {people}, {judge}", loc="left")
    legend(figure)
    return figure
