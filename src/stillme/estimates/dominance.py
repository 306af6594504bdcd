"""Cliff's delta with portraits as units: how much more often one side's edits score above the other's than below.

An edit's placement is the share of the other side that it scores above, minus the share that it scores below. The mean
placement of the one side is delta and of the other side minus delta; their spread between portraits is, to first
order, delta's own (Hoeffding's projection). So the resampling of means serves delta too, for any number of edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillme.estimates.design import Comparison
from stillme.estimates.quantiles import wilson
from stillme.estimates.quantities import Columns, Floats, Measured, Quantity, sums_by
from stillme.estimates.rounding import NOISE, interval
from stillme.estimates.rows import Flags
from stillme.types import Interval

MAX_VALUES = 64
"""Distinct values up to which edits are counted by value; then no comparison looks at single edits."""


def dominance(columns: Columns, measured: Measured, quantity: Quantity, comparisons: Sequence[Comparison]) -> Quantity:
    """The quantity with placements instead of values; each comparison has its own."""
    rows = np.flatnonzero(measured.counted)
    rank, value = columns.rank[rows], measured.value[rows]
    if quantity.by_prompt is None:
        values, code = np.unique(value, return_inverse=True)
        if 0 < len(values) <= MAX_VALUES:
            cell = rank * len(values) + code
            counts = np.bincount(cell, minlength=len(columns.portraits) * len(values)).reshape(-1, len(values))
            sums = {comparison.group: _summed(counts, comparison) for comparison in comparisons}
            return replace(quantity, bounds=None, sums_in=sums)
    placed = {
        comparison.group: placements(value, comparison.members[rank], _other(comparison)[rank])
        for comparison in comparisons
    }
    shape = (len(columns.portraits), len(columns.edits.prompts))
    cells: dict[str, Floats] = {}
    if quantity.by_prompt is not None:
        cell = rank * shape[1] + columns.prompt[rows]
        cells = {
            name: sums_by(cell, placement, shape[0] * shape[1]).reshape(shape) for name, placement in placed.items()
        }
    return replace(
        quantity,
        bounds=None,
        sums_in={name: sums_by(rank, placement, shape[0]) for name, placement in placed.items()},
        by_prompt_in=cells,
    )


def _summed(counts: NDArray[np.int64], comparison: Comparison) -> Floats:
    """Each portrait's sum of placements, from portraits × values: how many of its edits have each value."""
    sums = np.zeros(len(counts))
    for side, opposite in ((comparison.members, _other(comparison)), (_other(comparison), comparison.members)):
        there = counts[opposite].sum(axis=0)
        up_to = np.cumsum(there)
        if total := int(up_to[-1]):
            sums[side] = counts[side] @ ((2 * up_to - there - total) / total)
    return sums


def placements(value: Floats, one: Flags, other: Flags) -> Floats:
    """Each row's placement among the rows of the side that it is not on; 0 for rows on neither."""
    placement = np.zeros(len(value))
    for side, opposite in ((one, other), (other, one)):
        reference = np.sort(value[opposite])
        if len(reference):
            below = np.searchsorted(reference, value[side], "left")
            not_above = np.searchsorted(reference, value[side], "right")
            placement[side] = (below - (len(reference) - not_above)) / len(reference)
    return placement


def delta_of(doubled: Interval, people: int) -> Interval:
    """Delta's interval, given that of the difference of mean placements, which is twice delta with delta's spread."""
    delta, method = doubled.value / 2, doubled.method
    if doubled.high - doubled.low > NOISE:
        low, high = delta + doubled.low - doubled.value, delta + doubled.high - doubled.value
    else:
        # All portraits have the same placement, as when no edit of one side ever scores above the other. What was not
        # seen among so few people may still happen.
        low, high = (2 * limit - 1 for limit in wilson((1 + delta) / 2, people, doubled.confidence))
        method = "Wilson on the number of people"
    return interval(delta, max(-1.0, low), min(1.0, high), confidence=doubled.confidence, method=method)


def _other(comparison: Comparison) -> Flags:
    assert comparison.against is not None
    return comparison.against
