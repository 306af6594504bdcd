"""Equivalence tests: is a gap smaller than a margin? Not finding a difference does not show that."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from stillme.errors import StillmeError
from stillme.estimates import design
from stillme.estimates.bootstrap import Limits
from stillme.estimates.quantities import Columns
from stillme.estimates.resampling import limits
from stillme.estimates.rows import Edits, Scores
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable

Worse = Literal["higher", "lower"]
Kind = Literal["equivalent", "no worse"]

_PRECISION = 1e-8
"""Of a p-value."""


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
        for quantity, by_comparison in zip(chosen, limits(plan, chosen, settings), strict=True):
            for comparison, interval_at in zip(plan.comparisons, by_comparison, strict=True):
                if comparison.scope != "contrast":
                    continue
                outcome = interval_at(round(1 - 2 * alpha, 12))
                p = _p(interval_at, margin, worse, settings.replicates) if isinstance(outcome, Interval) else None
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
                        outcome=outcome,
                        p=p,
                        holds=None if p is None else p <= alpha,
                        portraits=int((quantity.counts[members] > 0).sum()),
                        edits=int(quantity.counts[members].sum()),
                    )
                )
    return tests


def _p(interval_at: Limits, margin: float, worse: Worse | None, replicates: int) -> float:
    """The smallest alpha whose interval lies within the margin."""
    # A p-value below one in all resamples would claim more than they show.
    smallest, largest = 1 / (1 + replicates), 0.5 - _PRECISION

    def slack(alpha: float) -> float:
        outcome = interval_at(1 - 2 * alpha)
        assert isinstance(outcome, Interval)
        above = math.inf if worse == "lower" else margin - outcome.high
        below = math.inf if worse == "higher" else outcome.low + margin
        return min(above, below)

    if slack(smallest) > 0:
        return smallest
    if slack(largest) <= 0:
        return 0.5
    optimize: Any = import_module("scipy.optimize")
    return float(optimize.bisect(slack, smallest, largest, xtol=_PRECISION))
