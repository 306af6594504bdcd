"""Quantiles, and Wilson's interval for where resampling has too little to work with.

scipy is imported by the functions that need it: it takes longer than all that a command like `stillme status` does.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def quantile(values: NDArray[np.float64], share: float) -> float:
    """As `numpy.quantile`, which takes forty times as long for a few thousand values."""
    place = share * (len(values) - 1)
    below = int(place)
    both = np.partition(values, (below, min(below + 1, len(values) - 1)))
    low, high = float(both[below]), float(both[min(below + 1, len(values) - 1)])
    return low + (place - below) * (high - low)


def normal_quantile(probability: float) -> float:
    """The standard normal quantile."""
    from scipy.special import ndtri

    return float(ndtri(probability))


def normal_tail(value: float) -> float:
    """How likely a standard normal value is above this one."""
    from scipy.special import ndtr

    return float(ndtr(-value))


def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def logistic(logit: float) -> float:
    """The share that a logit stands for."""
    from scipy.special import expit

    return float(expit(logit))


def wilson(share: float, size: float, confidence: float) -> tuple[float, float]:
    """Wilson's score interval for a share of `size` independent answers; `size` may be an effective number."""
    share = min(1.0, max(0.0, share))
    return _wilson_low(share, size, confidence), 1 - _wilson_low(1 - share, size, confidence)


def _wilson_low(share: float, size: float, confidence: float) -> float:
    """Divide the product of both roots by the larger one: the usual difference cancels where the share is small."""
    z = normal_quantile((1 + confidence) / 2)
    high = share + z * z / (2 * size) + z * math.sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    return share * share / high if high > 0 else 0.0
