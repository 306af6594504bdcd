"""One pair at a time, as a user would check it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from stillme.core import images
from stillme.editors.regions import regions_of
from stillme.instruments.cards import CHANGED, DESCRIBED
from stillme.portraits import portraits
from tests.command_lines import ran


@pytest.fixture
def source() -> Path:
    return portraits()[0].image.path


@pytest.fixture
def lighter(tmp_path: Path) -> Path:
    regions = regions_of(portraits()[0].image)
    file = tmp_path / "lighter.png"
    file.write_bytes(images.encode_png(regions.painted(skin_shift=8)))
    return file


def test_a_lightened_skin_is_measured(source: Path, lighter: Path):
    answer = json.loads(ran("check", lighter, "--source", source, "--json").stdout)
    assert (set(answer), answer["ensemble"]) == ({"statements", "judges", "ensemble", "notes"}, None)
    (card,) = answer["judges"]
    assert card["measurements"]["skin_delta_l"] == pytest.approx(8, abs=0.8)
    assert card["scores"]["skin_tone"] >= 4
    assert card["abstained"] == {}
    others = {"skin_delta_e", *DESCRIBED, *CHANGED, "source_skin_l"}
    assert others <= set(card["measurements"])


def test_the_card_is_readable(source: Path, lighter: Path):
    shown = ran("check", lighter, "--source", source)
    details = shown.stdout.partition("\n\n")[2]
    assert re.search(r"Skin lightness +\+[78]\.\d L\*\n", details)
    assert re.search(r"Gender presentation +no measurable change", details)
    assert re.search(r"Person +same person \(0\.\d\d; look-alikes start at 1\)", details)
    assert re.search(r"Changed: background +0 % of the background", details)
    assert "Skin Tone Change" in details


def test_the_overlay_is_a_picture(source: Path, lighter: Path, tmp_path: Path):
    ran("check", lighter, "--source", source, "--overlay", tmp_path / "overlay.png")
    with Image.open(tmp_path / "overlay.png") as overlay:
        assert overlay.width > 500


def test_several_judges_can_be_asked(source: Path, lighter: Path):
    shown = ran("check", lighter, "--source", source, "--judge", "instruments", "--judge", "scripted", "--json")
    answer = json.loads(shown.stdout)
    assert set(answer) == {"statements", "judges", "ensemble", "notes"}, "the shape is that of one judge"
    assert [card["judge"] for card in answer["judges"]] == ["instruments", "scripted"]
    assert answer["judges"][1]["calibrated"] is False
    assert "skin_tone" in answer["ensemble"]["scores"]


def test_colours_that_cannot_be_read_are_noted(source: Path, lighter: Path):
    assert "Note:" not in ran("check", lighter, "--source", source).stderr
    with Image.open(lighter) as picture:
        picture.save(lighter, icc_profile=b"nothing")
    assert "Note: The edited picture is taken for sRGB: its colour" in ran("check", lighter, "--source", source).stderr
    (note,) = json.loads(ran("check", lighter, "--source", source, "--json").stdout)["notes"]
    assert "cannot be read" in note


def test_transparency_is_noted_where_there_is_any(source: Path, tmp_path: Path):
    with Image.open(source) as picture:
        layer = picture.convert("RGBA")
    layer.save(tmp_path / "opaque.png")
    assert json.loads(ran("check", tmp_path / "opaque.png", "--source", source, "--json").stdout)["notes"] == []
    layer.putpixel((3, 3), (200, 100, 50, 128))
    layer.save(tmp_path / "half.png")
    (note,) = json.loads(ran("check", tmp_path / "half.png", "--source", source, "--json").stdout)["notes"]
    assert note == "The edited picture is partly transparent: the transparency was placed on white."
