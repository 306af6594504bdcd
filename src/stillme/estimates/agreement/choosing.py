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

from stillme.core.errors import StillmeError
from stillme.estimates.quantities import NOISE, Floats
from stillme.estimates.rows import Edits, EditState, RatingState, Scores

_MOST = 4.0
"""How many times likelier the most disputed edits are drawn than the least: larger weights would cost their gain."""


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Rows for people, and with which chance each row was drawn."""

    rows: NDArray[np.intp]
    chances: Floats
    """Per row, 0 where it could not be drawn; what `corrected` takes."""


def choose_informative(
    edits: Edits, models: Sequence[Scores], count: int, stream: np.random.Generator, *, factor: str = ""
) -> ChosenRows:
    """Draw `count` edits, the same share in every group of `factor`; likelier where the models disagree.

    `models` are the answers of at least two judges, or of one that was asked several times, on one axis.
    """
    rated = [np.where(score.state == RatingState.RATED, score.value, np.nan) for score in models]
    possible = np.flatnonzero(edits.state == EditState.EDITED)
    strata = np.zeros(len(edits), dtype=np.intp)
    if factor:
        strata = edits.levels(factor)[1][edits.portrait].astype(np.intp)
    chosen = draw_unequally(disagreement(rated)[possible], strata[possible], count, stream)
    chances = np.zeros(len(edits))
    chances[possible] = chosen.chances
    return ChosenRows(possible[chosen.rows], chances)


def disagreement(answers: Sequence[Floats]) -> Floats:
    """The standard deviation of each row's answers; NaN where fewer than two answered."""
    if len(answers) < 2:
        raise StillmeError("Disagreement needs the scores of at least two judges on one axis, or of one asked twice.")
    table = np.stack(answers)
    apart = np.full(table.shape[1], np.nan)
    several = np.count_nonzero(~np.isnan(table), axis=0) >= 2
    apart[several] = np.nanstd(table[:, several], axis=0)
    return apart


def draw_unequally(apart: Floats, strata: NDArray[np.intp], count: int, stream: np.random.Generator) -> ChosenRows:
    """Draw `count` rows, the same share in every stratum; likelier where `apart` is large.

    Every row can be drawn, or the estimate would be about something else; where `apart` is NaN, with an average chance.
    """
    if not 0 < count <= len(apart):
        raise StillmeError(f"{count:,} cannot be drawn of {len(apart):,}; ask for fewer.")
    chances = informative_chances(apart, strata, count)
    return ChosenRows(_drawn(chances, strata, stream), chances)


def informative_chances(apart: Floats, strata: NDArray[np.intp], count: float) -> Floats:
    """With which chance `draw_unequally` draws each row: they sum to `count`."""
    known = apart[~np.isnan(apart)]
    filled = np.where(np.isnan(apart), known.mean() if len(known) else 0.0, apart)
    highest = float(filled.max())
    parts = 1.0 + (_MOST - 1.0) * filled / highest if highest > NOISE else np.ones(len(filled))
    chances = np.zeros(len(apart))
    for stratum in np.unique(strata).tolist():
        inside = np.flatnonzero(strata == stratum)
        chances[inside] = _chances(parts[inside], count * len(inside) / len(apart))
    return chances


def _chances(parts: Floats, wanted: float) -> Floats:
    """Chances in proportion to the parts that sum to the number wanted; none is above 1."""
    chances = parts * wanted / parts.sum()
    while (chances > 1).any() and (chances < 1).any():
        certain = chances >= 1
        chances[certain] = 1.0
        chances[~certain] *= max(0.0, wanted - np.count_nonzero(certain)) / chances[~certain].sum()
    return np.minimum(chances, 1.0)


def _drawn(chances: Floats, strata: NDArray[np.intp], stream: np.random.Generator) -> NDArray[np.intp]:
    """Systematic sampling in random order within strata: as many as the chances sum to, each with its own."""
    order = np.lexsort((stream.random(len(chances)), strata))
    reached = np.cumsum(chances[order])
    start = stream.random()
    before = np.concatenate([[0.0], reached[:-1]])
    hit = np.floor(reached - start) > np.floor(before - start)
    return np.sort(order[hit])
