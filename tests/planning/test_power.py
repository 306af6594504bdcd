"""The formulas of the plan, against simulated audits and against numbers measured earlier."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit, stdtrit
from scipy.stats import t as student
from scipy.stats import ttest_ind

from stillme.api.pipeline import run_stages
from stillme.audit.experiments import experiment
from stillme.findings.plan import plan_audit
from stillme.findings.plan.power import (
    HALF_WIDTH,
    MeanMeasure,
    PowerSide,
    RateMeasure,
    Terms,
    effective_size,
    icc_of,
    portrait_sd_of,
    portraits_needed,
    ratings_for,
    smallest_departure,
    smallest_gap,
)
from tests.command_lines import invoke

TERMS = Terms()
Write = Callable[..., Path]


def gap(portraits: int, edits: float, measure: RateMeasure | MeanMeasure, terms: Terms = TERMS) -> float:
    side = PowerSide.of(portraits, edits)
    smallest = smallest_gap(measure, side, side, terms)
    assert smallest is not None
    return smallest


@pytest.mark.parametrize(
    ("base", "portrait_sd", "portraits", "edits"),
    [(0.10, 0.5, 12, 20), (0.10, 1.0, 12, 20), (0.45, 0.5, 12, 20), (0.45, 1.0, 12, 20), (0.30, 0.75, 40, 3)],
)
def test_the_smallest_gap_is_detected_with_the_stated_power(
    base: float, portrait_sd: float, portraits: int, edits: int
):
    """4,000 audits with that gap, portraits that vary on the logit scale, and a test with portraits as units."""
    stream = np.random.default_rng(7)
    planted = gap(portraits, edits, RateMeasure(base=base, icc=icc_of(portrait_sd, base)))

    def observed(rate: float) -> np.ndarray:
        draws = stream.standard_normal(200_000) * portrait_sd
        intercept = brentq(lambda logit: expit(logit + draws).mean() - rate, -20, 20)
        effects = intercept + portrait_sd * stream.standard_normal((4000, portraits))
        return stream.binomial(edits, expit(effects)) / edits

    p = ttest_ind(observed(base), observed(base + planted), axis=1, equal_var=False).pvalue
    assert (p < 0.05).mean() == pytest.approx(0.80, abs=0.035)


def test_the_smallest_gap_between_means_is_detected_with_the_stated_power():
    stream = np.random.default_rng(8)
    sd, icc, portraits, edits = 0.9, 0.2, 14, 10
    planted = gap(portraits, edits, MeanMeasure(sd=sd, icc=icc))
    between, within = sd * math.sqrt(icc), sd * math.sqrt(1 - icc)
    means = stream.normal(0, between, (4000, 2, portraits)) + stream.normal(
        0, within / math.sqrt(edits), (4000, 2, portraits)
    )
    means[:, 1] += planted
    p = ttest_ind(means[:, 0], means[:, 1], axis=1).pvalue
    assert (p < 0.05).mean() == pytest.approx(0.80, abs=0.03)


def test_edits_of_one_portrait_saturate():
    assert effective_size([20], 0.05) == pytest.approx(20 / 1.95)
    assert effective_size([20] * 12, 0.05) == pytest.approx(12 * 20 / 1.95)
    assert effective_size([10**6], 0.05) < 1 / 0.05
    assert effective_size([7, 0, 3], 0.0) == 10
    assert effective_size([0, 0], 0.1) == 0


@given(st.floats(0.02, 0.98), st.floats(0.0, 3.0))
def test_portrait_sd_and_icc_are_inverse_to_each_other(rate: float, portrait_sd: float):
    icc = icc_of(portrait_sd, rate)
    assert 0 <= icc < 1
    assert portrait_sd_of(icc, rate) == pytest.approx(portrait_sd, abs=1e-3)


@given(st.floats(0.03, 0.4), st.sampled_from([0.1, 0.45, 0.8]), st.floats(0.005, 0.3), st.integers(1, 60))
def test_the_portraits_needed_are_enough_and_one_fewer_is_not(wanted: float, base: float, icc: float, edits: int):
    measure = RateMeasure(base=base, icc=icc)
    needed = portraits_needed(wanted, measure, edits, TERMS)
    assert needed is not None
    assert gap(needed, edits, measure) <= wanted
    if needed > 2:
        side = PowerSide.of(needed - 1, edits)
        fewer = smallest_gap(measure, side, side, TERMS)
        assert fewer is None or fewer > wanted


def test_more_comparisons_and_more_certainty_need_larger_gaps():
    measure = RateMeasure(base=0.2, icc=0.05)
    plain = gap(20, 10, measure)
    for stricter in (Terms(comparisons=21), Terms(power=0.95), Terms(confidence=0.99)):
        assert gap(20, 10, measure, stricter) > plain
    side = PowerSide.of(20, 10)
    paired = smallest_gap(measure, side, side, TERMS, paired=True)
    within, between = (student.ppf(0.975, freedom) + student.ppf(0.8, freedom) for freedom in (19, 38))
    assert paired == pytest.approx(plain * within / between, rel=0.05)


def test_a_design_that_detects_nothing_gives_none():
    two = PowerSide.of(2, 1)
    assert smallest_gap(RateMeasure(base=0.5, icc=0.05), two, two, TERMS) is None
    assert smallest_gap(RateMeasure(base=0.5, icc=0.05), PowerSide.of(12, 0), two, TERMS) is None
    assert smallest_departure(0.05, PowerSide.of(1, 3), TERMS) is None
    assert portraits_needed(1e-6, RateMeasure(base=0.5, icc=0.05), 1, TERMS) is None


def test_fifty_sentences_detect_a_strong_lean_only():
    departure = smallest_departure(0.0, PowerSide.of(50, 1), TERMS)
    assert departure == pytest.approx(2.86 * 0.5 / math.sqrt(50), rel=0.02)


def test_an_icc_beyond_every_spread_is_the_largest_spread():
    assert portrait_sd_of(0.0, 0.3) == 0
    assert portrait_sd_of(0.99, 0.3) == 20


PORTRAITS, PROMPTS, RATE = 84, 20, 0.3


@pytest.mark.parametrize("wrong", [0.05, 0.2])
def test_a_study_of_that_size_has_that_interval(wrong: float):
    """Simulated: people's answers, a judge that errs, and the corrected rate of the edits that are rated."""
    stream = np.random.default_rng(1)
    chances = stream.beta(RATE * 9, (1 - RATE) * 9, size=(2000, PORTRAITS, 1))
    said = (stream.random((2000, PORTRAITS, PROMPTS)) < chances).astype(float).reshape(2000, -1)
    judged = np.where(stream.random(said.shape) < wrong, 1 - said, said)
    correlation = float(np.corrcoef(said.ravel(), judged.ravel())[0, 1])
    count = ratings_for(RATE, 0.1, [PROMPTS] * PORTRAITS, correlation, 0.95)
    slope = correlation * said.std() / judged.std()
    rated = stream.permuted(np.tile(np.arange(PORTRAITS * PROMPTS) < count, (2000, 1)), axis=1)
    rest = np.where(rated, said - slope * judged, 0.0).sum(axis=1) / count
    corrected = slope * judged.mean(axis=1) + rest
    assert stdtrit(PORTRAITS - 1, 0.975) * corrected.std() == pytest.approx(HALF_WIDTH, rel=0.06)


