"""Quantiles of Student's t: the same as scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from stillme.estimates.intervals import quantile, quantiles

LEVELS = (0.025, 0.3, 0.5, 0.9, 0.975, 0.995, 1 - 0.025 / 21, 1 - 0.025 / 91)
"""The last two are those of all pairs of 7 and of 14 groups."""


@pytest.mark.parametrize("probability", LEVELS)
def test_quantiles_of_whole_degrees_of_freedom_are_scipys(probability: float):
    for freedom in (*range(1, 120), 251, 503, 999, 1_000, 1679, 5038):
        assert quantile(probability, freedom) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-12, abs=0)


def test_other_degrees_of_freedom_and_the_normal_are_scipys():
    for freedom in (0.5, 1.7, 11.25, 83.5, 20_000, math.inf):
        assert quantile(0.975, freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), rel=1e-12)


def test_arrays_are_what_their_elements_are():
    freedom = np.array([[11.0, 77.0], [math.inf, 11.0]])
    levels = np.array([0.975, 0.9988])
    found = quantiles(levels, freedom)
    assert found.tolist() == [[quantile(0.975, 11), quantile(0.9988, 77)], [quantile(0.975, math.inf), found[1, 1]]]
    assert quantiles(0.975, np.empty((2, 0))).shape == (2, 0)
