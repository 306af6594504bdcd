"""How small a gap a design can see.

Edits of one portrait are alike, so m of them say as much as m / (1 + (m - 1) × ICC) independent ones. A gap is seen if
it is as large as its standard error times the quantile of the test plus the quantile of the power, both Student's with
the portraits' degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from stillme.estimates.bootstrap import ENOUGH
from stillme.estimates.quantiles import student
from stillme.estimates.quantities import Floats

_MOST_PORTRAITS = 1_000_000
_STEPS = 50
_LARGEST_SD = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of edits: how common it is to begin with, and how alike the edits of one portrait are there."""

    base: float
    icc: float

    def variance(self, value: float) -> float:
        """Of one edit."""
        return value * (1 - value)

    def likeness(self, value: float) -> float:
        """The ICC at another rate, if portraits differ as much on the logit scale: it is largest at one half."""
        return float(np.interp(value, _RATES, _iccs(portrait_sd_of(self.icc, self.start))))

    @property
    def start(self) -> float:
        """Gaps are looked for where there is room: from the base rate towards one half."""
        return min(self.base, 1 - self.base)

    @property
    def widest(self) -> float:
        """The largest gap that is possible."""
        return 1 - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean of scores: how much single scores differ, and how alike those of one portrait are."""

    sd: float
    icc: float
    start: float = 0.0
    widest: float = 4.0
    """From one end of a 1–5 scale to the other."""

    def variance(self, value: float) -> float:
        """Of one edit."""
        return self.sd**2

    def likeness(self, value: float) -> float:
        """The same everywhere."""
        return self.icc


Outcome = Rate | Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison."""

    edits: Floats
    """Of each of its portraits."""
    units: int
    """Portraits, or blocks of them where blocks are resampled."""

    @classmethod
    def of(cls, portraits: int, edits_each: float) -> Side:
        """As many edits of every portrait."""
        return cls(edits=np.full(portraits, edits_each), units=portraits)

    def freedom(self, outcome: Outcome) -> int:
        """Degrees of freedom. Rates of few blocks are given by Wilson's interval, which does not count blocks."""
        few = isinstance(outcome, Rate) and self.units < ENOUGH
        return max(0, (len(self.edits) if few else self.units) - 1)

    def error(self, outcome: Outcome, value: float) -> float:
        """The variance of this side's mean or rate, where it has this value."""
        return outcome.variance(value) / effective(self.edits, outcome.likeness(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How sure one wants to be."""

    confidence: float = 0.95
    power: float = 0.8
    comparisons: int = 1
    """Of how many this is the first by Holm; 1 for one that was declared beforehand."""

    @property
    def tail(self) -> float:
        """The quantile of a two-sided test."""
        return 1 - (1 - self.confidence) / (2 * self.comparisons)


def effective(edits: Sequence[float] | Floats, icc: float) -> float:
    """How many independent edits say as much as these, given each portrait's number of them."""
    counts = np.asarray(edits, dtype=np.float64)
    total = float(counts.sum())
    return total**2 / float((counts * (1 + (counts - 1) * icc)).sum()) if total else 0.0


def smallest_gap(outcome: Outcome, one: Side, other: Side, terms: Terms, *, paired: bool = False) -> float | None:
    """The smallest gap between two sides that is found with the wished power; None if even the widest is not."""
    freedom = one.freedom(outcome) if paired else one.freedom(outcome) + other.freedom(outcome)
    if freedom < 1 or not (one.edits.any() and other.edits.any()):
        return None
    reach = student(terms.tail, freedom) + student(terms.power, freedom)
    known = other.error(outcome, outcome.start)

    def seen(gap: float) -> bool:
        return gap >= reach * math.sqrt(known + one.error(outcome, outcome.start + gap))

    low, high = 0.0, outcome.widest
    if not seen(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def smallest_departure(icc: float, side: Side, terms: Terms) -> float | None:
    """The smallest distance of a share from one half that is found; None if even 0 or 1 is not."""
    if side.units < 2:
        return None
    outcome = Rate(base=0.5, icc=icc)
    freedom = side.units - 1
    # At one half a share varies most, so this errs on the careful side.
    found = (student(terms.tail, freedom) + student(terms.power, freedom)) * math.sqrt(side.error(outcome, 0.5))
    return found if found <= outcome.widest else None


def portraits_needed(gap: float, outcome: Outcome, edits_each: float, terms: Terms) -> int | None:
    """Portraits in each of two groups for a gap to be found; None if no number does."""

    def enough(portraits: int) -> bool:
        side = Side.of(portraits, edits_each)
        found = smallest_gap(outcome, side, side, terms)
        return found is not None and found <= gap

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST_PORTRAITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def icc_of(portrait_sd: float, rate: float) -> float:
    """The ICC of a rate when portraits differ by a normal effect with this standard deviation on the logit scale."""
    low, high = -60.0, 60.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _moments(middle, portrait_sd)[0] > rate else (middle, high)
    mean, variance = _moments((low + high) / 2, portrait_sd)
    return variance / (mean * (1 - mean))


@cache
def portrait_sd_of(icc: float, rate: float) -> float:
    """The standard deviation on the logit scale that gives this ICC at this rate."""
    low, high = 0.0, _LARGEST_SD
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if icc_of(middle, rate) > icc else (middle, high)
    return (low + high) / 2


@cache
def _iccs(portrait_sd: float) -> Floats:
    return np.array([icc_of(portrait_sd, rate) for rate in _RATES])


def _moments(middle: float, portrait_sd: float) -> tuple[float, float]:
    each = 1 / (1 + np.exp(-(middle + portrait_sd * _POINTS)))
    mean = float(_WEIGHTS @ each)
    return mean, float(_WEIGHTS @ (each - mean) ** 2)


_POINTS, _WEIGHED = np.polynomial.hermite_e.hermegauss(80)
_WEIGHTS = _WEIGHED / _WEIGHED.sum()
_RATES = np.linspace(0.005, 0.995, 100)
