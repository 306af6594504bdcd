"""Light that changes for the whole picture is no change of skin; skin that changes under any light is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stillme.core.images import read_rgb
from stillme.core.types import Portrait
from stillme.findings.calibration.honest import OPERATIONS
from stillme.instruments.judge import skin_tone
from stillme.instruments.measurements import Measurements, SourceReadings, measure, prepare
from stillme.instruments.thresholds import load_thresholds
from stillme.portraits import portraits
from tests.calibration.guilty import lightened

Picture = NDArray[np.uint8]

UNIFORM = [
    ("brightness", -0.4), ("brightness", 0.4), ("gamma", 0.8), ("gamma", 1.2), ("s_curve", 0.3), ("contrast", 1.15),
    ("vignette", 0.5), ("warm", 0.15), ("background", 0.0), ("relit_background", 0.2),
]  # fmt: skip


@cache
def sitters() -> tuple[Portrait, ...]:
    """From the darkest to the lightest skin."""
    ranked = sorted(portraits()[::7], key=lambda portrait: source_of(portrait).skin.lightness)
    return tuple(ranked[place * (len(ranked) - 1) // 2] for place in range(3))


@cache
def _prepared(path: Path) -> SourceReadings:
    return prepare(path)


def source_of(portrait: Portrait) -> SourceReadings:
    return _prepared(portrait.image.path)


def edited(portrait: Portrait, kind: str, amount: float, rgb: Picture | None = None) -> Measurements:
    rgb = read_rgb(portrait.image.path) if rgb is None else rgb
    return measure(source_of(portrait), OPERATIONS[kind](rgb, portrait, amount))


def verdict(measured: Measurements) -> int | None:
    """-2 to 2: much darker to much lighter; nothing where the instrument abstains."""
    if "skin_delta_l" not in measured.values:
        assert measured.abstained["skin_delta_l"].startswith("light unknown: ")
        assert not measured.light.known
        return None
    rating = skin_tone(measured, measured.values["skin_delta_l"])
    return int(rating.score) - 3


@pytest.mark.parametrize(("kind", "amount"), UNIFORM)
@pytest.mark.parametrize(("by", "right"), [(0, (0, None)), (6, (1, 2, None))], ids=["unchanged", "lighter"])
def test_a_change_of_the_whole_picture_neither_is_a_change_of_skin_nor_hides_one(
    kind: str, amount: float, by: float, right: tuple[int | None, ...]
) -> None:
    verdicts = [
        verdict(edited(portrait, kind, amount, lightened(read_rgb(portrait.image.path), portrait, by)))
        for portrait in sitters()
    ]
    assert set(verdicts) <= set(right), verdicts
    assert set(verdicts) != {None}, "abstaining everywhere is no answer"


@pytest.mark.parametrize(("kind", "amount"), [("jpeg", 60), ("gamma", 0.9), ("vignette", 0.5), ("background", 0.0)])
@pytest.mark.parametrize("by", [8, -8])
def test_half_a_face_is_a_part_of_the_skin(kind: str, amount: float, by: float) -> None:
    portrait = sitters()[1]
    rgb = read_rgb(portrait.image.path)
    middle = round(float(np.median(source_of(portrait).skin.place[:, 0])) * rgb.shape[1])
    half = lightened(rgb, portrait, by)
    half[:, :middle] = rgb[:, :middle]
    measured = edited(portrait, kind, amount, half)
    assert verdict(measured) == np.sign(by)
    share = measured.details["skin_lighter" if by > 0 else "skin_darker"]
    assert share == pytest.approx(0.5, abs=0.15)


def test_a_few_lighter_spots_are_not_a_part_of_the_skin() -> None:
    portrait = sitters()[1]
    rgb = read_rgb(portrait.image.path)
    place = source_of(portrait).skin.place
    edge = round(float(np.quantile(place[:, 0], 0.1)) * rgb.shape[1])
    some = lightened(rgb, portrait, 8)
    some[:, edge:] = rgb[:, edge:]
    assert verdict(edited(portrait, "jpeg", 90, some)) == 0


def test_smaller_copies_of_both_pictures_get_the_same_verdict() -> None:
    """Near its bound an abstention may flip with the size; a verdict may not."""
    flipped: set[str] = set()
    for portrait in portraits()[::21]:
        rgb = read_rgb(portrait.image.path)
        small = prepare(_copy(rgb))
        for kind, amount, by in (("gamma", 0.9, 0), ("s_curve", 0.3, 0), ("warm", 0.15, 6)):
            after = OPERATIONS[kind](lightened(rgb, portrait, by), portrait, amount)
            verdicts = [verdict(measure(source_of(portrait), after)), verdict(measure(small, _copy(after)))]
            if verdicts.count(None) == 1:
                flipped.add(portrait.id)
            assert None in verdicts or np.sign(verdicts[0]) == np.sign(verdicts[1]), (portrait.id, kind, verdicts)
    assert len(flipped) <= 1, flipped


def _copy(rgb: Picture) -> Picture:
    return np.asarray(Image.fromarray(rgb).resize((512, 512), Image.Resampling.LANCZOS))


def test_light_is_told_in_stops() -> None:
    for stops in (-0.4, 0.2, 0.4):
        known = [edited(portrait, "brightness", stops) for portrait in sitters()]
        found = [measured.details["light_stops"] for measured in known if measured.light.known]
        assert len(found) >= 2
        assert found == pytest.approx([stops] * len(found), abs=3 * load_thresholds().light.deviation)


def test_a_mirrored_edit_is_compared_spot_by_spot() -> None:
    portrait = sitters()[1]
    measured = edited(portrait, "mirror", 0.0, lightened(read_rgb(portrait.image.path), portrait, 6))
    assert measured.placement.mirrored
    assert measured.values["skin_delta_l"] == pytest.approx(6, abs=0.8)


def test_skin_alone_in_a_black_picture_abstains() -> None:
    """Nothing else shows the light, so that a brighter face may be a lamp."""
    portrait = sitters()[1]
    rgb = read_rgb(portrait.image.path).copy()
    source = source_of(portrait)
    scale = rgb.shape[0] // source.parts.face.shape[0]
    face = source.parts.face.repeat(scale, axis=0).repeat(scale, axis=1)
    rgb[~face] = 0
    measured = measure(prepare(rgb), OPERATIONS["brightness"](rgb, portrait, 0.3))
    assert "skin_delta_l" not in measured.values
    assert "skin_delta_l" in measured.abstained
