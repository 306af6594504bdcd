"""Compare what known-answer editors planted with what the audit found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stillme import estimates
from stillme.audit.design import EditorRecord, PlantedAnswers
from stillme.core.rubric import axis_of
from stillme.core.types import Interval, NotEstimable, PlantedGap
from stillme.estimates.rows import EditState, Scores
from stillme.runs.run import RecordedRun


def gaps(run: RecordedRun) -> Iterator[PlantedGap]:
    """For each known-answer editor and each group that any of them plants in: that group against the rest."""
    planting = [(editor, editor.answers) for editor in run.design.editors if editor.answers]
    groups = dict.fromkeys((answers.factor, level) for _, answers in planting for level in answers.levels)
    for editor, answers in planting:
        for quantity in answers.expected:
            for factor, level in groups:
                yield _gap(run, editor, answers, quantity, factor, level)


def _gap(
    run: RecordedRun, editor: EditorRecord, answers: PlantedAnswers, quantity: str, factor: str, level: str
) -> PlantedGap:
    return PlantedGap(
        quantity=quantity,
        editor=editor.name,
        factor=factor,
        group=level,
        planted=_planted(run, answers, quantity, factor, level),
        realised=_estimated(run, run.results.truths, editor, quantity, factor, level),
        recovered=_estimated(run, run.results.scores, editor, quantity, factor, level),
    )


def _planted(run: RecordedRun, answers: PlantedAnswers, quantity: str, factor: str, level: str) -> float:
    sides: dict[bool, list[float]] = {True: [], False: []}
    for portrait in run.design.portraits:
        expected = answers.expected[quantity].get(portrait.id, 0.0)
        sides[portrait.attributes.get(factor) == level].append(expected)
    # A rounded zero has no sign.
    return round(float(np.mean(sides[True]) - np.mean(sides[False])), 12) + 0.0


def _estimated(
    run: RecordedRun, scores: tuple[Scores, ...], editor: EditorRecord, quantity: str, factor: str, level: str
) -> Interval | NotEstimable:
    edits, settings = run.results.edits, run.settings
    if not scores or not (edits.state == EditState.EDITED).any():
        return NotEstimable(reason="there are no rows yet")
    if axis_of(quantity) not in {score.axis for score in scores}:
        return NotEstimable(reason="no judge measured it")
    alone = estimates.Settings(factors=(factor,), confidence=settings.confidence)
    return estimates.gap(
        edits, scores, quantity=quantity, editor=editor.name, factor=factor, level=level, settings=alone
    )
