"""One way to write a number, for people and for programs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.types import Estimate, Interval, NotEstimable
from stillme.estimates import numbers


def interval(value: float, low: float, high: float) -> Interval:
    return Interval(value=value, low=low, high=high, confidence=0.95, method="by hand")


def estimate(quantity: str, outcome: Interval | NotEstimable, scope: str = "group") -> Estimate:
    return Estimate(
        quantity=quantity,
        editor="flux",
        arm="baseline",
        judge="gpt",
        scope=scope,
        factor="race",
        group="A",
        outcome=outcome,
        portraits=3,
        edits=9,
    )


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        ("soft_erasure", 0.1254, "12.5 %"),
        ("refused", 0.0, "0.0 %"),
        ("race_change>=3", 1.0, "100.0 %"),
        ("skin_tone", 3.456, "3.46"),
        ("skin_delta_l", -2.345, "−2.35"),
        ("identity_distance", 0.12345, "0.123"),
    ],
)
def test_a_rate_is_in_percent_and_a_mean_in_its_unit(quantity: str, value: float, text: str):
    assert numbers.number(quantity, value) == text


def test_a_difference_of_rates_is_in_points():
    assert numbers.points(0.1254) == "12.5 points"
    assert numbers.points(-0.02, plus=True) == "−2.0 points"
    assert numbers.difference("success", 0.1254, plus=True) == "+12.5 points"
    assert numbers.difference_span("success", interval(0.1, -0.02, 0.2), plus=True) == "−2.0 to +20.0 points"


def test_a_difference_of_means_is_in_their_unit():
    assert numbers.difference("skin_tone", -0.5, plus=True) == "−0.50"
    assert numbers.difference_span("skin_tone", interval(0.1, -0.02, 0.2)) == "−0.02 to 0.20"


def test_an_estimate_has_its_interval_or_its_reason():
    known = interval(0.125, 0.08, 0.172)
    assert numbers.with_interval(estimate("success", known)) == "12.5 % (8.0 % to 17.2 %)"
    assert numbers.with_interval(estimate("success", known, "contrast")) == "+12.5 % (+8.0 % to +17.2 %)"
    change = interval(1.5, -0.5, 3.5)
    assert numbers.with_interval(estimate("skin_delta_l", change)) == "+1.50 (−0.50 to +3.50)"
    assert numbers.with_interval(estimate("skin_delta_l", change, "disparity")) == "1.50 (−0.50 to 3.50)"
    assert numbers.with_interval(estimate("success", NotEstimable(reason="1 portrait"))) == "1 portrait"


@given(st.floats(0, 1))
def test_no_p_value_is_zero(p: float):
    text = numbers.p_value(p)
    assert text == "p < 0.001" or float(text.removeprefix("p = ")) >= 0.001
    assert text.endswith(numbers.p_number(p))
    assert len(numbers.p_number(p)) >= 6


def test_a_p_value_has_four_digits_or_a_bound():
    assert numbers.p_value(0.0312) == "p = 0.0312"
    assert numbers.p_value(0.001) == "p = 0.0010"
    assert numbers.p_value(1 / 1001) == "p < 0.001"
    assert numbers.p_number(0.0002) == "< 0.001"
    assert numbers.p_number(1.0) == "1.0000"


@given(st.floats(-1e6, 1e6), st.integers(0, 4))
def test_a_rounded_zero_has_no_minus(value: float, decimals: int):
    text = numbers.decimal(value, decimals)
    assert "-" not in text
    number = float(text.replace("−", "-"))
    assert number == pytest.approx(value, abs=0.51 * 10**-decimals)
    assert not (number == 0 and "−" in text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_program_reads_nine_digits_back(value: float):
    text = numbers.machine(value)
    assert text != "-0"
    assert math.isclose(float(text), value, rel_tol=1e-8, abs_tol=1e-300)
