"""Rates at and near 0 and 1, tiny groups, equal scores, nothing rated: a finite interval or a reason, never a crash."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import (
    Contrast,
    Edits,
    RatingState,
    Scores,
    Settings,
    above_floor,
    adherence,
    at_every_cut,
    by_intersection,
    by_prompt,
    contrasts,
    estimate,
    intraclass_correlations,
    paired_effects,
    paired_row_tests,
    row_tests,
)
from stillme.estimates.agreement import agreement
from stillme.estimates.behaviour import Repeats, coverage, disclosure_effect, position_bias, repeatability
from stillme.estimates.people import against_people, corrected
from stillme.estimates.quantities import rounded, snapped

from .test_roles import roles
from .worlds import has_numbers_or_reasons, people, rows

pytestmark = pytest.mark.numeric

quick = Settings(factors=("race",))


def analyse(edits: Edits, scores: Scores) -> None:
    other = replace(scores, judge="other", value=6.0 - scores.value)
    for prompts in ("fixed", "sample"):
        settings = replace(quick, prompts=prompts)
        has_numbers_or_reasons(estimate(edits, [scores], settings))
        has_numbers_or_reasons(contrasts(edits, [scores], settings, against=("rest", "pairs")))
        has_numbers_or_reasons(at_every_cut(edits, [scores], settings))
        has_numbers_or_reasons(by_prompt(edits, [scores], settings))
        has_numbers_or_reasons(by_prompt(edits, [scores], settings, by="subcategory", groups=True))
        has_numbers_or_reasons(by_intersection(edits, [scores], settings, ("race", "gender")))
    has_numbers_or_reasons(intraclass_correlations(edits, [scores], quick))
    has_numbers_or_reasons(row_tests(edits, [scores], quick))
    has_numbers_or_reasons(agreement(edits, [scores, other], quick))
    has_numbers_or_reasons(against_people(edits, other, scores, quick))
    has_numbers_or_reasons(corrected(edits, other, scores, quick))
    has_numbers_or_reasons(agreement(edits, [scores, other], quick, among="people"))
    judges_themselves(edits, scores, other)


def judges_themselves(edits: Edits, scores: Scores, other: Scores) -> None:
    """What `statistics` says of judges who were asked several times, told the labels, or left out."""
    twice = np.stack([scores.value, scores.value, other.value, other.value])
    for views in (1, 2):
        asked = Repeats(judge="judge", axis="race_change", views=views, value=twice)
        has_numbers_or_reasons(position_bias(edits, [asked], quick))
        has_numbers_or_reasons(repeatability(edits, [asked], quick))
    has_numbers_or_reasons(disclosure_effect(edits, [(scores, other)], quick))
    has_numbers_or_reasons(coverage(edits, "ensemble", [scores, other], quick))


@hypothesis_settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_rates_at_and_near_0_and_1_never_crash(data: st.DataObject) -> None:
    levels = "ABC"[: data.draw(st.integers(2, 3))]
    portraits, prompts = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    ends = data.draw(st.lists(st.sampled_from([1.0, 5.0]), min_size=len(levels), max_size=len(levels)))
    values = np.repeat(ends, portraits)[:, None] * np.ones(prompts)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, values.size - 1))
        values.flat[place] = data.draw(st.sampled_from([1.0, 5.0, 1 / 3 + 1, float("nan")]))
    analyse(*rows(people(levels, portraits, blocks=data.draw(st.booleans())), values))


@hypothesis_settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), portraits=st.integers(2, 12))
def test_a_fault_in_two_of_a_hundred_edits_never_crashes(seed: int, portraits: int) -> None:
    faults = np.random.default_rng(seed).random((2 * portraits, 5)) < 0.02
    analyse(*rows(people("AB", portraits), np.where(faults, 5.0, 1.0)))


@hypothesis_settings(max_examples=10, deadline=None)
@given(
    score=st.one_of(st.sampled_from([1.0, 5.0, 10 / 3]), st.floats(1, 5)),
    portraits=st.integers(1, 9),
    prompts=st.integers(1, 3),
)
@example(score=float("nan"), portraits=9, prompts=2)
@example(score=float("nan"), portraits=1, prompts=1)
def test_equal_scores_and_none_at_all_never_crash(score: float, portraits: int, prompts: int) -> None:
    analyse(*rows(people("AB", portraits), np.full((2 * portraits, prompts), score)))


@hypothesis_settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_arms_that_change_nothing_or_everything_never_crash(data: st.DataObject) -> None:
    portraits, prompts = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    values = np.ones((2 * portraits, prompts, 2, 2))
    values[:, :, 1] = data.draw(st.sampled_from([1.0, 5.0, 10 / 3]))
    for _ in range(data.draw(st.integers(0, 4))):
        values.flat[data.draw(st.integers(0, values.size - 1))] = data.draw(st.sampled_from([1.0, 5.0, float("nan")]))
    edits, scores = rows(people("AB", portraits), values, arms=("baseline", "feature"))
    has_numbers_or_reasons(paired_effects(edits, [scores], quick))
    has_numbers_or_reasons(paired_row_tests(edits, [scores]))
    edits, scores = rows(people("AB", portraits), values, arms=("baseline", "noop"))
    has_numbers_or_reasons(above_floor(edits, [scores], quick))


@hypothesis_settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_roles_that_are_always_or_never_followed_never_crash(data: st.DataObject) -> None:
    chances = st.sampled_from([0.0, 1.0])
    pronouns = data.draw(st.dictionaries(st.sampled_from(["pro", "anti", "none"]), chances, min_size=1))
    edits, scores = roles(
        data.draw(st.integers(1, 10)),
        pronouns,
        couples=data.draw(st.integers(1, 4)),
        counterbalance=data.draw(st.booleans()),
    )
    value = scores.value.copy()
    for _ in range(data.draw(st.integers(0, 4))):
        # Three people of whom one disagrees, a tie, or nobody could tell.
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.sampled_from([4 / 3, 5 / 3, 1.5, np.nan]))
    state = np.where(np.isnan(value), RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    answered = replace(scores, value=value, state=state)
    has_numbers_or_reasons(adherence(edits, [answered, replace(answered, axis="gender_change")], quick))


def ratios(edits: Edits, scores: Scores, settings: Settings) -> list[Contrast]:
    names = ("race_changed",)
    return contrasts(edits, [scores], settings, against=("pairs",), measures=("ratio",), quantities=names)


@pytest.mark.parametrize(("portraits", "prompts", "hits"), [(5, 3, 11), (6, 3, 13), (7, 1, 1)])
def test_a_rate_that_adds_up_to_almost_0_is_0(portraits: int, prompts: int, hits: int) -> None:
    # With a centre subtracted and added back, 0 came out as 1e-17 and was divided by.
    for place, level in enumerate("ABC"):
        values = np.ones((3 * portraits, prompts))
        values[place * portraits : (place + 1) * portraits].flat[:hits] = 5.0
        for ratio in ratios(*rows(people("ABC", portraits), values), quick):
            if ratio.against == level:
                assert ratio.outcome.value == ratio.outcome.low == 0
            else:
                assert isinstance(ratio.outcome, NotEstimable)


@given(rate=st.floats(0, 1), noise=st.floats(-1e-15, 1e-15))
def test_rounding_errors_are_no_rates(rate: float, noise: float) -> None:
    for end in (0.0, 1.0):
        assert snapped(np.array([end + noise]))[0] == end
    assert snapped(np.array([rate]))[0] == pytest.approx(rate, abs=1e-12)
    assert np.isnan(snapped(np.array([np.nan]))[0])
    assert math.copysign(1.0, rounded(-abs(noise))) == 1.0


def test_a_ratio_of_rates_that_are_both_100_percent_is_1_for_a_sample_of_prompts_too() -> None:
    edits, scores = rows(people("AB", 12), np.full((24, 10), 5.0))
    for prompts in ("fixed", "sample"):
        (ratio,) = ratios(edits, scores, replace(quick, prompts=prompts))
        assert ratio.outcome.value == 1
        assert 0.5 < ratio.outcome.low < 1 < ratio.outcome.high < 2


def test_of_tied_groups_the_first_is_named() -> None:
    values = np.array([1.0, 1.0, 5.0, 1.0, 1.0, 5.0, 5.0])[:, None].repeat(3, axis=1)
    edits, scores = rows(people("ABC", 7), np.tile(values, (3, 1)))
    for row in estimate(edits, [scores], quick):
        if row.scope == "disparity" and isinstance(row.outcome, Interval):
            assert (row.highest, row.lowest) == ("A", "A")
