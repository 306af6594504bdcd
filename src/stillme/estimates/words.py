"""Four words for a gap: what its interval and its test say of the smallest effect that matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from stillme.core import rubric
from stillme.core.types import Interval, NotEstimable
from stillme.estimates.cuts import rate_of
from stillme.estimates.quantities import EDIT_RATES

Word = Literal["larger than matters", "smaller than matters", "differs, size unclear", "unclear"]

MIN_UNITS = 5
"""Units of each group below which a gap has a number and no word."""


def smallest_effect(quantity: str, own: Mapping[str, float]) -> float | None:
    """The smallest difference that matters, in the quantity's own unit; `own` are the audit's, before the rubric's."""
    known = rubric.load()
    axis = known.axes.get(quantity)
    kind = "rate" if quantity in EDIT_RATES or rate_of(quantity) else "scale" if axis and axis.is_scale else ""
    for effects in (own, known.smallest_effects):
        for name in (quantity, kind):
            if name in effects:
                return effects[name]
    return None


def word_for(
    gap: Interval | NotEstimable, *, p: float | None, smallest: float | None, units: int, level: float = 0.05
) -> Word | None:
    """The word for a gap whose test has this p-value after correction; None where there are too few units for any."""
    if isinstance(gap, NotEstimable) or units < MIN_UNITS:
        return None
    differs = p is not None and p <= level
    if smallest is not None:
        if differs and (gap.low > smallest or gap.high < -smallest):
            return "larger than matters"
        if -smallest < gap.low and gap.high < smallest:
            return "smaller than matters"
    return "differs, size unclear" if differs else "unclear"
