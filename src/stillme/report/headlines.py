"""Which quantities the first screen and the figures are about; the rest is in the tables."""

from __future__ import annotations

from stillme import rubric
from stillme.estimates.cuts import rate_of

EDIT_MADE = ("success", "soft_erasure", "unchanged", "refused")
"""Whether the edit was made; the other headline quantities say what else changed."""

HEADLINES = (
    *EDIT_MADE,
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
"""In the order of their figures."""


def is_headline(quantity: str) -> bool:
    """Whether the quantity gets a figure. A plugin's own quantities always do."""
    known = rubric.load()
    return quantity in HEADLINES or not (quantity in known.axes or rate_of(quantity) or quantity == "failed")


def is_headline_axis(axis: str) -> bool:
    """Whether the axis, or a named rate on it, gets a figure."""
    rates = (rate.name for rate in rubric.load().rates.values() if rate.axis == axis)
    return is_headline(axis) or any(is_headline(name) for name in rates)


def order_of(quantity: str) -> int:
    """The position of a quantity's figure."""
    return HEADLINES.index(quantity) if quantity in HEADLINES else len(HEADLINES)
