"""What no judge can tell from one edit: numbers that need the same editor's other edits.

- `identity_drift` is in units of the editor's own floor, where the no-op arm shows one above the instrument's noise.
- `erasure_outlier` is how much of what a prompt changes in nearly everybody is missing in one edit. It needs no idea of
  what the prompt means: an edit that recolours clothes for nine in ten people, and not for this one, left this one out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.rows import Edits, RatingState, Scores
from stillme.types import Arm

Values = NDArray[np.float64]

DRIFT = "identity_drift"
OUTLIER = "erasure_outlier"
_ELSEWHERE = ("changed_hair", "changed_clothes", "changed_background")
_FACE = "changed_face"
"""Asked only where a prompt changes nothing else: whose face is spared by an unwanted change is not left out."""

_FLOOR = 0.95
"""The quantile of an editor's no-op edits beyond which a face drifted."""
_FEWEST_FLOOR = 10
_FEWEST_PEOPLE = 8
"""Whom a prompt must have been tried on before one person can be compared with the others."""
_REACHED = 0.75
"""The quantile that counts as a prompt's usual change."""
_LEAST_CHANGE = 0.25
"""Share of a region that a prompt usually changes, before its absence means anything."""
_MOST_PEOPLE = 0.6
"""Share of people in whom at least half of the usual change is seen."""


def derived(edits: Edits, scores: Sequence[Scores]) -> tuple[Scores, ...]:
    """The scores, with those added or adjusted that other edits decide."""
    adjusted = tuple(_above_floor(edits, score) if score.axis == DRIFT else score for score in scores)
    return (*adjusted, *_outliers(edits, scores))


def _above_floor(edits: Edits, score: Scores) -> Scores:
    """Drift in units of the larger of two: the instrument's noise, and what the editor does when asked for nothing."""
    if Arm.NOOP not in edits.arms:
        return score
    value = score.value.copy()
    idle = edits.arm == edits.arms.index(Arm.NOOP)
    for editor in range(len(edits.editors)):
        own = edits.editor == editor
        shown = value[own & idle & ~np.isnan(value)]
        if len(shown) >= _FEWEST_FLOOR:
            value[own & ~idle] /= max(1.0, float(np.quantile(shown, _FLOOR)))
    return replace(score, value=value)


def _outliers(edits: Edits, scores: Sequence[Scores]) -> Iterator[Scores]:
    """For every judge that tells regions apart, one more axis."""
    for judge in dict.fromkeys(score.judge for score in scores if score.axis in _ELSEWHERE):
        own = {score.axis: score for score in scores if score.judge == judge}
        regions = [own[axis] for axis in _ELSEWHERE if axis in own]
        missing = np.full(len(edits), np.nan)
        for cell in _cells(edits):
            told = _missing(edits, cell, regions)
            if told is None and _FACE in own:
                told = _missing(edits, cell, [own[_FACE]])
            if told is not None:
                missing[cell] = told
        state = np.where(np.isnan(missing), _silence(regions), RatingState.RATED).astype(np.int32)
        yield Scores(judge=judge, axis=OUTLIER, value=missing, state=state, kind=regions[0].kind)


def _cells(edits: Edits) -> Iterator[NDArray[np.intp]]:
    """The rows of one prompt under one editor and arm."""
    codes = np.stack([edits.editor, edits.arm, edits.prompt], axis=1)
    _, cell = np.unique(codes, axis=0, return_inverse=True)
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows) and edits.arms[edits.arm[rows[0]]] != Arm.NOOP:
            yield rows


def _missing(edits: Edits, rows: NDArray[np.intp], regions: Sequence[Scores]) -> Values | None:
    """The largest share of a usual change that each row lacks; None where the prompt has no usual change."""
    lacks: list[Values] = []
    for region in regions:
        value = region.value[rows]
        given = ~np.isnan(value)
        if len(set(edits.portrait[rows[given]].tolist())) < _FEWEST_PEOPLE:
            continue
        usual = float(np.quantile(value[given], _REACHED))
        if usual < _LEAST_CHANGE or float((value[given] >= usual / 2).mean()) < _MOST_PEOPLE:
            continue
        lacks.append(np.clip(1 - value / usual, 0.0, 1.0))
    if not lacks:
        return None
    lacking = np.stack(lacks)
    answered = ~np.isnan(lacking).all(axis=0)
    worst = np.full(len(rows), np.nan)
    worst[answered] = np.nanmax(lacking[:, answered], axis=0)
    return worst


def _silence(regions: Sequence[Scores]) -> NDArray[np.int32]:
    """Why there is no answer: the judge's own reason, or that there is nothing to compare with."""
    state = regions[0].state
    return np.where(state == RatingState.RATED, RatingState.ABSTAINED, state).astype(np.int32)
