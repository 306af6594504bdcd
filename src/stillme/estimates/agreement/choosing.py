"""Which edits should people rate? Those that shorten the corrected interval most, drawn with known chances.

A corrected mean is uncertain where people and the judge differ. Models that disagree with one another on an edit are
the sign of that. So each edit is drawn with a chance that grows with their disagreement, within groups, so that every
group gets its share. Because the chances are known, `corrected` weighs each edit by the inverse of its chance and stays
unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.errors import StillmeError
from stillme.estimates.quantities import Floats
from stillme.estimates.rows import Edits, EditState, Flags, RatingState, Scores

_MOST = 4.0
"""How many times likelier the most disputed edits are drawn than the least: larger weights would cost their gain."""


@dataclass(frozen=True, slots=True)
class ChosenEdits:
    """Edits for people, and with which chance each edit was drawn."""

    rows: NDArray[np.intp]
    chances: Floats
    """Per edit, 0 where it could not be drawn; what `corrected` takes."""


def choose_informative(
    edits: Edits, models: Sequence[Scores], count: int, stream: np.random.Generator, *, factor: str = ""
) -> ChosenEdits:
    """Draw `count` edits, the same share in every group of `factor`; likelier where the models disagree.

    `models` are the answers of at least two judges, or of one that was asked several times, on one axis.
    """
    if len(models) < 2:
        raise StillmeError("Disagreement needs the scores of at least two judges on one axis.")
    rated = np.stack([(score.state == RatingState.RATED) & ~np.isnan(score.value) for score in models])
    possible: Flags = rated.all(axis=0) & (edits.state == EditState.EDITED)
    size = int(possible.sum())
    if not 0 < count <= size:
        raise StillmeError(f"{count:,} edits cannot be drawn of {size:,} that all judges rated.")
    apart = np.where(possible, np.stack([score.value for score in models]).std(axis=0), 0.0)
    group = np.zeros(len(edits), dtype=np.intp)
    if factor:
        group = edits.levels(factor)[1][edits.portrait].astype(np.intp)
    chances = np.zeros(len(edits))
    for level in np.unique(group[possible]).tolist():
        inside = np.flatnonzero(possible & (group == level))
        chances[inside] = _chances(apart[inside], count * len(inside) / size)
    return ChosenEdits(_drawn(chances, group, stream), chances)


def _chances(apart: Floats, wanted: float) -> Floats:
    """Chances between 1 and `_MOST` parts, that sum to the number wanted; none is above 1."""
    highest = float(apart.max())
    parts = 1.0 + (_MOST - 1.0) * apart / highest if highest > 0 else np.ones(len(apart))
    chances = parts * wanted / parts.sum()
    for _ in range(len(chances)):
        over = chances > 1
        if not over.any():
            break
        chances[over] = 1.0
        free = chances < 1
        chances[free] *= (wanted - np.count_nonzero(~free)) / chances[free].sum()
    return chances


def _drawn(chances: Floats, group: NDArray[np.intp], stream: np.random.Generator) -> NDArray[np.intp]:
    """Systematic sampling in random order within groups: as many as the chances sum to, each with its own."""
    order = np.lexsort((stream.random(len(chances)), group))
    reached = np.cumsum(chances[order])
    start = stream.random()
    before = np.concatenate([[0.0], reached[:-1]])
    hit = np.floor(reached - start) > np.floor(before - start)
    return np.sort(order[hit])
