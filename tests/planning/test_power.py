"""The formulas of the plan keep what they promise, by simulation and by the numbers that we measured once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import ttest_ind

from stillme.estimates.quantiles import student
from stillme.planning.power import (
    Mean,
    Rate,
    Side,
    Terms,
    effective,
    icc_of,
    portrait_sd_of,
    portraits_needed,
    smallest_departure,
    smallest_gap,
)

TERMS = Terms()


def gap(portraits: int, edits: float, outcome: Rate | Mean) -> float:
    side = Side.of(portraits, edits)
    found = smallest_gap(outcome, side, side, TERMS)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("base", "portrait_sd", "portraits", "edits"),
    [(0.10, 0.5, 12, 20), (0.10, 1.0, 12, 20), (0.45, 0.5, 12, 20), (0.45, 1.0, 12, 20), (0.30, 0.75, 40, 3)],
)
def test_the_smallest_gap_is_found_as_often_as_promised(base: float, portrait_sd: float, portraits: int, edits: int):
    """4,000 audits with that gap, portraits that differ on the logit scale, and a test with portraits as units."""
    stream = np.random.default_rng(7)
    planted = gap(portraits, edits, Rate(base=base, icc=icc_of(portrait_sd, base)))

    def observed(rate: float) -> np.ndarray:
        draws = stream.standard_normal(200_000) * portrait_sd
        middle = brentq(lambda place: expit(place + draws).mean() - rate, -20, 20)
        effects = middle + portrait_sd * stream.standard_normal((4000, portraits))
        return stream.binomial(edits, expit(effects)) / edits

    p = ttest_ind(observed(base), observed(base + planted), axis=1, equal_var=False).pvalue
    assert (p < 0.05).mean() == pytest.approx(0.80, abs=0.035)


def test_the_smallest_gap_between_means_is_found_as_often_as_promised():
    stream = np.random.default_rng(8)
    sd, icc, portraits, edits = 0.9, 0.2, 14, 10
    planted = gap(portraits, edits, Mean(sd=sd, icc=icc))
    between, within = sd * math.sqrt(icc), sd * math.sqrt(1 - icc)
    means = stream.normal(0, between, (4000, 2, portraits)) + stream.normal(
        0, within / math.sqrt(edits), (4000, 2, portraits)
    )
    means[:, 1] += planted
    p = ttest_ind(means[:, 0], means[:, 1], axis=1).pvalue
    assert (p < 0.05).mean() == pytest.approx(0.80, abs=0.03)


@pytest.mark.parametrize(
    ("base", "portraits", "low", "high"), [(0.10, 12, 0.09, 0.19), (0.45, 12, 0.15, 0.25), (0.10, 120, 0.03, 0.05)]
)
def test_the_range_is_the_one_that_simulated_audits_showed(base: float, portraits: int, low: float, high: float):
    """20 prompts an editor; portraits that differ by 0 to 1 on the logit scale."""
    found = [gap(portraits, 20, Rate(base=base, icc=icc_of(sd, base))) for sd in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(low, abs=0.02)
    assert found[-1] == pytest.approx(high, abs=0.02)


def test_edits_of_one_portrait_saturate():
    assert effective([20], 0.05) == pytest.approx(20 / 1.95)
    assert effective([20] * 12, 0.05) == pytest.approx(12 * 20 / 1.95)
    assert effective([10**6], 0.05) < 1 / 0.05
    assert effective([7, 0, 3], 0.0) == 10
    assert effective([0, 0], 0.1) == 0


@given(st.floats(0.02, 0.98), st.floats(0.0, 3.0))
def test_spread_and_likeness_are_two_names_of_one_thing(rate: float, portrait_sd: float):
    icc = icc_of(portrait_sd, rate)
    assert 0 <= icc < 1
    assert portrait_sd_of(icc, rate) == pytest.approx(portrait_sd, abs=1e-3)


@given(st.floats(0.03, 0.4), st.sampled_from([0.1, 0.45, 0.8]), st.floats(0.005, 0.3), st.integers(1, 60))
def test_the_portraits_that_a_wish_takes_are_enough_and_one_fewer_is_not(
    wished: float, base: float, icc: float, edits: int
):
    outcome = Rate(base=base, icc=icc)
    needed = portraits_needed(wished, outcome, edits, TERMS)
    assert needed is not None
    assert gap(needed, edits, outcome) <= wished
    if needed > 2:
        side = Side.of(needed - 1, edits)
        fewer = smallest_gap(outcome, side, side, TERMS)
        assert fewer is None or fewer > wished


def test_more_comparisons_and_more_certainty_need_larger_gaps():
    side = Side.of(20, 10)
    outcome = Rate(base=0.2, icc=0.05)
    plain = smallest_gap(outcome, side, side, TERMS)
    assert plain is not None
    for stricter in (Terms(comparisons=21), Terms(power=0.95), Terms(confidence=0.99)):
        found = smallest_gap(outcome, side, side, stricter)
        assert found is not None
        assert found > plain
    paired = smallest_gap(outcome, side, side, TERMS, paired=True)
    assert paired == pytest.approx(
        plain * (student(0.975, 19) + student(0.8, 19)) / (student(0.975, 38) + student(0.8, 38)), rel=0.05
    )


def test_too_little_to_see_anything_is_said_as_such():
    two = Side.of(2, 1)
    assert smallest_gap(Rate(base=0.5, icc=0.05), two, two, TERMS) is None
    assert smallest_gap(Rate(base=0.5, icc=0.05), Side.of(12, 0), two, TERMS) is None
    assert smallest_departure(0.05, Side.of(1, 3), TERMS) is None
    assert portraits_needed(1e-6, Rate(base=0.5, icc=0.05), 1, TERMS) is None


def test_fifty_sentences_see_a_strong_lean_only():
    found = smallest_departure(0.0, Side.of(50, 1), TERMS)
    assert found == pytest.approx(2.86 * 0.5 / math.sqrt(50), rel=0.02)
