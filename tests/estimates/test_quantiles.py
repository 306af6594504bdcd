from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stillme.estimates.quantiles import student, wilson


@given(st.floats(0.01, 0.999), st.floats(1, 5000))
def test_student_quantiles_equal_scipy(probability: float, freedom: float) -> None:
    assert student(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-7, abs=1e-7)


@given(st.integers(1, 400), st.data())
def test_wilson_equals_scipy(size: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, size))
    expected = stats.binomtest(hits, size).proportion_ci(0.95, "wilson")
    assert wilson(hits / size, size, 0.95) == pytest.approx((expected.low, expected.high), abs=1e-9)