def test_a_better_judge_needs_fewer_ratings_and_a_useless_one_at_most_all():
    needed = [ratings_for(RATE, 0.1, [PROMPTS] * PORTRAITS, correlation, 0.95) for correlation in (0.9, 0.5, 0.0)]
    assert needed == sorted(needed, key=lambda count: count or 0)
    assert needed[-1] <= PORTRAITS * PROMPTS


def test_too_few_portraits_are_not_replaced_by_ratings():
    assert ratings_for(RATE, 0.1, [PROMPTS] * 12, 0.9, 0.95) is None


def test_the_plan_says_it_in_one_line_where_there_is_something_to_correct(
    tmp_path: Path, diagnosis: Path, write_audit: Write
):
    plan = plan_audit(diagnosis)
    needed = plan.ratings
    assert 0 < needed.low < needed.high < needed.edits == 1680
    assert f"{needed.low:,} to {needed.high:,} of 1,680 edits of each editor" in plan.as_text(power=True)
    assert plan.as_json()["ratings"]["high"] == needed.high

    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "audit.toml").write_text(experiment("roles", "x"))
    assert plan_audit(tmp_path / "roles").ratings is None
    people = plan_audit(write_audit(judge='use = "people"'))
    assert people.ratings is None
    assert "Human ratings" not in people.as_text(power=True)


def test_the_next_command_is_what_to_do_next(diagnosis: Path, write_audit: Write):
    refused = invoke("plan", diagnosis)
    assert "Would be refused" in refused.stdout
    assert refused.stderr.strip().endswith(f"plan {diagnosis}")
    folder = write_audit()
    assert f"Next: stillme run {folder}" in invoke("plan", folder).stderr.replace(".venv/bin/", "")
    run_stages(folder, ("edit", "judge"))
    assert f"study new {folder}" in invoke("plan", folder).stderr
