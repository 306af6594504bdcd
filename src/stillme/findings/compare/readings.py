"""Whether the direction changed: what the second editor's edits appear to be, against those of the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.directions import Shift, Tallies, shifts
from stillme.findings.compare.cells import Chosen
from stillme.findings.compare.matching import Matched
from stillme.runs.readings import Readings


def reading_changes(first: Chosen, second: Chosen, matched: Matched) -> tuple[tuple[Shift, ...], str]:
    """The changes, the pooled ones and every group's towards the reference; and why some are missing, in a sentence.

    The first editor's edits take the place of the unedited portraits: what the reader errs in both alike cancels.
    """
    one, other = first.run.readings, second.run.readings
    if one is None or other is None:
        return (), ""
    if any(matched.left_out):
        return (), "Readings are not compared: the two sides do not have all requests in common."
    places = _places(first, second)
    tallies = [_joined(mine, theirs, places) for mine, theirs in _alike(first, second, one, other)]
    if not tallies:
        return (), "Readings are not compared: no reader with the same settings read both sides."
    found = shifts(tallies, other.groups, other.blocks, second.run.settings.confidence)
    return tuple(shift for shift in found if shift.pooled or shift.target == other.reference), ""


def _places(first: Chosen, second: Chosen) -> NDArray[np.intp]:
    """For each of the second's portraits, its place in the first's run; both have the same."""
    known = {portrait.id: place for place, portrait in enumerate(first.results.edits.portraits)}
    return np.array([known[portrait.id] for portrait in second.results.edits.portraits], dtype=np.intp)


def _alike(first: Chosen, second: Chosen, one: Readings, other: Readings) -> Iterator[tuple[Tallies, Tallies]]:
    """The same arm and axis, by a reader of the same specification."""
    keys = [{reader.name: reader.spec.key for reader in chosen.run.design.readers} for chosen in (first, second)]
    mine = {
        (keys[0][tally.judge], tally.arm, tally.axis): tally
        for tally in one.tallies
        if tally.editor == first.editor.name
    }
    for tally in other.tallies:
        same = mine.get((keys[1][tally.judge], tally.arm, tally.axis))
        if tally.editor == second.editor.name and same is not None and same.targets == tally.targets:
            yield same, tally


def _joined(before: Tallies, after: Tallies, places: NDArray[np.intp]) -> Tallies:
    return replace(
        after,
        control_read=before.read[places],
        controls=before.edits[places],
        control_unsure=before.unsure[places],
    )
