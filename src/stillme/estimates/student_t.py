"""Quantiles of Student's t for whole degrees of freedom, by the finite sums of Abramowitz and Stegun (26.7.3, 26.7.4).

scipy has them for all degrees of freedom, but its import costs more than the tables of a small audit.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_MOST = 1_000
"""Degrees of freedom up to which sums are added up: they are right to 12 digits. scipy knows the rest."""
_STEPS = 100
_EXACT = 4e-16


def quantiles(probability: float | NDArray[np.float64], freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quantile of each probability with each number of degrees of freedom."""
    p, degrees = np.broadcast_arrays(np.asarray(probability, dtype=np.float64), freedom)
    return np.array(list(map(quantile, p.ravel().tolist(), degrees.ravel().tolist()))).reshape(p.shape)


@lru_cache(maxsize=4096)
def quantile(probability: float, freedom: float) -> float:
    """Below it lies this probability."""
    if freedom == math.inf:
        return NormalDist().inv_cdf(probability)
    if freedom != int(freedom) or not 0 < probability < 1 or freedom < 1 or freedom > _MOST:
        from scipy.special import stdtrit

        return float(stdtrit(freedom, probability))
    inside = abs(2 * probability - 1)
    value = math.sqrt(freedom) * math.tan(_angle(inside, int(freedom)))
    return math.copysign(value, probability - 0.5) if inside else 0.0


def _angle(inside: float, freedom: int) -> float:
    """The angle whose tangent is t / √freedom, where |t| stays below with probability `inside`.

    The probability is a concave function of the angle, so that Newton's steps from 0 never pass the root.
    """
    if freedom == 1:
        return math.pi / 2 * inside
    angle = 0.0
    for _ in range(_STEPS):
        found, slope = _inside(angle, freedom)
        step = (inside - found) / slope
        angle += step
        if step <= _EXACT * angle:
            break
    return angle


def _inside(angle: float, freedom: int) -> tuple[float, float]:
    """The probability that |t| stays below √freedom · tan(angle), and how fast it grows with the angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    coefficient = 1.0
    for number in range(3 if odd else 2, freedom - 1, 2):
        share = (number - 1) / number
        coefficient *= share
        term *= share * cosine * cosine
        total += term
    slope = coefficient * (freedom - 1) * cosine ** (freedom - 1)
    if odd:
        return 2 / math.pi * (angle + sine * total), 2 / math.pi * slope
    return sine * total, slope
