"""What no judge can tell from one edit: numbers that need the same editor's other edits.

- `identity_drift` is in units of the editor's own floor, where the no-op arm shows one above the instrument's noise.
- `skip` says whether an edit was skipped: within what the editor changes when asked for nothing, in area and in colour,
  while the same prompt changed most of the others. It needs no idea of what the prompt means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Arm
from stillme.estimates.rows import Edits, RatingState, Scores

Values = NDArray[np.float64]

DRIFT = "identity_drift"
AREA = "changed_area"
COLOUR = "mean_delta_e"
SKIP = "skip"
MADE, SKIPPED = 1.0, 2.0
"""The answers of `skip`."""

_FLOOR = 0.95
"""The quantile of an editor's no-op edits beyond which a face drifted, or an edit was made."""
_FEWEST_FLOOR = 10
_LEAST_AREA = 0.02
"""The share of a picture up to which nothing was made, where no no-op arm shows the editor's own."""
_LEAST_COLOUR = 1.0
"""Likewise the mean ΔE00. A faint filter over a whole picture changes no spot visibly, and is no skipped edit."""
_FEWEST_OTHERS = 8
"""On whom else a prompt must have been tried before one person can be compared with them."""
_MOST_OTHERS = 0.6
"""The share of the others whose edit was made, before its absence means anything."""


def derived(edits: Edits, scores: Sequence[Scores]) -> tuple[Scores, ...]:
    """The scores, with those added or adjusted that other edits decide."""
    adjusted = tuple(_above_floor(edits, score) if score.axis == DRIFT else score for score in scores)
    return (*adjusted, *_skips(edits, scores))


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


def _skips(edits: Edits, scores: Sequence[Scores]) -> Iterator[Scores]:
    """For every judge that measures how much changed, one more axis."""
    for area in (score for score in scores if score.axis == AREA):
        within = _within_floor(edits, area, _LEAST_AREA)
        for colour in (score for score in scores if (score.judge, score.axis) == (area.judge, COLOUR)):
            within &= _within_floor(edits, colour, _LEAST_COLOUR)
        answer = np.full(len(edits), np.nan)
        for cell in _cells(edits):
            given = cell[~np.isnan(area.value[cell])]
            others = len(set(edits.portrait[given].tolist())) - 1
            made = np.count_nonzero(~within[given])
            if others >= _FEWEST_OTHERS and made >= _MOST_OTHERS * (len(given) - 1):
                answer[given] = np.where(within[given], SKIPPED, MADE)
        silent = np.where(area.state == RatingState.RATED, RatingState.ABSTAINED, area.state)
        state = np.where(np.isnan(answer), silent, RatingState.RATED).astype(np.int32)
        yield Scores(judge=area.judge, axis=SKIP, value=answer, state=state, kind=area.kind)


def _within_floor(edits: Edits, score: Scores, least: float) -> NDArray[np.bool_]:
    """Rows that changed no more than their editor does when asked for nothing; without enough such edits, `least`."""
    floor = np.full(len(edits.editors), least)
    if Arm.NOOP in edits.arms:
        idle = (edits.arm == edits.arms.index(Arm.NOOP)) & ~np.isnan(score.value)
        for editor in range(len(edits.editors)):
            shown = score.value[idle & (edits.editor == editor)]
            if len(shown) >= _FEWEST_FLOOR:
                floor[editor] = float(np.quantile(shown, _FLOOR))
    with np.errstate(invalid="ignore"):
        return score.value <= floor[edits.editor]


def _cells(edits: Edits) -> Iterator[NDArray[np.intp]]:
    """The rows of one prompt under one editor and arm."""
    codes = np.stack([edits.editor, edits.arm, edits.prompt], axis=1)
    _, cell = np.unique(codes, axis=0, return_inverse=True)
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows) and edits.arms[edits.arm[rows[0]]] != Arm.NOOP:
            yield rows
