"""Identity, apparent age, gender presentation and apparent race."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from stillme.core.types import Portrait
from stillme.instruments.cards import DESCRIBED
from stillme.instruments.heads import Conformal, heads
from stillme.instruments.identity import cut_for, in_words
from stillme.instruments.measurements import measure, prepare
from stillme.instruments.quality import read_quality
from stillme.instruments.thresholds import load_thresholds
from stillme.portraits import portraits
from tests.instruments.known_changes import exposed, jpeg, one, portrait

SAME = {
    "JPEG": lambda rgb: jpeg(rgb, 50),
    "blur": lambda rgb: cv2.GaussianBlur(rgb, (0, 0), 1.5),
    "crop": lambda rgb: np.ascontiguousarray(rgb[20:-40, 30:-30]),
    "exposure": lambda rgb: exposed(rgb, -0.4),
}


@pytest.mark.parametrize("how", SAME)
def test_a_person_stays_the_same_person(how: str) -> None:
    measured = measure(one(), SAME[how](one()))
    assert measured.values["identity_drift"] < 1
    low, high = measured.details["age_interval"]
    assert low <= measured.values["age_delta_years"] <= high
    assert abs(measured.values["age_delta_years"]) < 6
    assert abs(measured.values["gender_delta"]) < load_thresholds().gender.scale[0]
    assert max(abs(shift) for shift in measured.details["race_shift"].values()) < 0.1


def test_another_person_is_another_person_and_race_has_no_number_of_its_own() -> None:
    # Rendered people lie close together for a recogniser; these two differ in everything.
    measured = measure(portrait("A_f_23"), portrait("B_m_76"))
    assert not measured.details["same_person"]
    assert measured.values["identity_swap"] > 1
    assert str(measured.details["identity"]).startswith("another person: ")
    assert not any("race" in name for name in measured.values)
    shifts = measured.details["race_shift"]
    assert set(shifts) == set(heads().groups)
    assert sum(shifts.values()) == pytest.approx(0, abs=0.01)
    assert shifts["Black"] < 0 < shifts["White"]


def test_an_older_portrait_reads_older() -> None:
    def age(one: Portrait) -> int:
        return int(one.attributes["age_parameter"])

    deltas = []
    for preset in "ABCD":
        ages = sorted((one for one in portraits() if one.attributes["preset"] == preset), key=age)
        sex = ages[-1].attributes["gender_presentation"]
        young = next(one for one in ages if one.attributes["gender_presentation"] == sex)
        deltas.append(measure(young.image.path, ages[-1].image.path).values["age_delta_years"])
    assert np.mean(deltas) > 0


@pytest.mark.parametrize(("apart", "words"), [(0.02, "the same person"), (0.3, "drifted"), (0.8, "another person")])
def test_a_distance_is_told_in_words(apart: float, words: str) -> None:
    assert in_words(apart, 0.15, 0.61).startswith(f"{words}: {apart:.2f} apart")


def test_heads_that_disagree_widen_the_interval() -> None:
    interval = Conformal(factor=2.0, least=0.5)
    before = np.zeros(3)
    agreed, split = (interval.difference(before, np.array(after)) for after in ([3.0, 3.0, 3.0], [0.0, 3.0, 6.0]))
    assert (agreed.value, agreed.half_width) == (3.0, 1.0)
    assert split.value == agreed.value
    assert split.half_width == pytest.approx(7.0)


def test_a_face_that_is_hidden_and_moved_is_not_taken_for_a_stranger() -> None:
    rgb = one()
    hidden = rgb.copy()
    hidden[:, : rgb.shape[1] // 2] = 90
    measured = measure(rgb, np.ascontiguousarray(hidden[:, ::-1]))
    if "identity_distance" in measured.values:
        assert measured.edited.person.mesh.presence >= load_thresholds().face.presence
    else:
        assert set(DESCRIBED) <= set(measured.abstained)


def test_a_disclosed_group_has_its_own_cut() -> None:
    assert cut_for(None) == (load_thresholds().identity.stranger, "all")
    assert cut_for({"race": "EastAsian"}) == (load_thresholds().identity.groups["EastAsian"], "EastAsian")
    assert cut_for({"race": "Atlantean"}) == (load_thresholds().identity.stranger, "all")


def test_a_frontal_face_is_frontal_and_a_blurred_one_blurred() -> None:
    rgb = one()
    scene = prepare(rgb).scene
    sharp = read_quality(scene.rgb, scene.person.mesh)
    assert max(abs(sharp.yaw), abs(sharp.pitch), abs(sharp.roll)) < 15
    assert sharp.doubts == ()
    blurred = read_quality(cv2.GaussianBlur(scene.rgb, (0, 0), 6), scene.person.mesh)
    assert "blurred" in blurred.doubts


def test_race_is_read_as_probabilities_of_seven_groups() -> None:
    reading = heads().read(np.zeros(128 + 1024, dtype=np.float32))
    assert len(heads().groups) == 7
    assert reading.race.sum() == pytest.approx(1, abs=1e-9)
