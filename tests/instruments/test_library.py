"""`measure` as a library, bad files, pictures of what was measured, and the validity cards."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stillme.core.errors import UnreadableImage
from stillme.core.rubric import load as load_rubric
from stillme.instruments.cards import QUANTITIES, cards
from stillme.instruments.judge import Instruments
from stillme.instruments.measurements import measure, prepare
from stillme.instruments.overlay import draw, overlay
from stillme.instruments.thresholds import load_thresholds
from stillme.portraits import portraits
from tests.instruments.known_changes import clothes_tinted, one
from tests.pictures import animated, bomb, encoded, turned
from tests.test_docs import blocks

ROOT = Path(__file__).parents[2]


NETWORKS = {"yunet", "facemesh", "selfie", "sface", "faceres"}


def test_pixels_bytes_and_paths_measure_alike() -> None:
    path = portraits()[0].image.path
    rgb = np.asarray(Image.open(path).convert("RGB"))
    values = [measure(picture, path).values for picture in (rgb, path.read_bytes(), path)]
    assert values[0] == values[1] == values[2]


def test_every_quantity_has_a_value_or_a_reason() -> None:
    for edited in (one(), np.zeros_like(one()), np.zeros((1, 1, 3), dtype=np.uint8)):
        measured = measure(one(), edited)
        assert {*measured.values, *measured.abstained} == set(QUANTITIES)
        assert not {*measured.values} & {*measured.abstained}


def test_odd_but_whole_pictures_are_measured() -> None:
    source = prepare(one())
    picture = Image.fromarray(one())
    deep = one().astype(np.uint16)[..., 1] * 257
    stored = encoded(picture.transpose(Image.Transpose.ROTATE_90), exif=turned())
    for name, data in {
        "CMYK": encoded(picture.convert("CMYK"), "TIFF"),
        "grey": encoded(picture.convert("L"), "PNG"),
        "palette": encoded(picture.quantize(256, dither=Image.Dither.NONE), "PNG"),
        "alpha": encoded(picture.convert("RGBA"), "PNG"),
        "16 bits": encoded(Image.fromarray(deep), "PNG"),
        "turned by EXIF": stored,
    }.items():
        measured = measure(source, data)
        assert "identity_distance" in measured.values, name
        assert measured.details["same_person"], name
    assert measure(source, stored).values["changed_area"] == 0


def test_transparency_is_laid_on_white() -> None:
    layer = Image.fromarray(one()).convert("RGBA")
    layer.putalpha(0)
    assert "no face" in measure(one(), encoded(layer, "PNG")).abstained["skin_delta_l"]


NO_PICTURES = {
    "truncated": lambda: encoded(one())[:5000],
    "text": lambda: b"not a picture",
    "empty": lambda: b"",
    "animated": animated,
    "100 megapixels": lambda: bomb(10_000),
    "an array of another shape": lambda: one()[..., 0],
}


@pytest.mark.parametrize("kind", NO_PICTURES)
def test_what_is_no_picture_is_refused_in_one_sentence(kind: str) -> None:
    with pytest.raises(UnreadableImage) as refused:
        measure(one(), NO_PICTURES[kind]())
    assert "the edited image" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_large_picture_is_measured_at_a_bounded_size() -> None:
    large = np.asarray(Image.fromarray(one()).resize((3000, 3000), Image.Resampling.BICUBIC))
    measured = measure(one(), large)
    assert max(measured.edited.rgb.shape) <= 1024
    assert measured.values["changed_area"] <= 0.02


def test_the_overlay_shows_source_edit_and_change() -> None:
    edited = clothes_tinted(one(), (200, 30, 30))
    drawn = draw(one(), edited)
    assert drawn.dtype == np.uint8
    assert drawn.shape[1] > 2.9 * drawn.shape[0]
    assert (drawn == overlay(measure(one(), edited))).all()
    faceless = overlay(measure(one(), np.zeros((300, 200, 3), dtype=np.uint8)))
    assert faceless.shape[0] == drawn.shape[0]


def test_every_measured_axis_has_a_card_with_numbers_for_every_group() -> None:
    judge = Instruments()
    for axis in (*judge.capabilities.axes, *judge.capabilities.partial):
        (card,) = [card for card in cards() if axis in card.axes]
        assert card.failures
        assert card.licence
        assert len(card.table) >= 7
        for group, row in card.table.items():
            assert row["n"] > 0
            assert set(card.columns) <= row.keys(), (axis, group)


def test_cards_name_only_axes_and_networks_that_exist() -> None:
    weights = files("stillme.instruments.faces").joinpath("weights").iterdir()
    assert {Path(str(path)).stem for path in weights} == NETWORKS
    for card in cards():
        assert set(card.axes) <= load_rubric().axes.keys()
        assert set(card.networks) <= NETWORKS
        assert card.title in card.text()


def test_the_measured_numbers_belong_to_this_code(tool: Callable[[str], Any]) -> None:
    measured = tomllib.loads(files("stillme.instruments").joinpath("cards", "measured.toml").read_text("utf-8"))
    assert measured["code"] == tool("fingerprint").code_hash(), "run `python tools/models/refresh.py PATH/TO/FAIRFACE`"


def test_words_do_not_make_measured_numbers_stale_and_code_does(tool: Callable[[str], Any]) -> None:
    meaning = tool("fingerprint")._meaning
    written = 'def f(x):\n    """Say it."""\n    return x + 1  # why\n'
    assert meaning(written) == meaning("def f(x):\n    return x + 1\n")
    assert meaning(written) == meaning("from stillme.core import types\n" + written), "where a module stands"
    assert meaning(written) != meaning("def f(x):\n    return x + 2\n")


def test_the_example_of_the_docs_works() -> None:
    (code,) = blocks(ROOT / "docs" / "instruments.md", "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    skin, stops = map(float, done.stdout.split()[:2])
    assert abs(skin) < 1 < 10 * abs(stops)


def test_the_weights_are_those_that_the_build_script_makes() -> None:
    listed = ROOT / "tools" / "models" / "sources.toml"
    if not listed.exists():
        pytest.skip("the build script is not part of a source distribution")
    for name, entry in tomllib.loads(listed.read_text("utf-8"))["networks"].items():
        weights = files("stillme.instruments.faces").joinpath("weights", f"{name}.onnx").read_bytes()
        assert hashlib.sha256(weights).hexdigest() == entry["sha256"], name


def test_the_documented_numbers_are_the_measured_ones(tool: Callable[[str], Any]) -> None:
    numbers_page = tool("numbers_page")
    assert numbers_page.PAGE.read_text("utf-8") == numbers_page.page(), "run `python tools/models/numbers_page.py`"


def test_the_documented_thresholds_are_those_in_use() -> None:
    page = (ROOT / "docs" / "instruments.md").read_text("utf-8")
    thresholds = load_thresholds()
    for value in (*thresholds.gender.scale, thresholds.identity.stranger, thresholds.change.similar):
        assert f"{value:.2f}" in page
    assert f"ΔL* of {thresholds.skin.scale[3]:.0f}" in page
    assert f"ΔL* of {thresholds.skin.scale[2]:.0f}" in page
    assert f"ΔE00 of {thresholds.change.visible:.0f}" in page
