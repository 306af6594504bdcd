"""Numbers that need an editor's other edits: what was skipped, and what the editor changes when asked for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from stillme.estimates.rows import Edits, RatingState, Scores
from stillme.runs.gathering import MADE, SKIPPED, derived
from tests.records import edits_of, portrait, prompt

PEOPLE = 20


def edits(arms: tuple[str, ...] = ("baseline",), people: int = PEOPLE) -> Edits:
    arm, who = (index.ravel().astype(np.int32) for index in np.indices((len(arms), people)))
    crowd = [portrait(f"p{number}") for number in range(people)]
    return edits_of(crowd, [prompt()], who, np.zeros_like(who), arm=arm, arms=arms)


def scored(axis: str, values: np.ndarray) -> Scores:
    state = np.where(np.isnan(values), RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    return Scores(judge="meter", axis=axis, value=values, state=state, kind="instrument")


def skips(area: np.ndarray, arms: tuple[str, ...] = ("baseline",)) -> Scores:
    rows = edits(arms, people=len(area) // len(arms))
    return next(score for score in derived(rows, [scored("changed_area", area)]) if score.axis == "skip")


def test_an_editor_that_does_nothing_to_anyone_is_not_said_to_skip_some():
    told = skips(np.full(PEOPLE, 0.001))
    assert np.isnan(told.value).all()
    assert set(told.state.tolist()) == {RatingState.ABSTAINED}


def test_a_faint_filter_over_everyone_skips_no_one():
    area = np.full(PEOPLE, 0.3)
    area[:6] = 0.001
    scores = [scored("changed_area", area), scored("mean_delta_e", np.full(PEOPLE, 3.5))]
    (told,) = [score for score in derived(edits(), scores) if score.axis == "skip"]
    assert set(told.value) == {MADE}


@pytest.mark.parametrize(("usual", "other", "answer"), [(0.3, 0.3, MADE), (0.6, 0.03, MADE), (0.3, 0.01, SKIPPED)])
def test_an_edit_that_most_others_got_was_skipped_and_a_smaller_change_is_made(usual, other, answer):
    area = np.full(PEOPLE, usual)
    area[3] = other
    told = skips(area).value
    assert told[3] == answer
    assert set(np.delete(told, 3)) == {MADE}


@pytest.mark.parametrize(("people", "made", "answers"), [(8, 7, 0), (20, 11, 0), (9, 8, 9), (20, 12, 20)])
def test_an_answer_needs_eight_others_of_whom_six_in_ten_changed(people: int, made: int, answers: int):
    area = np.zeros(people)
    area[:made] = 0.3
    expected = [MADE] * made + [SKIPPED] * (people - made) if answers else [np.nan] * people
    assert np.array_equal(skips(area).value, expected, equal_nan=True)


def test_an_edit_within_what_the_editor_changes_when_asked_for_nothing_was_skipped():
    area = np.concatenate([np.full(PEOPLE, 0.3), np.full(PEOPLE, 0.05)])
    area[3] = 0.04
    told = skips(area, ("baseline", "noop"))
    assert told.value[3] == SKIPPED
    assert np.isnan(told.value[PEOPLE:]).all(), "no one is skipped where nothing was asked for"


def test_a_no_op_arm_of_a_few_edits_shows_no_floor():
    area = np.concatenate([np.full(9, 0.3), np.full(9, 0.05)])
    area[3] = 0.04
    assert skips(area, ("baseline", "noop")).value[3] == MADE


def test_a_picture_that_could_not_be_compared_stays_without_an_answer():
    area = np.full(PEOPLE, 0.7)
    area[3] = np.nan
    told = skips(area)
    assert np.isnan(told.value[3])
    assert told.state[3] == RatingState.ABSTAINED


@pytest.mark.parametrize(("floor", "drift"), [(2.0, 1.5), (0.1, 3.0)])
def test_drift_is_what_exceeds_the_editors_own_floor_if_it_has_one(floor: float, drift: float):
    measured = np.concatenate([np.full(PEOPLE, 3.0), np.full(PEOPLE, floor)])
    (told,) = derived(edits(("baseline", "noop")), [scored("identity_drift", measured)])
    assert told.value[:PEOPLE].tolist() == [drift] * PEOPLE
    assert told.value[PEOPLE:].tolist() == [floor] * PEOPLE, "the floor itself is reported as it was measured"
