"""Which edits were made, as judges tell.

An edit that was not made changes no one, so a group whose edits are ignored is never called the best treated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.estimates import EditState, RatingState, Scores, Standing
from stillme.estimates.headlines import EDIT_MADE_AXES, deciding
from stillme.estimates.quantities import meets
from stillme.report.data import ReportData

_NOT_MADE = {"edit_success": "soft_erasure", "skip": "skipped", "visible_change": "unchanged"}
"""The rate that says, on each axis, that no edit was made."""


def trusted(scores: Iterable[Scores], standing: Standing) -> list[Scores]:
    """Scores of judges that passed calibration on the axis; if there are none, those that did not fail it."""
    offered = list(scores)
    chosen = deciding(standing, ((score.judge, score.axis) for score in offered))
    return [score for score in offered if (score.judge, score.axis) in chosen]


def with_happened(data: ReportData) -> ReportData:
    """The data with the edits that were made, if any is known not to be."""
    made = happened(data)
    edited = data.edits.state == EditState.EDITED
    if made is None or bool((made == edited).all()):
        return data
    return replace(data, happened=made)


def happened(data: ReportData) -> NDArray[np.bool_] | None:
    """Rows with a picture of which not half of the judges say that nothing was done; None where no judge tells."""
    telling = trusted((score for score in data.headline_scores if score.axis in EDIT_MADE_AXES), data.standing)
    if not telling:
        return None
    ignored, rated = np.zeros(len(data.edits)), np.zeros(len(data.edits))
    for score in telling:
        answered = score.state == RatingState.RATED
        rated += answered
        ignored += answered & (meets(rubric.load().rates[_NOT_MADE[score.axis]], score.value) > 0)
    return (data.edits.state == EditState.EDITED) & ~((ignored > 0) & (2 * ignored >= rated))


def share_made(data: ReportData, *, editor: str, factor: str, group: str) -> float:
    """The share of a group's requests whose edit was made."""
    edits = data.edits
    levels, codes = edits.levels(factor)
    rows = (edits.editor == edits.editors.index(editor)) & (edits.arm == edits.arms.index(data.main_arm))
    rows &= codes[edits.portrait] == levels.index(group)
    made = edits.state == EditState.EDITED if data.happened is None else data.happened
    return float(made[rows].mean()) if rows.any() else 0.0


def judges_telling(data: ReportData) -> Sequence[str]:
    """The judges who tell whether an edit was made."""
    axes = (score for score in data.headline_scores if score.axis in EDIT_MADE_AXES)
    return list(dict.fromkeys(score.judge for score in trusted(axes, data.standing)))


def rows_to_rate(data: ReportData, score: Scores) -> NDArray[np.bool_]:
    """The edits that this judge had to rate on this axis."""
    axis = rubric.load().axes.get(score.axis)
    asked = [axis is None or axis.asked_of(prompt) for prompt in data.edits.prompts]
    fits = np.array(asked, dtype=np.bool_)[data.edits.prompt]
    return (data.edits.state == EditState.EDITED) & fits & data.edits.counting(score.axis)
