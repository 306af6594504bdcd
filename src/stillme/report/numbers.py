"""Numbers as people read them."""

from __future__ import annotations

from stillme import rubric
from stillme.estimates.cuts import rate_of
from stillme.estimates.tables import is_rate, title
from stillme.types import Estimate, Interval

__all__ = [
    "factor",
    "headline_place",
    "is_headline",
    "is_rate",
    "is_telling",
    "limits",
    "number",
    "signed",
    "span",
    "symbol",
    "title",
    "unit",
]

HEADLINES = (
    "success",
    "soft_erasure",
    "unchanged",
    "refused",
    "skin_lightened",
    "skin_darkened",
    "skin_delta_l",
    "race_changed",
    "gender_changed",
    "identity_distance",
    "race_distance",
    "gender_delta",
    "age_change",
    "age_delta_years",
    "age_accuracy",
)
"""The quantities that figures and tests of gaps are about; the rest is in the tables."""

_DISTANCES = ("skin_delta_e", "identity_distance", "race_distance", "changed_area")
"""Quantities that have no direction."""

HAPPENED = ("success", "soft_erasure", "unchanged", "refused")
"""Of these, the ones that say whether the edit was made; the others say what else changed."""


def is_headline(quantity: str) -> bool:
    """Whether the quantity gets a figure. A plugin's own quantities do: nobody else knows what they repeat."""
    known = rubric.load()
    return quantity in HEADLINES or not (quantity in known.axes or rate_of(quantity) or quantity == "failed")


def is_telling(axis: str) -> bool:
    """Whether the axis, or a rate on it, has a figure of its own."""
    rates = (rate.name for rate in rubric.load().rates.values() if rate.axis == axis)
    return is_headline(axis) or any(is_headline(name) for name in rates)


def headline_place(quantity: str) -> int:
    """The order of figures."""
    return HEADLINES.index(quantity) if quantity in HEADLINES else len(HEADLINES)


def unit(quantity: str) -> str:
    """The unit behind a number; percent signs are part of the number."""
    axis = rubric.load().axes.get(quantity)
    return "" if axis is None or axis.is_scale else axis.unit


def symbol(quantity: str) -> str:
    """The unit where it is short enough to follow every number, such as `ΔL*`."""
    return unit(quantity) if len(unit(quantity)) <= 4 else ""


def number(quantity: str, value: float, *, plus: bool = False) -> str:
    """A rate in percent, anything else in its unit; never a negative zero."""
    sign = "+" if plus else ""
    if is_rate(quantity):
        shown = f"{round(100 * value, 1) + 0.0:{sign}.1f} %"
    else:
        # Distances and probability shifts live between 0 and 1, where two decimals say little.
        digits = 3 if unit(quantity) and not symbol(quantity) else 2
        shown = f"{round(value, digits) + 0.0:{sign}.{digits}f}"
    return shown.replace("-", "−")


def signed(quantity: str) -> bool:
    """Whether values stand for a change in either direction from nothing."""
    axis = rubric.load().axes.get(quantity)
    return axis is not None and not axis.is_scale and axis.unchanged == 0 and quantity not in _DISTANCES


def span(quantity: str, interval: Interval, *, plus: bool = False) -> str:
    """`8.0 % to 17.2 %`."""
    return f"{number(quantity, interval.low, plus=plus)} to {number(quantity, interval.high, plus=plus)}"


def factor(name: str) -> str:
    """An attribute's name as words."""
    return name.replace("_", " ")


def limits(found: Estimate) -> str:
    """The value with its interval, or why there is none."""
    if not isinstance(found.outcome, Interval):
        return found.outcome.reason
    plus = found.scope == "contrast" or (signed(found.quantity) and found.scope != "disparity")
    return (
        f"{number(found.quantity, found.outcome.value, plus=plus)} ({span(found.quantity, found.outcome, plus=plus)})"
    )
