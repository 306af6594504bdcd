"""The sentences about one pair: innocent edits first, then guilty ones, then what cannot be told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillme.core import images
from stillme.core.types import Abstained, Assessment, Rated, Rating
from stillme.findings.calibration import save
from stillme.findings.single.statements import Statement, statements
from stillme.portraits import portraits
from tests.command_lines import ran
from tests.instruments.known_changes import Picture, jpeg, lighter, portrait
from tests.single.calibrations import calibration

UNCHANGED = [
    "No measurable change in skin tone.",
    "You still look like the same person.",
    "No measurable change in apparent age or gender presentation.",
]


def told(source: Picture, edited: Picture, folder: Path) -> list[dict[str, Any]]:
    """The statements of `stillme check --json`."""
    for name, rgb in (("source", source), ("edited", edited)):
        (folder / f"{name}.png").write_bytes(images.encode_png(np.ascontiguousarray(rgb)))
    shown = ran("check", folder / "edited.png", "--source", folder / "source.png", "--json")
    return json.loads(shown.stdout)["statements"]


@pytest.fixture
def validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))
    save(calibration())


@pytest.mark.usefixtures("validated")
class TestPictures:
    @pytest.mark.parametrize(
        ("name", "innocent", "picture"),
        [
            ("A_f_23", lambda rgb: rgb, "No visible change in the picture."),
            ("B_f_43", lambda rgb: jpeg(rgb, 60), "No visible change in the picture."),
            ("F_m_63", lambda rgb: rgb[:, ::-1], "No visible change in the picture, except that it is mirrored."),
        ],
        ids=["the same", "JPEG 60", "mirrored"],
    )
    def test_an_innocent_edit_changed_nothing(
        self, name: str, innocent: Callable[[Picture], Picture], picture: str, tmp_path: Path
    ):
        said = told(portrait(name), innocent(portrait(name)), tmp_path)
        assert [statement["text"] for statement in said] == [*UNCHANGED, picture]
        assert {statement["certainty"] for statement in said} == {"sure"}
        assert not any(statement["changed"] for statement in said)

    @pytest.mark.parametrize("name", ["A_f_23", "C_f_63", "F_m_63"])
    def test_lighter_skin_is_said_and_the_person_is_the_same(self, name: str, tmp_path: Path):
        skin, person, *others, picture = told(portrait(name), lighter(portrait(name), 9), tmp_path)
        assert skin["text"] == "Your skin came back much lighter (+9 L*, about 2 foundation shades)."
        assert (skin["changed"], skin["certainty"]) == (True, "sure")
        assert person["text"] == UNCHANGED[1]
        assert not any(other["changed"] for other in others)
        assert re.fullmatch(r"1\d % of the picture changed\.", picture["text"])

    def test_another_person_is_another_person(self, tmp_path: Path):
        _, person, *_ = told(portrait("A_f_23"), portrait("E_m_43"), tmp_path)
        assert (person["text"], person["certainty"]) == ("You look like another person.", "sure")

    def test_without_a_face_every_statement_about_the_person_says_why_not(self, tmp_path: Path):
        *person, picture = told(portrait("A_f_23"), np.zeros((512, 512, 3), np.uint8), tmp_path)
        assert [statement["text"] for statement in person] == [
            "Cannot tell whether your skin came back lighter or darker.",
            "Cannot tell whether you still look like the same person.",
            "Cannot tell whether your apparent age or gender presentation changed.",
        ]
        for statement in person:
            assert statement["certainty"] == "cannot tell"
            assert statement["changed"] is None
            assert statement["because"] == "no face found in the edited image"
        assert (picture["text"], picture["certainty"]) == ("98 % of the picture changed.", "sure")

    def test_the_sentences_come_before_the_details(self, tmp_path: Path):
        source = portraits()[0].image.path
        shown = ran("check", source, "--source", source).stdout
        sentences, details = shown.split("\n\n")
        assert sentences.splitlines()[0] == "No measurable change in skin tone. [sure]"
        assert details.startswith("instruments\n")


def test_one_axis_that_failed_on_this_skin_silences_only_its_own_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))
    save(calibration(age_delta_years="darker"))
    skin, person, age, gender, _ = told(portrait("A_f_23"), portrait("A_f_23"), tmp_path)
    assert {skin["certainty"], person["certainty"], gender["certainty"]} == {"sure"}
    assert (age["certainty"], age["because"]) == ("cannot tell", "instruments not validated on darker skin")


def assessment(details: dict[str, Any] | None = None, **scores: float | str) -> Assessment:
    """An unchanged pair but for these scores; words are reasons to abstain."""
    still = ("skin_delta_l", "identity_distance", "identity_drift", "identity_swap", "age_delta_years", "gender_delta")
    unchanged = dict.fromkeys((*still, "changed_area"), 0.0)
    unchanged |= {"skin_tone": 3.0, "gender_change": 1.0, "visible_change": 1.0}
    ratings: dict[str, Rating] = {
        axis: Abstained(reason=score) if isinstance(score, str) else Rated(score=score)
        for axis, score in (unchanged | scores).items()
    }
    return Assessment(ratings=ratings, effective={"age_interval": [-1.0, 1.0]} | (details or {}))


def said(pair: Assessment, *, years: int | None = None, tone: str = "medium") -> list[Statement]:
    return statements(pair, calibration(), tone, years=years)


@pytest.mark.parametrize(
    ("moved", "scale", "text"),
    [
        (1.0, 4, "Part of your skin came back lighter."),
        (-0.5, 2, "Part of your skin came back darker."),
        (-5.2, 2, "Your skin came back slightly darker (−5 L*)."),
        (19.2, 5, "Your skin came back much lighter (+19 L*, about 5 foundation shades)."),
    ],
)
def test_a_part_is_called_a_part_and_shades_are_named_only_for_a_large_shift(moved: float, scale: int, text: str):
    assert said(assessment(skin_delta_l=moved, skin_tone=scale))[0].text == text


@pytest.mark.parametrize(("moved", "scale"), [(2.5, 3), (3.3, 4)])
def test_close_to_the_limit_is_not_sure(moved: float, scale: int):
    skin = said(assessment(skin_delta_l=moved, skin_tone=scale))[0]
    assert skin.as_text().endswith("[not sure: close to the smallest change that counts, 3 L*]")


def test_unknown_light_is_a_reason_and_not_a_number():
    reason = "light unknown: the background changed"
    skin = said(assessment(skin_delta_l=reason, skin_tone=reason))[0]
    assert skin.as_text() == f"Cannot tell whether your skin came back lighter or darker: {reason}."


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (0.05, "You still look like the same person. [sure]"),
        (0.3, "Your face changed, but you still look like the same person. [sure]"),
        (0.6, "You may look like another person. [not sure: as far apart as people who"),
        (0.8, "You look like another person. [sure]"),
    ],
)
def test_identity_has_three_answers_and_a_doubt_near_the_cut(distance: float, words: str):
    scores = {"identity_drift": distance / 0.15, "identity_swap": distance / 0.61}
    assert said(assessment(identity_distance=distance, **scores))[1].as_text().startswith(words)


def test_years_within_their_own_interval_are_no_measurable_change():
    age = said(assessment({"age_interval": [-1.0, 13.0]}, age_delta_years=6.0))[2]
    assert age.text == "No measurable change in apparent age."
    assert age.because == "the interval, −1 to +13 years, includes a change that counts"
    older = said(assessment({"age_interval": [8.0, 16.0]}, age_delta_years=12.0), years=30)[2]
    assert older.as_text() == "You look about 12 years older (+8 to +16 years; 30 were asked for). [sure]"


def test_a_reading_that_stays_on_its_side_is_not_another_gender():
    assert said(assessment(gender_delta=0.3))[2].text == UNCHANGED[2], "lighter skin alone moves it that far"
    more = said(assessment(gender_delta=0.6, gender_change=1))[3]
    assert (
        more.as_text() == "Your face reads more masculine than before. [not sure: it does not read as another gender]"
    )
    crossed = said(assessment(gender_delta=-0.8, gender_change=4))[3]
    assert crossed.text == "Your gender presentation changed: your face now reads as feminine."
    unclear = said(assessment(gender_delta=0.6, gender_change="the source reads neither female nor male"))[3]
    assert unclear.because == "the source reads neither female nor male"


def test_a_badly_shown_face_makes_readings_of_it_unsure():
    skin, person, described, _ = said(assessment({"doubts": ["blurred", "turned away"]}))
    assert skin.certainty == "sure"
    assert person.because == described.because == "the face is blurred, turned away"


def test_a_small_visible_change_is_described():
    pair = assessment(changed_area=0.01)
    visible = Rated(score=2, evidence="a region of 3% of the face's box changed")
    shown = replace(pair, ratings={**pair.ratings, "visible_change": visible})
    assert said(shown)[-1].text == "The picture changed visibly: a region of 3% of the face's box changed."


def test_no_statement_is_about_race():
    shift = {"race_shift": {"White": 0.9, "Black": -0.9}}
    assert said(assessment(shift)) == said(assessment())


def test_nothing_is_sure_before_a_calibration_or_on_an_unknown_skin():
    assert {one.because for one in statements(assessment(), None, "medium")} == {"instruments not calibrated yet"}
    partly = calibration(skin_tone="darker", skin_delta_l="darker")
    assert statements(assessment(), partly, "lighter")[0].certainty == "sure"
    assert statements(assessment(), partly, "")[0].because == "instruments not validated on every skin tone"
