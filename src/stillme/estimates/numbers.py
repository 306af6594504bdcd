"""Quantities and their values as text, the same wherever they are shown.

For people, a rate is in percent and a mean in its unit. For programs, a number has nine significant digits.
"""

from __future__ import annotations

from stillme.core import rubric
from stillme.core.rubric import SHIFTS, rate_of
from stillme.core.types import Estimate, Interval
from stillme.estimates.quantities import EDIT_RATES

_UNDIRECTED = (
    *("skin_delta_e", "identity_distance", "identity_drift", "identity_swap", "changed_area", "mean_delta_e"),
    *("changed_face", "changed_hair", "changed_clothes", "changed_background"),
)
"""Distances have no direction, so they get no sign."""

_SMALLEST_P = 0.001


def is_rate(quantity: str) -> bool:
    """Whether the quantity is a share of edits, to be shown in percent."""
    return quantity in EDIT_RATES or quantity in SHIFTS or rate_of(quantity) is not None


def is_signed(quantity: str) -> bool:
    """Whether values are changes from 0 in either direction."""
    axis = rubric.load().axes.get(quantity)
    directed = axis is not None and not axis.is_scale and axis.unchanged == 0 and quantity not in _UNDIRECTED
    return directed or quantity in SHIFTS


def title(quantity: str) -> str:
    """What to call a quantity in front of people."""
    rate = rate_of(quantity)
    return EDIT_RATES.get(quantity) or SHIFTS.get(quantity) or (rate.title if rate else rubric.load().title(quantity))


def factor_name(factor: str) -> str:
    """What to call an attribute in front of people."""
    return factor.replace("_", " ")


def unit(quantity: str) -> str:
    """The unit of a mean; empty for rates, whose percent sign is part of the number, and for scales."""
    axis = rubric.load().axes.get(quantity)
    return "" if axis is None or axis.is_scale else axis.unit


def symbol(quantity: str) -> str:
    """The unit where it is short enough to follow every number, such as `ΔL*`."""
    return unit(quantity) if len(unit(quantity)) <= 4 else ""


def digits(quantity: str) -> int:
    """Decimals of a mean. Distances and probability shifts lie between 0 and 1, where two would say little."""
    return 3 if unit(quantity) and not symbol(quantity) else 2


def number(quantity: str, value: float, *, plus: bool = False) -> str:
    """A rate in percent, a shift of one in points, a mean in its unit."""
    if quantity in SHIFTS:
        return points(value, plus=plus)
    return percent(value, plus=plus) if is_rate(quantity) else decimal(value, digits(quantity), plus=plus)


def span(quantity: str, interval: Interval, *, plus: bool = False) -> str:
    """`8.0 % to 17.2 %`."""
    return f"{number(quantity, interval.low, plus=plus)} to {number(quantity, interval.high, plus=plus)}"


def with_interval(estimate: Estimate) -> str:
    """`12.5 % (8.0 % to 17.2 %)`, or why there is no value."""
    if not isinstance(estimate.outcome, Interval):
        return estimate.outcome.reason
    plus = estimate.scope == "contrast" or (is_signed(estimate.quantity) and estimate.scope != "disparity")
    value = number(estimate.quantity, estimate.outcome.value, plus=plus)
    return f"{value} ({span(estimate.quantity, estimate.outcome, plus=plus)})"


def percent(share: float, decimals: int = 1, *, plus: bool = False) -> str:
    """`12.5 %`."""
    return f"{decimal(100 * share, decimals, plus=plus)} %"


def points(difference: float, *, plus: bool = False) -> str:
    """A difference of two rates: `12.5 points`."""
    return f"{decimal(100 * difference, 1, plus=plus)} points"


def difference(quantity: str, value: float, *, plus: bool = False) -> str:
    """A difference of two values: in points between rates, else in the quantity's unit."""
    return points(value, plus=plus) if is_rate(quantity) else number(quantity, value, plus=plus)


def difference_span(quantity: str, interval: Interval, *, plus: bool = False) -> str:
    """`8.0 to 17.2 points`."""
    if not is_rate(quantity):
        return span(quantity, interval, plus=plus)
    return f"{decimal(100 * interval.low, 1, plus=plus)} to {points(interval.high, plus=plus)}"


def decimal(value: float, decimals: int, *, plus: bool = False) -> str:
    """With a real minus sign; a rounded zero has no sign but the plus that was asked for."""
    return f"{round(value, decimals) + 0.0:{'+' if plus else ''}.{decimals}f}".replace("-", "−")


def p_value(p: float) -> str:
    """`p = 0.0312` or `p < 0.001`: no test has a p value of 0."""
    return f"p {p_number(p)}" if p < _SMALLEST_P else f"p = {p_number(p)}"


def p_number(p: float) -> str:
    """The same under a heading that says p."""
    return f"< {_SMALLEST_P:g}" if p < _SMALLEST_P else f"{p:.4f}"


def machine(value: float) -> str:
    """For CSV: nine significant digits, so that processors agree, and no negative zero."""
    return f"{value + 0.0:.9g}"
