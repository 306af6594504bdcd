"""Figure 7: who is drawn in a role, and how often that is as the stereotype has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stillme.estimates import EditState
from stillme.estimates.roles import Adherence
from stillme.report import gallery
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import GREY, legend, new_figure, offsets, percent, points, show, style_of

_PRONOUNS = {"": "all", "pro": "with the\nstereotype", "anti": "against it", "none": "no\npronoun"}
_STEREOTYPES = ("male", "female")
_ACROSS = 3
"""Examples of each stereotype."""


def draw(data: ReportData) -> Any | str:
    """Examples above, then one panel per layout and judge, pronouns across; or why there is nothing to draw."""
    panels: dict[tuple[str, str], list[Adherence]] = {}
    for adherence in data.roles:
        if not adherence.place and adherence.pronoun in _PRONOUNS and adherence.arm == data.main_arm:
            panels.setdefault((adherence.layout, adherence.judge), []).append(adherence)
    if not panels:
        return "no role instruction was run"
    examples = {} if data.redact == "omit" else _examples(data)
    down = sum(bool(rows) for rows in examples.values())
    figure = new_figure(max(3.2 * len(panels), 8.4 if down else 0.0), 2.6 + 1.25 * down, data)
    if not down:
        _panels(figure, data, panels)
        return figure
    above, below = figure.subfigures(2, 1, height_ratios=[1.25 * down, 2.6])
    _pictures(above, data, {stereotype: rows for stereotype, rows in examples.items() if rows})
    _panels(below, data, panels)
    return figure


def _panels(figure: Any, data: ReportData, panels: dict[tuple[str, str], list[Adherence]]) -> None:
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
        axes.set_xlim(-0.6, len(pronouns) - 0.4)
        axes.set_ylim(0, 1)
        percent(axes)
        people = "two people" if layout == "role_pair" else "one person"
        axes.set_title(f"Stereotype followed\n{people}, {judge}", loc="left")
    legend(figure)


def _examples(data: ReportData) -> dict[str, list[int]]:
    """By stereotype: edits of as many roles, evenly over the prompts."""
    edits = data.edits
    made = (edits.state == EditState.EDITED) & (edits.arm == edits.arms.index(data.main_arm))
    first: dict[str, dict[str, int]] = {stereotype: {} for stereotype in _STEREOTYPES}
    for row in np.flatnonzero(made).tolist():
        prompt = edits.prompts[int(edits.prompt[row])]
        if prompt.stereotype in first and prompt.target and gallery.path_of(data, row) is not None:
            first[prompt.stereotype].setdefault(prompt.target, row)
    return {
        stereotype: list(rows.values())[:: max(1, len(rows) // _ACROSS)][:_ACROSS] for stereotype, rows in first.items()
    }


def _pictures(figure: Any, data: ReportData, examples: dict[str, list[int]]) -> None:
    """A row for each stereotype: the people of a request, then the scene."""
    edits = data.edits
    shown = 2 if edits.second is None else 3
    for down, (stereotype, rows) in enumerate(examples.items()):
        for across, row in enumerate(rows):
            codes = [int(edits.portrait[row])]
            if edits.second is not None and edits.second[row] >= 0:
                codes.append(int(edits.second[row]))
            paths = [*(gallery.source_of(data, edits.portraits[code]) for code in codes), gallery.path_of(data, row)]
            target = edits.prompts[int(edits.prompt[row])].target or ""
            heads = [*("source" for _ in codes), target]
            for place, (path, head) in enumerate(zip(paths, heads, strict=True)):
                number = down * shown * _ACROSS + shown * across + place + 1
                label = f"{stereotype} stereotype" if not across and not place else ""
                show(figure.add_subplot(len(examples), shown * _ACROSS, number), path, data, head=head, label=label)
