"""How small a gap a design can detect.

Edits of one portrait are correlated, so m of them carry as much information as m / (1 + (m - 1) × ICC) independent
ones. A gap is detected if it is as large as its standard error times the quantile of the test plus the quantile of the
power, both of Student's t with the portraits' degrees of freedom.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from scipy.special import expit, stdtrit

from stillme.estimates.quantities import Floats

HALF_WIDTH = 0.05
"""Of the interval that human ratings are planned for."""
JUDGE_CORRELATION = (0.4, 0.8)
"""Of a judge's answers to single edits with people's."""
_MOST_PORTRAITS = 1_000_000
_LARGEST_SD = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMeasure:
    """A share of edits: its base rate, and the ICC of one portrait's edits at that rate."""

    base: float
    icc: float

    def variance(self, value: float) -> float:
        """Of one edit."""
        return value * (1 - value)

    def icc_at(self, value: float) -> float:
        """The ICC at another rate if portraits vary as much on the logit scale; it is largest at one half."""
        return float(np.interp(value, _RATES, _iccs(portrait_sd_of(self.icc, self.start))))

    @property
    def start(self) -> float:
        """Gaps are measured where there is room: from the base rate towards one half."""
        return min(self.base, 1 - self.base)

    @property
    def largest_gap(self) -> float:
        """The largest gap that is possible."""
        return 1 - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanMeasure:
    """A mean of scores: the standard deviation of single scores, and the ICC of one portrait's scores."""

    sd: float
    icc: float
    start: float = 0.0
    largest_gap: float = 4.0
    """From one end of a 1–5 scale to the other."""

    def variance(self, value: float) -> float:
        """Of one edit."""
        return self.sd**2

    def icc_at(self, value: float) -> float:
        """The same everywhere."""
        return self.icc


Measure = RateMeasure | MeanMeasure


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSide:
    """One side of a comparison."""

    edits: Floats
    """Of each of its portraits."""
    units: int
    """Portraits, or identities where a unit is the portraits of one."""

    @classmethod
    def of(cls, portraits: int, edits_each: float) -> PowerSide:
        """The same number of edits of every portrait."""
        return cls(edits=np.full(portraits, edits_each), units=portraits)

    def variance(self, measure: Measure, value: float) -> float:
        """The variance of this side's mean or rate, where it has this value."""
        return measure.variance(value) / effective_size(self.edits, measure.icc_at(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The confidence and power that a gap must be detected with."""

    confidence: float = 0.95
    power: float = 0.8
    comparisons: int = 1
    """Holm: the first of so many comparisons; 1 for one that was declared beforehand."""

    def standard_errors(self, freedom: int) -> float:
        """How many standard errors a gap must span: the quantile of the two-sided test plus that of the power."""
        tail = (1 - self.confidence) / (2 * self.comparisons)
        return float(stdtrit(freedom, 1 - tail) + stdtrit(freedom, self.power))


def effective_size(edits: Sequence[float] | Floats, icc: float) -> float:
    """How many independent edits carry as much information as these, given the number of edits of each portrait."""
    counts = np.asarray(edits, dtype=np.float64)
    total = float(counts.sum())
    return total**2 / float((counts * (1 + (counts - 1) * icc)).sum()) if total else 0.0


def ratings_for(
    rate: float, icc: float, edits: Sequence[float] | Floats, correlation: float, confidence: float
) -> int | None:
    """Edits that people must rate so that a corrected rate is known to ±5 points; None if all are not enough.

    The portraits are a sample, which no rating changes; and rating a part of the edits costs what the judge leaves
    unexplained.
    """
    variance, total = rate * (1 - rate), float(np.sum(edits))
    quantile = float(stdtrit(max(1, len(edits) - 1), (1 + confidence) / 2))
    left = (HALF_WIDTH / quantile) ** 2 - variance / effective_size(edits, icc)
    if left < 0:
        return None
    unexplained = variance * (1 - correlation**2)
    return math.ceil(1 / (left / unexplained + 1 / total))


def smallest_gap(
    measure: Measure, one: PowerSide, other: PowerSide, terms: Terms, *, paired: bool = False
) -> float | None:
    """The smallest gap between two sides that is detected with the wanted power; None if even the largest is not."""
    freedom = max(0, one.units - 1) + (0 if paired else max(0, other.units - 1))
    if freedom < 1 or not (one.edits.any() and other.edits.any()):
        return None
    standard_errors = terms.standard_errors(freedom)
    base_variance = other.variance(measure, measure.start)

    def excess(gap: float) -> float:
        return gap - standard_errors * math.sqrt(base_variance + one.variance(measure, measure.start + gap))

    return _root(excess, 0.0, measure.largest_gap) if excess(measure.largest_gap) >= 0 else None


def smallest_departure(icc: float, side: PowerSide, terms: Terms) -> float | None:
    """The smallest distance of a share from one half that is detected; None if even 0 or 1 is not."""
    if side.units < 2:
        return None
    measure = RateMeasure(base=0.5, icc=icc)
    # A share varies most at one half, so this is conservative.
    departure = terms.standard_errors(side.units - 1) * math.sqrt(side.variance(measure, 0.5))
    return departure if departure <= measure.largest_gap else None


def portraits_needed(gap: float, measure: Measure, edits_each: float, terms: Terms) -> int | None:
    """Portraits in each of two groups for a gap to be detected; None if no number is enough."""

    def enough(portraits: int) -> bool:
        side = PowerSide.of(portraits, edits_each)
        smallest = smallest_gap(measure, side, side, terms)
        return smallest is not None and smallest <= gap

    most = 2
    while not enough(most):
        most *= 2
        if most > _MOST_PORTRAITS:
            return None
    return bisect_left(range(most), True, lo=most // 2, key=enough)


def icc_of(portrait_sd: float, rate: float) -> float:
    """The ICC of a rate when portraits vary by a normal effect with this standard deviation on the logit scale."""
    intercept = _root(lambda logit: _moments(logit, portrait_sd)[0] - rate, -60.0, 60.0)
    mean, variance = _moments(intercept, portrait_sd)
    return variance / (mean * (1 - mean))


@cache
def portrait_sd_of(icc: float, rate: float) -> float:
    """The standard deviation on the logit scale that gives this ICC at this rate."""
    if icc <= 0:
        return 0.0
    if icc >= icc_of(_LARGEST_SD, rate):
        return _LARGEST_SD
    return _root(lambda portrait_sd: icc_of(portrait_sd, rate) - icc, 0.0, _LARGEST_SD)


@cache
def _iccs(portrait_sd: float) -> Floats:
    return np.array([icc_of(portrait_sd, rate) for rate in _RATES])


def _moments(intercept: float, portrait_sd: float) -> tuple[float, float]:
    rates = expit(intercept + portrait_sd * _POINTS)
    mean = float(_WEIGHTS @ rates)
    return mean, float(_WEIGHTS @ (rates - mean) ** 2)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    optimize: Any = import_module("scipy.optimize")
    return float(optimize.brentq(function, low, high, xtol=1e-12))


_POINTS, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()
_RATES = np.linspace(0.005, 0.995, 100)
