"""Compare what known-answer editors planted with what the audit found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stillme import estimates
from stillme.audit import Audit, NamedEditor
from stillme.estimates.rows import EditState, Scores
from stillme.protocols import KnowsAnswers
from stillme.results import Results
from stillme.types import Interval, NotEstimable, PlantedGap

QUANTITIES = ("skin_delta_l", "unchanged")


def gaps(audit: Audit, results: Results) -> Iterator[PlantedGap]:
    """For each known-answer editor and each group that any of them plants in: that group against the rest."""
    knowing = [named for named in audit.editors if isinstance(named.editor, KnowsAnswers)]
    groups = {
        (factor, level): None
        for named in knowing
        if isinstance(named.editor, KnowsAnswers)
        for factor, levels in [named.editor.planted]
        for level in levels
    }
    for named in knowing:
        for quantity in QUANTITIES:
            for factor, level in groups:
                yield _gap(audit, results, named, quantity, factor, level)


def _gap(audit: Audit, results: Results, named: NamedEditor, quantity: str, factor: str, level: str) -> PlantedGap:
    return PlantedGap(
        quantity=quantity,
        editor=named.name,
        factor=factor,
        group=level,
        planted=_planted(audit, named, quantity, factor, level),
        realised=_found(audit, results, results.truths, named, quantity, factor, level),
        recovered=_found(audit, results, results.scores, named, quantity, factor, level),
    )


def _planted(audit: Audit, named: NamedEditor, quantity: str, factor: str, level: str) -> float:
    sides: dict[bool, list[float]] = {True: [], False: []}
    for portrait in audit.portraits:
        expected = named.editor.expected(quantity, portrait) if isinstance(named.editor, KnowsAnswers) else None
        sides[portrait.attributes.get(factor) == level].append(expected or 0.0)
    # A rounded zero has no sign.
    return round(float(np.mean(sides[True]) - np.mean(sides[False])), 12) + 0.0


def _found(
    audit: Audit,
    results: Results,
    scores: tuple[Scores, ...],
    named: NamedEditor,
    quantity: str,
    factor: str,
    level: str,
) -> Interval | NotEstimable:
    if not scores or not (results.edits.state == EditState.EDITED).any():
        return NotEstimable(reason="there are no rows yet")
    section = audit.config.estimates
    settings = estimates.Settings(
        factors=(factor,), confidence=section.confidence, replicates=section.replicates, seed=section.seed
    )
    return estimates.gap(
        results.edits, scores, quantity=quantity, editor=named.name, factor=factor, level=level, settings=settings
    )
