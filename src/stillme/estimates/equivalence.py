"""Equivalence tests: is a gap smaller than a margin? Not finding a difference does not show that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stillme.core.errors import StillmeError
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import design
from stillme.estimates.design import Comparison
from stillme.estimates.intervals import Batch, batches
from stillme.estimates.quantities import Columns, Floats
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.settings import Settings

Worse = Literal["higher", "lower"]
Kind = Literal["equivalent", "no worse"]

_SMALLEST, _HALVINGS, _PRECISION = 1e-6, 30, 1e-8
"""A p-value is found by halving between these ends, so precisely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Whether a contrast lies within a margin that was set before looking."""

    quantity: str
    editor: str
    arm: str
    judge: str
    factor: str
    group: str
    """`level - reference` or `level - rest`."""
    kind: Kind
    """`equivalent`: neither side is worse by the margin (two one-sided tests). `no worse`: the group is not."""
    margin: float
    outcome: Interval | NotEstimable
    """The difference with the interval that must lie within the margin: at 1 - 2 × alpha."""
    p: float | None
    """The larger of the one-sided p-values; 0.5 means one half or more."""
    holds: bool | None
    """Whether the claim is shown; None where the sides cannot be compared. False does not show the opposite."""
    portraits: int
    edits: int


def equivalence(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    margin: float,
    worse: Worse | None = None,
    quantities: Collection[str] | None = None,
) -> list[Equivalence]:
    """Test every contrast against a margin, in the quantity's own unit (0.05 is five points of a rate).

    Without `worse`, equivalence by two one-sided tests (TOST). With it, only that the group is no worse than the other
    side by the margin, where `worse` says which way is worse. Alpha is 1 - `settings.confidence`.
    """
    if not margin > 0:
        raise StillmeError(f"margin is {margin}; give the largest difference that would not matter, such as 0.05.")
    columns = Columns.of(edits)
    offered = columns.quantities(scores, prompts=settings.prompts == "sample")
    chosen = [quantity for quantity in offered if quantities is None or quantity.name in quantities]
    alpha = 1 - settings.confidence
    tests: list[Equivalence] = []
    for factor in settings.factors:
        plan = design.by_factor(columns, factor, settings)
        compared = [comparison for comparison in plan.comparisons if comparison.scope == "contrast"]
        for batch in batches(plan, chosen, settings):
            by_comparison = [
                (comparison, batch.outcomes(comparison, 1 - 2 * alpha), _p(batch, comparison, margin, worse))
                for comparison in compared
            ]
            for place, quantity in enumerate(batch.quantities):
                for comparison, outcomes, p in by_comparison:
                    claimed = float(p[place]) if isinstance(outcomes[place], Interval) else None
                    members = comparison.everyone
                    tests.append(
                        Equivalence(
                            quantity=quantity.name,
                            editor=quantity.editor,
                            arm=quantity.arm,
                            judge=quantity.judge,
                            factor=factor,
                            group=comparison.group,
                            kind="no worse" if worse else "equivalent",
                            margin=margin,
                            outcome=outcomes[place],
                            p=claimed,
                            holds=None if claimed is None else claimed <= alpha,
                            portraits=int((quantity.counts[members] > 0).sum()),
                            edits=int(quantity.counts[members].sum()),
                        )
                    )
    return tests


def _p(batch: Batch, comparison: Comparison, margin: float, worse: Worse | None) -> Floats:
    """By quantity: the smallest alpha whose interval lies within the margin; 0.5 for one half or more."""
    inside, outside = np.full(len(batch.quantities), 0.5), np.full(len(batch.quantities), _SMALLEST)

    def lies_within(alpha: Floats) -> Flags:
        _, low, high = batch.numbers(comparison, 1 - 2 * alpha)
        return ((worse == "lower") | (high < margin)) & ((worse == "higher") | (low > -margin))

    clear = lies_within(outside)
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        within = lies_within(middle)
        inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
    return np.where(clear, _SMALLEST, np.where(inside >= 0.5 - _PRECISION, 0.5, np.round(inside, 9)))
