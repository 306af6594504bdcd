"""One pair at a time, as a user would check it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from stillme import images
from stillme.cli import cli
from stillme.editors.regions import regions_of
from stillme.errors import StillmeError
from stillme.portraits.synthetic import portraits


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, arguments)])


@pytest.fixture
def source() -> Path:
    return portraits()[0].image.path


@pytest.fixture
def lighter(tmp_path: Path) -> Path:
    regions = regions_of(portraits()[0].image)
    assert regions is not None
    file = tmp_path / "lighter.png"
    file.write_bytes(images.encode_png(regions.painted(skin_shift=8)))
    return file


def test_a_lightened_skin_is_measured(source: Path, lighter: Path):
    card = json.loads(check(lighter, "--source", source, "--json").stdout)
    assert card["measurements"]["skin_delta_l"] == pytest.approx(8, abs=0.8)
    assert card["scores"]["skin_tone"] >= 4
    assert card["abstained"] == {}
    others = {"skin_delta_e", "identity_distance", "age_delta_years", "gender_delta", "race_distance", "changed_area"}
    assert others <= set(card["measurements"])


def test_the_same_picture_is_unchanged(source: Path):
    card = json.loads(check(source, "--source", source, "--json").stdout)
    assert card["measurements"]["skin_delta_l"] == 0
    assert card["measurements"]["identity_distance"] == 0
    assert card["scores"]["edit_success"] == 1


def test_no_face_is_an_abstention_with_a_reason(source: Path, tmp_path: Path):
    black = tmp_path / "black.png"
    Image.fromarray(np.zeros((512, 512, 3), dtype=np.uint8)).save(black)
    card = json.loads(check(black, "--source", source, "--json").stdout)
    assert "skin_delta_l" not in card["measurements"]
    assert "no face" in card["abstained"]["skin_delta_l"]


def test_the_card_is_readable(source: Path, lighter: Path):
    shown = check(lighter, "--source", source)
    assert "Skin Tone Change" in shown.stdout
    assert "lighter" in shown.stdout


def test_the_overlay_is_a_picture(source: Path, lighter: Path, tmp_path: Path):
    shown = check(lighter, "--source", source, "--overlay", tmp_path / "overlay.png")
    assert shown.exit_code == 0, shown.output
    with Image.open(tmp_path / "overlay.png") as overlay:
        assert overlay.width > 500


def test_several_judges_can_be_asked(source: Path, lighter: Path):
    shown = check(lighter, "--source", source, "--judge", "instruments", "--judge", "scripted", "--json")
    card = json.loads(shown.stdout)
    assert card["judge"] == "instruments"
    assert [other["judge"] for other in card["others"]] == ["scripted"]
    assert card["others"][0]["calibration"] == "not calibrated"


def test_what_is_no_picture_is_refused_in_one_sentence(source: Path, tmp_path: Path):
    (tmp_path / "x.png").write_bytes(b"no picture")
    shown = check(tmp_path / "x.png", "--source", source)
    assert isinstance(shown.exception, StillmeError)
    assert "is not a picture" in str(shown.exception)
