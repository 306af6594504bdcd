"""Figures 1 and 2: the worst edits of the run, and the two ways in which edits fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stillme import numbers, rubric
from stillme.estimates import Scores
from stillme.estimates.headlines import EDIT_MADE_AXES
from stillme.report import gallery
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import LEFT_OUT, new_figure, show

_FAILURES = ("soft_erasure", "unchanged", "skin_lightened", "skin_darkened", "race_changed", "gender_changed")
_COLUMNS = 8
_PER_KIND = 4
_RANKED = 400

Example = tuple[int, Scores]
"""A row and the scores by which it is bad."""


def worst(data: ReportData) -> Any | str:
    """Figure 1: source above edit, the worst edits of different people."""
    if data.redact == "omit":
        return LEFT_OUT
    examples = _different_people(data, _failures(data), _COLUMNS)
    if not examples:
        return "no judge found fault with an edit"
    figure = new_figure(1.3 * len(examples), 3.3, data)
    for column, example in enumerate(examples):
        _pair(figure, data, example, (2, len(examples)), (column + 1, len(examples) + column + 1))
    return figure


def failures(data: ReportData) -> Any | str:
    """Figure 2: edits that were not made in the first row, edits that changed the person in the second."""
    if data.redact == "omit":
        return LEFT_OUT
    ranked = _failures(data)
    erased = [example for example in ranked if example[1].axis in EDIT_MADE_AXES]
    replaced = [example for example in ranked if example[1].axis not in EDIT_MADE_AXES]
    kinds = {
        "Soft erasure: the edit was not made": _different_people(data, erased, _PER_KIND),
        "Stereotype replacement: the person changed": _different_people(data, replaced, _PER_KIND),
    }
    kinds = {title: examples for title, examples in kinds.items() if examples}
    if not kinds:
        return "no judge found fault with an edit"
    figure = new_figure(8.6, 2.0 * len(kinds), data)
    parts = figure.subfigures(len(kinds), 1, squeeze=False)[:, 0]
    for part, (title, examples) in zip(parts, kinds.items(), strict=True):
        part.suptitle(title, fontsize=9, x=0.01, ha="left")
        for place, example in enumerate(examples):
            _pair(part, data, example, (1, 2 * _PER_KIND), (2 * place + 1, 2 * place + 2))
    return figure


def _failures(data: ReportData) -> list[Example]:
    """The worst edits that count as failures. A measurement without such a limit cannot say that a person changed."""
    rates = [rubric.load().rates[name] for name in _FAILURES]
    return [
        (row, score)
        for row, score in gallery.worst(data, _RANKED)
        if any(rate.axis == score.axis and rate.holds(float(score.value[row])) for rate in rates)
    ]


def _pair(figure: Any, data: ReportData, example: Example, shape: tuple[int, int], places: tuple[int, int]) -> None:
    """A source and its edit, with who it is, what was asked and what the judge says."""
    row, score = example
    edits = data.edits
    portrait = edits.portraits[int(edits.portrait[row])]
    group = portrait.attributes.get(data.settings.factors[0], "") if data.settings.factors else portrait.id
    show(figure.add_subplot(*shape, places[0]), gallery.source_of(data, portrait), data, head=group)
    below: Any = figure.add_subplot(*shape, places[1])
    show(below, gallery.path_of(data, row), data, head=edits.prompts[int(edits.prompt[row])].id)
    value = numbers.number(score.axis, float(score.value[row]))
    below.set_xlabel(f"{numbers.title(score.axis)} {value}\n{edits.editors[int(edits.editor[row])]}", fontsize=6)


def _different_people(data: ReportData, ranked: Sequence[Example], count: int) -> list[Example]:
    """The first examples of as many people."""
    chosen: dict[int, Example] = {}
    for row, score in ranked:
        if gallery.path_of(data, row) is not None:
            chosen.setdefault(int(data.edits.portrait[row]), (row, score))
    return list(chosen.values())[:count]
