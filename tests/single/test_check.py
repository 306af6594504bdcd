"""One pair at a time, as a user would check it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from stillme.cli import cli
from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.editors.regions import regions_of
from stillme.instruments.cards import CHANGED, DESCRIBED
from stillme.portraits import portraits


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, arguments)])


def only_card(shown: Result) -> dict[str, Any]:
    answer = json.loads(shown.stdout)
    assert set(answer) == {"statements", "judges", "ensemble", "notes"}
    assert answer["ensemble"] is None
    (card,) = answer["judges"]
    return card


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
    card = only_card(check(lighter, "--source", source, "--json"))
    assert card["measurements"]["skin_delta_l"] == pytest.approx(8, abs=0.8)
    assert card["scores"]["skin_tone"] >= 4
    assert card["abstained"] == {}
    others = {"skin_delta_e", *DESCRIBED, *CHANGED, "source_skin_l"}
    assert others <= set(card["measurements"])


def test_the_card_is_readable(source: Path, lighter: Path):
    shown = check(lighter, "--source", source)
    details = shown.stdout.partition("\n\n")[2]
    assert re.search(r"Skin lightness +\+[78]\.\d L\*\n", details)
    assert re.search(r"Gender presentation +no measurable change", details)
    assert re.search(r"Person +same person \(0\.\d\d; look-alikes start at 1\)", details)
    assert re.search(r"Changed: background +0 % of the background", details)
    assert "Skin Tone Change" in details


def test_the_overlay_is_a_picture(source: Path, lighter: Path, tmp_path: Path):
    shown = check(lighter, "--source", source, "--overlay", tmp_path / "overlay.png")
    assert shown.exit_code == 0, shown.output
    with Image.open(tmp_path / "overlay.png") as overlay:
        assert overlay.width > 500


def test_several_judges_can_be_asked(source: Path, lighter: Path):
    shown = check(lighter, "--source", source, "--judge", "instruments", "--judge", "scripted", "--json")
    answer = json.loads(shown.stdout)
    assert set(answer) == {"statements", "judges", "ensemble", "notes"}, (
        "the shape is the same for one judge and for several"
    )
    assert [card["judge"] for card in answer["judges"]] == ["instruments", "scripted"]
    assert answer["judges"][1]["calibrated"] is False
    assert "skin_tone" in answer["ensemble"]["scores"]


def test_colours_that_cannot_be_read_are_noted(source: Path, lighter: Path):
    assert "Note:" not in check(lighter, "--source", source).stderr
    with Image.open(lighter) as picture:
        picture.save(lighter, icc_profile=b"nothing")
    assert "Note: The edited picture is taken for sRGB: its colour" in check(lighter, "--source", source).stderr
    (note,) = json.loads(check(lighter, "--source", source, "--json").stdout)["notes"]
    assert "cannot be read" in note


def test_transparency_is_noted_where_there_is_any(source: Path, tmp_path: Path):
    with Image.open(source) as picture:
        layer = picture.convert("RGBA")
    layer.save(tmp_path / "opaque.png")
    assert json.loads(check(tmp_path / "opaque.png", "--source", source, "--json").stdout)["notes"] == []
    layer.putpixel((3, 3), (200, 100, 50, 128))
    layer.save(tmp_path / "half.png")
    (note,) = json.loads(check(tmp_path / "half.png", "--source", source, "--json").stdout)["notes"]
    assert note == "The edited picture is partly transparent: the transparency was placed on white."


def test_what_is_no_picture_is_refused_in_one_sentence(source: Path, tmp_path: Path):
    (tmp_path / "x.png").write_bytes(b"no picture")
    shown = check(tmp_path / "x.png", "--source", source)
    assert isinstance(shown.exception, StillmeError)
    assert "is not a picture" in str(shown.exception)
