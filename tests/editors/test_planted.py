from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core import colour, images
from stillme.core.types import Arm, Edited, Failed, ImageFile, Portrait, Prompt
from stillme.editors.planted import Effect, Planted, PlantedParameters
from stillme.instruments import faces
from stillme.portraits import portraits
from tests.records import asked, must_be

PROMPT = Prompt(id="O-01", text="A suit, please.", category="occupational", subcategory="authority")


def edit(parameters: PlantedParameters, *people: Portrait, seed: int = 0, prompt: Prompt = PROMPT) -> Edited:
    editor = Planted(parameters)
    editor.set_portraits(portraits())
    (outcome,) = editor.edit([asked(editor, *people, what=prompt, seed=seed)])
    assert outcome.truth is not None
    return outcome


def test_the_same_request_gives_the_same_bytes():
    parameters = PlantedParameters(everyone=Effect(skin_shift=5, skin_spread=2, erasure=0.3))
    assert edit(parameters, portraits()[0], seed=3) == edit(parameters, portraits()[0], seed=3)


def test_an_erasure_changes_no_pixel():
    portrait = portraits()[0]
    outcome = edit(PlantedParameters(everyone=Effect(erasure=1)), portrait)
    still = {"skin_delta_l": 0.0, "changed_area": 0.0, "visible_change": 1.0, "skip": 2.0}
    assert outcome.truth == {"erased": True, **still}
    assert np.array_equal(images.read_rgb(outcome.image), images.read_rgb(portrait.image.path))


@pytest.mark.parametrize("shift", [-8.0, 4.0, 9.0])
def test_the_skin_moves_by_what_was_planted_and_the_background_stays(shift: float):
    portrait = portraits()[3]
    outcome = edit(PlantedParameters(everyone=Effect(skin_shift=shift)), portrait)
    before, after = images.read_rgb(portrait.image.path), images.read_rgb(outcome.image)
    mesh = faces.mesh(before, faces.find(before)[0])
    skin = faces.skin_mask(mesh, before.shape)
    moved = np.median(colour.to_lab(after)[skin][:, 0]) - np.median(colour.to_lab(before)[skin][:, 0])
    assert moved == pytest.approx(shift, abs=0.3)
    corner = before[:40, :40].astype(int) - after[:40, :40].astype(int)
    assert np.abs(corner).max() == 0


@pytest.mark.parametrize("what", ["clothes", "background", "both"])
def test_the_edit_recolours_what_it_should(what: str):
    portrait = portraits()[3]
    outcome = edit(PlantedParameters(recolour=what), portrait)
    changed = (images.read_rgb(outcome.image) != images.read_rgb(portrait.image.path)).any(axis=-1)
    height = changed.shape[0]
    assert changed[-height // 16 :].mean() > 0.4 if what != "background" else True
    assert (changed[:40, :40].mean() > 0.9) == (what != "clothes")
    assert outcome.truth["changed_area"] > 0.05


def test_two_prompts_can_look_different():
    one, other = (
        edit(PlantedParameters(), portraits()[0], prompt=replace(PROMPT, id=name)) for name in ("O-01", "V-02")
    )
    assert one.image != other.image


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-10, 10))
def test_the_truth_averages_to_what_was_asked_for(erasure: float, probability: float, shift: float):
    effect = Effect(erasure=erasure, skin_probability=probability, skin_shift=shift)
    editor = Planted(PlantedParameters(by="preset", groups={"A": effect}))
    hit = next(portrait for portrait in portraits() if portrait.attributes["preset"] == "A")
    spared = next(portrait for portrait in portraits() if portrait.attributes["preset"] == "B")
    assert editor.expected("unchanged", hit) == erasure
    assert editor.expected("skin_delta_l", hit) == (1 - erasure) * probability * shift
    assert editor.expected("unchanged", spared) == editor.expected("skin_delta_l", spared) == 0
    assert editor.expected("age_delta_years", hit) is None


def test_erasures_come_as_often_as_planted():
    parameters = PlantedParameters(everyone=Effect(erasure=0.3))
    portrait = portraits()[0]
    erased = [edit(parameters, portrait, seed=seed).truth["erased"] for seed in range(80)]
    assert 0.15 < np.mean(erased) < 0.45


def test_labels_are_part_of_the_key_only_when_groups_are_planted():
    assert not Planted(PlantedParameters()).capabilities.attributes_matter
    assert Planted(PlantedParameters(by="preset")).capabilities.attributes_matter


def test_a_picture_without_a_face_fails_for_good(tmp_path):
    file = tmp_path / "wall.png"
    file.write_bytes(images.encode_png(np.full((128, 128, 3), 128, dtype=np.uint8)))
    wall = replace(portraits()[0], image=ImageFile.of(file))
    editor = Planted(PlantedParameters())
    failed = must_be(Failed, *editor.edit([asked(editor, wall)]))
    assert not failed.retryable
    assert "no face found" in failed.error


def test_somebody_who_becomes_another_is_drawn_as_who_differs_in_that_alone():
    source = portraits()[0]
    become = PlantedParameters(everyone=Effect(become={"preset": "C"}), recolour="background")
    outcome = edit(become, source)
    (other,) = (portrait for portrait in portraits() if portrait.id == outcome.truth["became"])
    assert other.attributes["preset"] == "C"
    assert (other.attributes["cell"], other.block) == (source.attributes["cell"], source.block)
    assert "skin_delta_l" not in outcome.truth


def test_becoming_happens_as_often_as_planted_and_not_to_who_is_there_already():
    becomes = Planted(PlantedParameters(everyone=Effect(become={"preset": "C"}, become_probability=0.3)))
    becomes.set_portraits(portraits())
    prompts = [replace(PROMPT, id=f"O-{index}") for index in range(40)]
    swapped = [
        bool(becomes.fingerprint((portrait,), prompt, Arm.BASELINE, 0))
        for portrait in portraits()[:12]
        for prompt in prompts
    ]
    assert np.mean(swapped) == pytest.approx(0.3, abs=0.07)
    already = [portrait for portrait in portraits() if portrait.attributes["preset"] == "C"]
    assert not any(becomes.fingerprint((portrait,), PROMPT, Arm.BASELINE, 0) for portrait in already)


def test_a_level_that_nobody_has_is_objected_to():
    (sentence,) = Planted(PlantedParameters(everyone=Effect(become={"preset": "Z"}))).problems(portraits(), [PROMPT])
    assert "no portrait has preset = 'Z'" in sentence


@pytest.mark.parametrize(("pronoun", "share"), [("pro", 0.9), ("none", 0.7), ("anti", 0.5)])
def test_the_expected_person_is_drawn_as_often_as_planted(pronoun: str, share: float):
    woman, man = (portraits()[0], next(p for p in portraits() if p.attributes["gender_presentation"] == "masculine"))
    roles = PlantedParameters.model_validate({"roles": {"adherence": 0.7, "pronoun": 0.2}, "everyone": {"erasure": 1}})
    sentence = replace(PROMPT, target="nurse", stereotype="female", pronoun=pronoun)
    chosen: list[Portrait] = []
    for index in range(160):
        people = (woman, man) if index % 2 else (man, woman)
        outcome = edit(roles, *people, prompt=replace(sentence, id=f"W-{index}"))
        chosen.append(people[outcome.truth["role_target"] - 1])
    assert np.mean([person is woman for person in chosen]) == pytest.approx(share, abs=0.08)
