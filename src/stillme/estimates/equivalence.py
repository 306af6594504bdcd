"""Is a gap surely small? Not finding a difference does not say so; these tests do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """The larger of the one-sided p-values; 0.5 stands for one half or more."""
    holds: bool | None
    """Whether the claim is shown; None where the sides cannot be compared. False is not the opposite claim."""
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
        raise StillmeError(f"margin is {margin}; write the largest difference that would not matter, such as 0.05.")
    columns = Columns.of(edits)
    offered = columns.quantities(scores, prompts=settings.prompts == "sample")
    chosen = [each for each in offered if quantities is None or each.name in quantities]
    alpha = 1 - settings.confidence
    found: list[Equivalence] = []
    for factor in settings.factors:
        plan = design.by_factor(columns, factor, settings.reference.get(factor))
        for quantity, by_comparison in zip(chosen, limits(plan, chosen, settings), strict=True):
            for comparison, at in zip(plan.comparisons, by_comparison, strict=True):
                if comparison.scope != "contrast":
                    continue
                outcome = at(1 - 2 * alpha)
                p = _p(at, margin, worse, settings.replicates) if isinstance(outcome, Interval) else None
                members = comparison.everyone
                found.append(
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
    return found


def _p(at: Limits, margin: float, worse: Worse | None, replicates: int) -> float:
    """Find the smallest alpha whose interval lies within the margin, by bisection."""
    low, high = 0.0, 0.5
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (low, middle) if _inside(at(1 - 2 * middle), margin, worse) else (middle, high)
    # Resamples cannot tell anything rarer than one of them.
    return max(high, 1 / (1 + replicates))


def _inside(outcome: Interval | NotEstimable, margin: float, worse: Worse | None) -> bool:
    if not isinstance(outcome, Interval):
        return False
    above = worse == "lower" or outcome.high < margin
    below = worse == "higher" or outcome.low > -margin
    return above and below
