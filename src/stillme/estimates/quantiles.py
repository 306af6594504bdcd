"""Closed-form intervals for where resampling has too little to work with."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist


def normal(probability: float) -> float:
    """The standard normal quantile."""
    return NormalDist().inv_cdf(probability)


@cache
def student(probability: float, freedom: float) -> float:
    """The quantile of Student's t, by bisection on its exact distribution function."""
    if freedom > 1e6:
        return normal(probability)
    if probability < 0.5:
        return -student(1 - probability, freedom)
    low, high = 0.0, 1.0
    while _student_below(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def wilson(share: float, size: float, confidence: float) -> tuple[float, float]:
    """Wilson's score interval for a share of `size` independent answers; `size` may be an effective number."""
    z = normal((1 + confidence) / 2)
    centre = (share + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    return max(0.0, centre - half), min(1.0, centre + half)


def _student_below(t: float, freedom: float) -> float:
    """P(T ≤ t) for t ≥ 0."""
    return 1 - _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    upper, lower = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = lower
    for step in range(1, 400):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            lower = 1 / (1 + term * lower)
            upper = 1 + term / upper
            fraction *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return front * fraction / a
