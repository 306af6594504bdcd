from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stillme.estimates.quantiles import normal_quantile, quantile, t_quantile, wilson

pytestmark = pytest.mark.numeric


@given(st.floats(0.01, 0.999), st.floats(1, 5000))
def test_quantiles_invert_the_distribution_functions(probability: float, freedom: float) -> None:
    assert stats.t.cdf(t_quantile(probability, freedom), freedom) == pytest.approx(probability, abs=1e-9)
    assert stats.norm.cdf(normal_quantile(probability)) == pytest.approx(probability, abs=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_of_values_is_that_of_numpy(values: list[float], share: float) -> None:
    assert quantile(np.array(values), share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-9)


def test_quantiles_are_those_of_the_printed_tables() -> None:
    assert t_quantile(0.975, 1) == pytest.approx(12.706, abs=5e-4)
    assert t_quantile(0.975, 11) == pytest.approx(2.201, abs=5e-4)
    assert t_quantile(0.975, 1e9) == pytest.approx(normal_quantile(0.975), abs=1e-6)


@given(st.integers(1, 400), st.data())
def test_wilson_equals_scipy(size: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, size))
    expected = stats.binomtest(hits, size).proportion_ci(0.95, "wilson")
    assert wilson(hits / size, size, 0.95) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.floats(0, 1), st.floats(1, 1e6), st.floats(0.01, 0.999))
def test_wilson_holds_the_share_and_reaches_0_and_1_only_there(share: float, size: float, confidence: float) -> None:
    low, high = wilson(share, size, confidence)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    # The square of a share below 1e-150 is no longer a number above 0.
    assert (low == 0) == (share == 0) or share < 1e-150
    assert math.isfinite(low)
