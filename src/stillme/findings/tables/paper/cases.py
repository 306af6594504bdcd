"""Tables 24 and 25: single edits that show a failure, with what the judge says of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.estimates.rows import Flags
from stillme.findings.tables.paper.source import BASELINE, Source, axis_title, rated
from stillme.findings.tables.paper.table import PaperTable, TableRow, Words

CASES = 6
"""Edits that a table shows; the paper shows three."""

_HEAD = ("Prompt", "Source", "Model", "Score", "Observation")
_SELECTION = (
    "The worst edits, each of another prompt and group where possible: examples, not a sample. "
    "Observations are the judge's own words."
)
_CHANGES = ("race_change", "skin_tone", "gender_change")


def table_24(source: Source) -> PaperTable:
    """Edits that were ignored, the lowest edit success first."""
    part = source.in_arm(BASELINE)
    severity = np.zeros(len(part.edits))
    axis = np.full(len(part.edits), "edit_success")
    if score := part.score("edit_success"):
        ignored = rated(score, part.edits) & (score.value <= (rubric.load().rates["soft_erasure"].at_most or 0))
        severity[ignored] = 5 - score.value[ignored]
    return _table(
        part,
        24,
        "Edits that were ignored or hardly made (Edit Success of 2 or less).",
        severity,
        axis,
        _unrated(part, ("edit_success",)),
    )


def table_25(source: Source) -> PaperTable:
    """Edits that were made and changed the person, the largest change first."""
    part = source.in_arm(BASELINE)
    severity = np.zeros(len(part.edits))
    axis = np.full(len(part.edits), _CHANGES[0], dtype="<U16")
    made = _made(part)
    for name in _CHANGES:
        if score := part.score(name):
            known = rubric.load().axes[name]
            middle = known.unchanged or 0.0
            here = made & rated(score, part.edits)
            # From 0 for the same person to 1 at the end of the scale; 0.5 and more is seen by everyone.
            away = np.zeros(len(part.edits))
            away[here] = np.abs(score.value[here] - middle) / max(5 - middle, middle - 1)
            worse = (away >= 0.5) & (away > severity)
            severity[worse], axis[worse] = away[worse], name
    caption = "Edits that were made and changed race, skin tone or gender presentation (half the scale or more)."
    return _table(part, 25, caption, severity, axis, _unrated(part, _CHANGES))


def _made(part: Source) -> Flags:
    """Edits that succeeded; without a judge who tells, all."""
    score = part.score("edit_success")
    if score is None:
        return np.ones(len(part.edits), dtype=np.bool_)
    return rated(score, part.edits) & (score.value >= (rubric.load().rates["success"].at_least or 0))


def _table(
    part: Source, number: int, caption: str, severity: NDArray[np.float64], axis: NDArray[np.str_], absent: str
) -> PaperTable:
    rows = list(_chosen(part, severity))
    axes = [str(name) for name in axis[rows]] if rows else []
    said = part.remarks([part.edits.keys[row] for row in rows])
    return PaperTable(
        number=number,
        caption=caption,
        head=_HEAD,
        rows=tuple(_row(part, row, name, said) for row, name in zip(rows, axes, strict=True)),
        notes=(*part.credit(dict.fromkeys(axes)), _SELECTION) if rows else (),
        absent="" if rows else absent or "no rated edit of the baseline arm shows it",
    )


def _unrated(part: Source, axes: Sequence[str]) -> str:
    """Why there is nothing to choose from; empty where a judge answers."""
    return "" if any(part.score(axis) for axis in axes) else part.unanswered(axes[0])


def _chosen(part: Source, severity: NDArray[np.float64]) -> Iterator[int]:
    """The worst rows; a prompt or group that is shown already comes after those that are not."""
    edits = part.edits
    levels = edits.levels(part.factor)[1] if part.factor else np.zeros(len(edits.portraits), dtype=np.int32)
    waiting = sorted(
        np.flatnonzero(severity > 0).tolist(), key=lambda row: (-round(float(severity[row]), 9), edits.keys[row])
    )
    prompts: set[int] = set()
    groups: set[int] = set()
    for _ in range(min(CASES, len(waiting))):
        row = min(
            waiting,
            key=lambda row: (int(edits.prompt[row]) in prompts) + (int(levels[edits.portrait[row]]) in groups),
        )
        waiting.remove(row)
        prompts.add(int(edits.prompt[row]))
        groups.add(int(levels[edits.portrait[row]]))
        yield row


def _row(part: Source, row: int, axis: str, said: Mapping[str, Mapping[str, str]]) -> TableRow:
    edits, score = part.edits, part.score(axis)
    assert score is not None
    portrait = edits.portraits[int(edits.portrait[row])]
    labels = " ".join(portrait.attributes[name] for name in part.factors if portrait.attributes.get(name))
    return TableRow(
        label=edits.prompts[int(edits.prompt[row])].id,
        cells=(
            Words(text=labels or portrait.id),
            Words(text=edits.editors[int(edits.editor[row])]),
            Words(text=f"{axis_title(axis)}: {score.value[row]:g}/5"),
            Words(text=said.get(edits.keys[row], {}).get(axis, "")),
        ),
    )
