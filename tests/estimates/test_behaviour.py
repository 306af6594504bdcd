"""What a judge itself adds to its scores, on answers whose habits are known."""

from __future__ import annotations

import numpy as np
import pytest

from stillme.core.types import Interval
from stillme.estimates import Edits, RatingState, Scores, Settings
from stillme.estimates.behaviour import Behaviour, Repeats, coverage, position_bias, repeatability
from tests.records import edits_of, portrait, prompt

PORTRAITS, PROMPTS = 24, 10
SETTINGS = Settings(factors=("group",))


def made_edits() -> Edits:
    portraits, prompts = (part.ravel().astype(np.int32) for part in np.indices((PORTRAITS, PROMPTS)))
    people = [portrait(f"p{place:02}", group="ab"[place % 2]) for place in range(PORTRAITS)]
    return edits_of(people, [prompt(f"O-{place:02}") for place in range(PROMPTS)], portraits, prompts)


EDITS = made_edits()
IN_A = EDITS.portrait % 2 == 0
SIZE = len(EDITS)


def repeats(value: np.ndarray, views: int = 1, axis: str = "race_change") -> Repeats:
    return Repeats(judge="model", axis=axis, views=views, value=np.asarray(value, dtype=np.float64))


def scores(judge: str, value: np.ndarray) -> Scores:
    state = np.where(np.isnan(value), RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    return Scores(judge=judge, axis="race_change", value=np.asarray(value, dtype=np.float64), state=state)


def interval(behaviours: list[Behaviour], measure: str, group: str = "", judge: str = "") -> Interval:
    (behaviour,) = [
        part
        for part in behaviours
        if (part.measure, part.group) == (measure, group) and (not judge or part.judge == judge)
    ]
    assert isinstance(behaviour.outcome, Interval), behaviour
    return behaviour.outcome


def test_two_and_five_are_a_bias_of_three_and_not_a_sure_three_and_a_half():
    behaviours = position_bias(EDITS, [repeats([np.full(SIZE, 2.0), np.full(SIZE, 5.0)], views=2)], SETTINGS)
    assert interval(behaviours, "edited_first").value == 3
    assert interval(behaviours, "over_one").value == interval(behaviours, "changed").value == 1
    assert interval(behaviours, "over_one").low > 0.8


def test_a_difference_of_exactly_a_point_is_not_more_than_one():
    behaviours = position_bias(EDITS, [repeats([np.full(SIZE, 3.3), np.full(SIZE, 4.3)], views=2)], SETTINGS)
    assert interval(behaviours, "over_one").value == 0


def test_a_bias_in_one_group_shows_in_its_contrast_and_p():
    stream = np.random.default_rng(1)
    first = stream.integers(1, 4, SIZE).astype(float)
    second = first + IN_A + (stream.random(SIZE) < 0.1)
    behaviours = position_bias(EDITS, [repeats([first, second], views=2)], SETTINGS)
    gap = interval(behaviours, "edited_first", "a - rest")
    assert gap.low < 1 < gap.high
    assert gap.low > 0.5
    group = next(part for part in behaviours if part.group == "a" and part.measure == "edited_first")
    assert group.groups_p < 0.01
    assert next(part for part in behaviours if part.scope == "all").groups_p is None


def test_only_edits_seen_in_both_orders_count():
    second = np.full(SIZE, 5.0)
    second[10:] = np.nan
    behaviours = position_bias(EDITS, [repeats([np.full(SIZE, 2.0), second], views=2)], SETTINGS)
    assert all(part.edits <= 10 for part in behaviours)
    assert position_bias(EDITS, [repeats([np.full(SIZE, 2.0), np.full(SIZE, np.nan)], views=2)], SETTINGS) == []


def test_one_order_has_no_position_bias_and_one_epoch_no_repeatability():
    assert position_bias(EDITS, [repeats([np.full(SIZE, 2.0)] * 3)], SETTINGS) == []
    assert repeatability(EDITS, [repeats([np.full(SIZE, 2.0), np.full(SIZE, 4.0)], views=2)], SETTINGS) == []


def test_the_spread_between_epochs_is_recovered_whatever_edits_and_orders_add():
    stream = np.random.default_rng(2)
    level, order = stream.normal(3, 1, SIZE), np.array([0.0, 1.5, 0.0, 1.5, 0.0, 1.5])
    answers = level + order[:, None] + stream.normal(0, 0.4, (6, SIZE))
    behaviours = repeatability(EDITS, [repeats(answers, views=2)], SETTINGS)
    sd = interval(behaviours, "sd")
    assert sd.low < 0.4 < sd.high
    # Each edit has 4 degrees of freedom: t over 24 portraits would be 2 × 2.07 × 0.4 / √(2 × 4 × 240) = 0.038 wide.
    # One answer of the largest variance (8) is added to the 960, because equal answers are no certainty: 0.10.
    assert 0.038 < sd.high - sd.low < 0.105
    assert interval(behaviours, "identical").value == 0
    assert not any(part.scope == "contrast" for part in behaviours if part.measure == "sd")


def test_identical_answers_have_no_spread():
    behaviours = repeatability(EDITS, [repeats(np.full((3, SIZE), 2.2))], SETTINGS)
    assert interval(behaviours, "sd").value == 0
    assert interval(behaviours, "identical").value == interval(behaviours, "within_one").value == 1


def test_an_axis_that_is_no_scale_has_shares_but_no_points():
    answers = [np.full(SIZE, 1.0), np.full(SIZE, 2.0)]
    behaviours = position_bias(EDITS, [repeats(answers, views=2, axis="role_target")], SETTINGS)
    assert {part.measure for part in behaviours} == {"changed"}


def test_scores_that_rest_on_one_judge_are_counted_by_judge_and_by_group():
    one, two, three = np.full(SIZE, 2.0), np.full(SIZE, 3.0), np.full(SIZE, 3.0)
    two[IN_A] = np.nan
    three[IN_A & (EDITS.prompt == 0)] = np.nan
    one[:1] = two[:1] = three[:1] = np.nan
    parts = [scores(name, value) for name, value in (("one", one), ("two", two), ("three", three))]
    behaviours = coverage(EDITS, "ensemble (mean)", parts, SETTINGS)
    assert interval(behaviours, "incomplete").value == pytest.approx((SIZE / 2 - 1) / (SIZE - 1))
    assert interval(behaviours, "incomplete", "a").value == 1
    assert interval(behaviours, "incomplete", "b").value == 0
    assert interval(behaviours, "single").value == pytest.approx((PORTRAITS / 2 - 1) / (SIZE - 1))
    assert interval(behaviours, "no_score", judge="one").value == 0
    assert interval(behaviours, "no_score", judge="two").value == interval(behaviours, "incomplete").value
    assert max(part.edits for part in behaviours) == SIZE - 1


def test_an_axis_of_one_judge_is_not_combined():
    assert coverage(EDITS, "ensemble (mean)", [scores("one", np.full(SIZE, 2.0))], SETTINGS) == []


def test_coverage_of_the_bias_is_nominal_when_portraits_differ():
    hits = 0
    for seed in range(200):
        stream = np.random.default_rng(seed)
        own = stream.normal(0.3, 0.3, PORTRAITS)[EDITS.portrait]
        first = stream.normal(3, 1, SIZE)
        second = first + own + stream.normal(0, 0.5, SIZE)
        settings = Settings(factors=())
        limits = interval(position_bias(EDITS, [repeats([first, second], views=2)], settings), "edited_first")
        hits += limits.low <= 0.3 <= limits.high
    assert 180 <= hits <= 198
