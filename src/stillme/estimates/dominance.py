"""Cliff's delta with portraits as units: how much more often one side's edits score above the other's than below.

An edit's placement is the share of the other side that it scores above, less the share it scores below. The mean
placement of the one side is delta and of the other side minus delta; their spread between portraits is, to first
order, delta's own (Hoeffding's projection). So the resampling of means serves delta too, for any number of edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stillme.estimates.design import Comparison
from stillme.estimates.quantiles import wilson
from stillme.estimates.quantities import Columns, Floats, Measured, Quantity, sums_by
from stillme.estimates.rows import Flags
from stillme.types import Interval


def dominance(columns: Columns, measured: Measured, quantity: Quantity, comparisons: Sequence[Comparison]) -> Quantity:
    """The quantity with placements instead of values, for each comparison its own."""
    rows = np.flatnonzero(measured.counted)
    rank, value = columns.rank[rows], measured.value[rows]
    placed = {each.group: placements(value, each.members[rank], _other(each)[rank]) for each in comparisons}
    size, prompts = len(columns.portraits), len(columns.edits.prompts)
    cells: dict[str, Floats] = {}
    if quantity.by_prompt is not None:
        where = rank * prompts + columns.prompt[rows]
        cells = {name: sums_by(where, each, size * prompts).reshape(size, prompts) for name, each in placed.items()}
    return replace(
        quantity,
        bounds=None,
        sums_in={name: sums_by(rank, each, size) for name, each in placed.items()},
        by_prompt_in=cells,
    )


def placements(value: Floats, one: Flags, other: Flags) -> Floats:
    """Each row's placement among the rows of the side that it is not on; 0 for rows on neither."""
    found = np.zeros(len(value))
    for mine, theirs in ((one, other), (other, one)):
        reference = np.sort(value[theirs])
        if len(reference):
            below = np.searchsorted(reference, value[mine], "left")
            not_above = np.searchsorted(reference, value[mine], "right")
            found[mine] = (below - (len(reference) - not_above)) / len(reference)
    return found


def delta_of(doubled: Interval, portraits: int) -> Interval:
    """Delta's interval, given that of the difference of mean placements, which is twice delta with delta's spread."""
    delta = doubled.value / 2
    if doubled.high - doubled.low > 1e-12:
        low, high = delta + doubled.low - doubled.value, delta + doubled.high - doubled.value
        return replace(doubled, value=delta, low=max(-1.0, low), high=min(1.0, high))
    # Every portrait says the same, as when no edit of one side ever scores above the other: what was not seen among
    # so few portraits may still be.
    low, high = wilson((1 + delta) / 2, portraits, doubled.confidence)
    method = "Wilson on the number of portraits"
    return replace(doubled, value=delta, low=2 * low - 1, high=2 * high - 1, method=method)


def _other(comparison: Comparison) -> Flags:
    assert comparison.against is not None
    return comparison.against
