"""Table 13: which experiments an audit is, and how large."""

from __future__ import annotations

import numpy as np

from stillme.core.types import Arm
from stillme.estimates import EditState
from stillme.findings.tables.paper.source import BASELINE, FEATURE, Source
from stillme.findings.tables.paper.table import Count, PaperTable, Row, Words

_GOALS = {
    BASELINE: "Detect soft erasure and drift",
    FEATURE: "Test identity preservation",
    str(Arm.NOOP): "Measure what a request to change nothing changes",
}
_ROLES = "role prompts"


def table_13(source: Source) -> PaperTable:
    """A row for each arm of the edits of single people, and one for role prompts."""
    edits = source.edits
    is_role = np.array([bool(prompt.stereotype) for prompt in edits.prompts], dtype=np.bool_)[edits.prompt]
    rows = [
        _row(source, f"input vs. {arm}", _GOALS.get(arm, "Compare with the baseline"), here)
        for place, arm in enumerate(edits.arms)
        if (here := (edits.arm == place) & ~is_role).any()
    ]
    if is_role.any():
        rows.append(_row(source, _ROLES, "Gender stereotype analysis", is_role))
    return PaperTable(
        number=13,
        caption="The experiments of this audit.",
        head=("Comparison", "Goal", "Portraits", "Prompts", "Editors", "Requests", "Edited"),
        rows=tuple(rows),
    )


def _row(source: Source, label: str, goal: str, here: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Row:
    edits = source.edits
    people = [edits.portrait[here]] + ([] if edits.second is None else [edits.second[here & (edits.second >= 0)]])
    counts = (
        len(np.unique(np.concatenate(people))),
        len(np.unique(edits.prompt[here])),
        len(np.unique(edits.editor[here])),
        int(np.count_nonzero(here)),
        int(np.count_nonzero(here & (edits.state == EditState.EDITED))),
    )
    return Row(label=label, cells=(Words(text=goal), *(Count(value=count) for count in counts)))
