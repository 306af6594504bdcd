"""Cells of an earlier run in which a person was seen to change: one of the paper's two ways to mitigation cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stillme.audit.sampling import Cell, draw_among
from stillme.core.errors import StillmeError
from stillme.core.types import Arm
from stillme.estimates import EditState, RatingState, one_judge
from stillme.runs import Run, opened

_AXES = ("race_change", "gender_change")
_CHANGED = 2
"""From this score on the caption of the paper's Table 4 calls an identity changed; Appendix D.2 names no score."""


def draw_changed(path: Path, *, size: int, seed: int = 0) -> list[Cell]:
    """Draw cells of a run whose baseline edit changed race or gender (Appendix D.2); all of them if there are fewer."""
    with opened(path) as run:
        cells = _changed(run)
        if not cells:
            raise StillmeError(
                f"{path} has no baseline edit with a race or gender change of {_CHANGED} or more, so nothing can be "
                "drawn by outcome. Let a model or people judge it first, or leave out --cases drifted."
            )
        return draw_among(cells, run.design.portraits, factors=run.design.factors, size=size, seed=seed)


def _changed(run: Run) -> set[Cell]:
    edits = run.results.edits
    baseline = np.array([arm == Arm.BASELINE for arm in edits.arms], dtype=np.bool_)
    edited = baseline[edits.arm] & (edits.state == EditState.EDITED)
    cells: set[Cell] = set()
    for axis in _AXES:
        if score := one_judge(run.results.scores, axis):
            changed = edited & (score.state == RatingState.RATED) & (np.nan_to_num(score.value) >= _CHANGED)
            codes = zip(edits.editor[changed], edits.portrait[changed], edits.prompt[changed], strict=True)
            cells |= {
                (edits.editors[int(editor)], edits.portraits[int(portrait)].id, edits.prompts[int(prompt)].id)
                for editor, portrait, prompt in codes
            }
    return cells
