"""The offline extractor, on rendered people whose colours are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stillme.core import images
from stillme.core.types import Failed, ImageFile
from stillme.mitigation.features import Declined, Described, NoFeaturePrompt
from stillme.mitigation.labels import lint
from stillme.mitigation.measured import MeasuredExtractor, feature_prompt
from stillme.portraits import portraits
from tests.records import must_be

SOME = portraits()[::6]


def described(image: ImageFile) -> Described:
    return must_be(Described, MeasuredExtractor().extract(image))


def saved(rgb: np.ndarray, file: Path) -> ImageFile:
    Image.fromarray(rgb.astype(np.uint8)).save(file)
    return ImageFile.of(file)


def test_every_rendered_person_is_described_without_a_label():
    for portrait in SOME:
        extraction = described(portrait.image)
        assert extraction.features.dimensions["face_shape"]
        assert list(extraction.features.problems()) == []
        assert lint(extraction.features.sentence) == ()


def test_skin_words_follow_the_measured_lightness():
    order = ["very deep brown", "deep brown", "medium brown", "light brown", "tan", "light beige", "very fair"]
    rungs = []
    for portrait in SOME:
        words = described(portrait.image).features.dimensions.get("skin_tone")
        if words:
            rungs.append((float(portrait.attributes["skin_l"]), order.index(words.partition(" skin")[0])))
    assert len(rungs) >= len(SOME) - 3
    lightness, rung = np.array(rungs).T
    assert np.corrcoef(lightness, rung)[0, 1] > 0.95


def test_a_dim_image_makes_nobody_dark(tmp_path: Path):
    rgb = images.read_rgb(portraits()[1].image.path)
    assert "skin_tone" in described(portraits()[1].image).features.dimensions
    extraction = described(saved(rgb * 0.3, tmp_path / "dim.png"))
    assert "skin_tone" not in extraction.features.dimensions
    assert "hair" not in extraction.features.dimensions
    assert extraction.effective["measured"]["well_lit"] is False


def test_a_grey_image_gives_no_skin_tone(tmp_path: Path):
    grey = images.read_rgb(portraits()[1].image.path).mean(axis=2, keepdims=True).repeat(3, axis=2)
    assert "skin_tone" not in described(saved(grey, tmp_path / "grey.png")).features.dimensions


def test_words_survive_what_does_not_change_the_person(tmp_path: Path):
    kept = total = 0
    for portrait in SOME[::4]:
        rgb = images.read_rgb(portrait.image.path)
        Image.fromarray(rgb).save(tmp_path / "x.jpg", quality=75)
        again = described(ImageFile.of(tmp_path / "x.jpg")).features.dimensions
        mirrored = described(saved(rgb[:, ::-1], tmp_path / "y.png")).features.dimensions
        for name, words in described(portrait.image).features.dimensions.items():
            total += 2
            kept += (again.get(name) == words) + (mirrored.get(name) == words)
    assert kept / total > 0.85


def test_nobody_and_two_people_are_declined_with_a_reason_and_a_broken_file_fails_for_good(tmp_path: Path):
    black = saved(np.zeros((128, 128, 3)), tmp_path / "black.png")
    assert MeasuredExtractor().extract(black) == Declined(reason="no face found")
    assert feature_prompt(black) == NoFeaturePrompt(reason="measured declined: no face found")
    a, b = (images.read_rgb(portraits()[place].image.path) for place in (0, 1))
    two = must_be(Declined, MeasuredExtractor().extract(saved(np.hstack([a, b]), tmp_path / "two.png")))
    assert "several faces" in two.reason
    (tmp_path / "x.png").write_bytes(b"no image")
    assert not must_be(Failed, MeasuredExtractor().extract(ImageFile.of(tmp_path / "x.png"))).retryable


@pytest.mark.parametrize("kind", [Path, str])
def test_the_public_function_takes_a_path(kind: type):
    prompt = feature_prompt(kind(portraits()[0].image.path))
    assert prompt.sentence.startswith("Maintain the person's ")
