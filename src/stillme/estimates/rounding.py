"""Rounding errors, kept out of results.

The same sum differs in its last bits between processors and between orders of addition. A rate of 1e-17 is 0, and two
groups 1e-16 apart are tied: results must not depend on which bits came out.
"""

from __future__ import annotations

import numpy as np

from stillme.core.types import Interval
from stillme.estimates.quantities import Floats

NOISE = 1e-12
"""Differences below this are rounding errors: the smallest rate above 0 is one edit in at most a few million."""

DECIMALS = 12
"""Results are rounded to so many."""


def snapped(rates: Floats) -> Floats:
    """Rates within rounding of 0 or 1 as exactly 0 or 1."""
    rates = np.where(np.abs(rates) < NOISE, 0.0, rates)
    return np.where(np.abs(rates - 1.0) < NOISE, 1.0, rates)


def rounded(value: float) -> float:
    """The value without rounding errors; a zero has no sign."""
    return round(float(value), DECIMALS) + 0.0


def interval(value: float, low: float, high: float, *, confidence: float, method: str) -> Interval:
    """An interval whose numbers are the same on every processor."""
    return Interval(value=rounded(value), low=rounded(low), high=rounded(high), confidence=confidence, method=method)
