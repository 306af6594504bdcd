"""Notice while answers come in that errors have become more frequent: a Bernoulli CUSUM with an exact limit.

Each answer has the largest error rate that is still acceptable for it. An error moves the chart up, a right answer down
and never below zero; the steps are log-likelihood ratios against four times the odds of an error. The limit is computed
from the chart's Markov chain, so that the probability of a false alarm within a planned number of answers is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ODDS = 4.0
"""The chart is quickest for errors whose odds have grown by this factor."""
_UNIT = 0.05
"""Steps are whole multiples of this log-likelihood ratio, so that the chart has few states."""


def step(acceptable: float, *, error: bool) -> int:
    """How far one answer moves the chart, where this error rate is acceptable."""
    suspected = ODDS * acceptable / (1 - acceptable + ODDS * acceptable)
    if error:
        return max(1, round(math.log(suspected / acceptable) / _UNIT))
    return min(-1, round(math.log((1 - suspected) / (1 - acceptable)) / _UNIT))


def moved(level: int, acceptable: float, *, error: bool) -> int:
    """The chart after one more answer."""
    return max(0, level + step(acceptable, error=error))


def alarm_probability(acceptable: Sequence[float], limit: int, errors: Sequence[float] | None = None) -> float:
    """The probability that the chart reaches the limit within these answers.

    `errors` are the true error rates; by default they are just acceptable.
    """
    levels = np.zeros(limit)
    levels[0] = 1.0
    alarmed = 0.0
    for rate, error in zip(acceptable, acceptable if errors is None else errors, strict=True):
        up, down = min(step(rate, error=True), limit), min(-step(rate, error=False), limit)
        after = np.zeros(limit)
        after[: limit - down] = (1 - error) * levels[down:]
        after[0] += (1 - error) * levels[:down].sum()
        after[up:] += error * levels[: limit - up]
        alarmed += error * float(levels[limit - up :].sum())
        levels = after
    return alarmed


def limit_for(acceptable: Sequence[float], false_alarms: float) -> int:
    """The lowest limit that these answers, with just acceptable errors, reach with at most this probability."""
    high = 64
    while alarm_probability(acceptable, high) > false_alarms:
        high *= 2
    low = 1
    while low < high:
        middle = (low + high) // 2
        if alarm_probability(acceptable, middle) <= false_alarms:
            high = middle
        else:
            low = middle + 1
    return low
