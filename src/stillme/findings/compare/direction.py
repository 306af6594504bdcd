"""Which way a quantity is worse."""

from __future__ import annotations

from enum import StrEnum

from stillme.core import rubric
from stillme.core.rubric import Axis, Rate, rate_of
from stillme.estimates import numbers
from stillme.estimates.quantities import EDIT_RATES

_HAPPENED = "visible_change"
"""Says whether an edit was made at all, not whether the person was preserved: no change is the bad answer."""
_SIZES = ("changed_area", "mean_delta_e")
"""How much was changed: neither good nor bad."""


class Worse(StrEnum):
    """When a value is worse than another."""

    HIGHER = "higher"
    LOWER = "lower"
    AWAY = "further from unchanged"
    """Such as skin lightness, where both directions are bad."""
    UNKNOWN = "unknown"
    """A plugin's own quantity, or one that is neither good nor bad."""


def worse_when(quantity: str) -> Worse:
    """The direction follows from the rubric, so that a new rate or axis needs no second list."""
    if quantity in EDIT_RATES:
        return Worse.HIGHER
    rate = rate_of(quantity)
    axis = rubric.load().axes.get(rate.axis if rate else quantity)
    if axis is None:
        return Worse.UNKNOWN
    return _of_rate(rate, axis) if rate else _of_mean(axis)


def _of_rate(rate: Rate, axis: Axis) -> Worse:
    if axis.name == _HAPPENED:
        return Worse.HIGHER if rate.holds(1.0) else Worse.LOWER
    if axis.is_scale and axis.unchanged is None:
        return Worse.LOWER if rate.holds(float(len(axis.scale))) else Worse.HIGHER
    if axis.unchanged is None:
        return Worse.UNKNOWN
    return Worse.LOWER if rate.holds(axis.unchanged) else Worse.HIGHER


def _of_mean(axis: Axis) -> Worse:
    if axis.name in (_HAPPENED, *_SIZES):
        return Worse.UNKNOWN
    if axis.is_scale:
        if axis.unchanged is None:
            return Worse.LOWER
        return Worse.HIGHER if axis.unchanged == 1 else Worse.AWAY
    if axis.unchanged is None:
        return Worse.UNKNOWN
    return Worse.AWAY if numbers.is_signed(axis.name) else Worse.HIGHER


def unchanged_value(quantity: str) -> float:
    """The value of an unchanged person, for quantities where both directions are bad."""
    axis = rubric.load().axes.get(quantity)
    return axis.unchanged or 0.0 if axis else 0.0
