"""Numbers that need an editor's other edits: who was left out, and what the editor changes when asked for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from stillme.estimates.rows import Edits, EditState, RatingState, Scores
from stillme.results.derived import derived
from stillme.types import Prompt
from tests.records import portrait

PEOPLE = 20
REGIONS = ("changed_hair", "changed_clothes", "changed_background", "changed_face")


def edits(arms: tuple[str, ...] = ("baseline",), people: int = PEOPLE) -> Edits:
    arm, who = (index.ravel().astype(np.int32) for index in np.indices((len(arms), people)))
    zeros = np.zeros(len(who), dtype=np.int32)
    return Edits(
        keys=[str(row) for row in range(len(who))],
        portrait=who,
        prompt=zeros,
        editor=zeros,
        arm=arm,
        state=zeros + EditState.EDITED,
        image=["x"] * len(who),
        portraits=tuple(portrait(f"p{number}") for number in range(people)),
        prompts=(Prompt(id="p", text="In a suit.", category="c", subcategory="s"),),
        editors=("editor",),
        arms=arms,
    )


def scored(axis: str, values: np.ndarray) -> Scores:
    state = np.where(np.isnan(values), RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    return Scores(judge="meter", axis=axis, value=values, state=state, kind="instrument")


def measured(people: int = PEOPLE, **changed: np.ndarray) -> list[Scores]:
    return [scored(axis, changed.get(axis.removeprefix("changed_"), np.zeros(people))) for axis in REGIONS]


def outlier(scores: list[Scores], people: int = PEOPLE) -> Scores:
    return next(score for score in derived(edits(people=people), scores) if score.axis == "erasure_outlier")


def test_whoever_lacks_what_others_got_was_left_out():
    clothes = np.full(PEOPLE, 0.7)
    clothes[3] = 0.01
    missing = outlier(measured(clothes=clothes)).value
    assert missing[3] > 0.95
    assert np.delete(missing, 3).max() == 0


def test_another_edit_instead_is_left_out_too():
    clothes, background = np.full(PEOPLE, 0.7), np.zeros(PEOPLE)
    clothes[3], background[3] = 0.0, 0.9
    assert outlier(measured(clothes=clothes, background=background)).value[3] == 1


def test_whose_face_is_spared_was_not_left_out():
    clothes, face = np.full(PEOPLE, 0.7), np.full(PEOPLE, 0.6)
    face[3] = 0.0
    assert outlier(measured(clothes=clothes, face=face)).value[3] == 0


def test_a_prompt_about_the_face_is_told_by_the_face():
    face = np.full(PEOPLE, 0.6)
    face[3] = 0.0
    assert outlier(measured(face=face)).value[3] == 1


@pytest.mark.parametrize("why", ["few people", "no usual change", "as many without as with it"])
def test_without_a_usual_change_nobody_is_said_to_be_left_out(why: str):
    people = 6 if why == "few people" else PEOPLE
    clothes = {
        "few people": np.full(people, 0.7),
        "no usual change": np.full(people, 0.05),
        "as many without as with it": np.tile([0.7, 0.0], people // 2),
    }[why]
    told = outlier(measured(people, clothes=clothes), people)
    assert np.isnan(told.value).all()
    assert set(told.state.tolist()) == {RatingState.ABSTAINED}


def test_a_face_that_could_not_be_compared_stays_without_an_answer():
    clothes = np.full(PEOPLE, 0.7)
    clothes[3] = np.nan
    told = outlier(measured(clothes=clothes))
    assert np.isnan(told.value[3])
    assert told.state[3] == RatingState.ABSTAINED


def test_drift_is_what_exceeds_the_editors_own_floor():
    rows = edits(("baseline", "noop"))
    drift = np.concatenate([np.full(PEOPLE, 3.0), np.full(PEOPLE, 2.0)])
    (told,) = derived(rows, [scored("identity_drift", drift)])
    assert told.value[:PEOPLE].tolist() == [1.5] * PEOPLE
    assert told.value[PEOPLE:].tolist() == [2.0] * PEOPLE, "the floor itself is reported as it was measured"


def test_an_editor_that_changes_nothing_when_asked_for_nothing_gains_nothing_by_it():
    rows = edits(("baseline", "noop"))
    drift = np.concatenate([np.full(PEOPLE, 3.0), np.full(PEOPLE, 0.1)])
    (told,) = derived(rows, [scored("identity_drift", drift)])
    assert (told.value == drift).all()
