from __future__ import annotations

import cv2
import numpy as np
import pytest

from stillme.findings.calibration.honest import OPERATIONS, HonestEdit, load
from stillme.instruments import faces
from stillme.instruments.cards import NOT_VISIBLE, VISIBLE
from stillme.instruments.measurements import Measurements, SourceReadings, measure, prepare
from stillme.portraits import portraits
from tests.calibration.guilty import edits
from tests.instruments.known_changes import (
    background_tinted,
    clothes_tinted,
    exposed,
    lighter,
    one,
    some,
    there_and_back,
)
from tests.pictures import encoded

PERSON = portraits()[0]
"""Whom the operations may ask for masks; those that only move or save a picture do not."""


@pytest.fixture(scope="module")
def source() -> SourceReadings:
    return prepare(one())


def test_the_same_picture_did_not_change(source: SourceReadings) -> None:
    measured = measure(source, one())
    assert measured.values["changed_area"] == 0
    assert measured.values["identity_distance"] == 0
    assert measured.details["ssim"] == 1


STORED = {
    "quarter size": lambda rgb: there_and_back(rgb, 0.25),
    "WebP": lambda rgb: encoded(rgb, "WEBP", quality=70),
    "cropped": lambda rgb: np.ascontiguousarray(rgb[30:-20, 25:-45]),
    "bigger": lambda rgb: cv2.resize(rgb, None, fx=1.5, fy=1.5, interpolation=cv2.INTER_CUBIC),
}


@pytest.mark.parametrize("how", STORED)
def test_storing_and_framing_are_no_change(source: SourceReadings, how: str) -> None:
    assert_unchanged(measure(source, STORED[how](one())))


@pytest.mark.parametrize("edit", [edit for edit in edits() if load().kinds[edit.kind].visible is False], ids=str)
def test_a_picture_that_was_only_moved_or_saved_did_not_change(source: SourceReadings, edit: HonestEdit) -> None:
    measured = measure(source, OPERATIONS[edit.kind](one(), PERSON, edit.amount or 0.0))
    assert_unchanged(measured)
    assert measured.placement.mirrored == (edit.kind == "mirror")


def assert_unchanged(measured: Measurements) -> None:
    assert measured.values["visible_change"] == NOT_VISIBLE, measured.details["signs_of_change"]
    assert measured.details["same_person"]
    assert abs(measured.values["skin_delta_l"]) < 0.8


def beside(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.hstack([cv2.resize(rgb, (384, 512)) for rgb in (left, right)])


def squeezed(rgb: np.ndarray, by: float) -> np.ndarray:
    """The face narrower by so much in its middle, and as it was at its rim."""
    face = faces.find(rgb)[0]
    x, y = face.left + face.width / 2, face.top + face.height / 2
    rows, columns = np.mgrid[: rgb.shape[0], : rgb.shape[1]].astype(np.float32)
    away = np.hypot((columns - x) / face.width, (rows - y) / face.height)
    inward = x + (columns - x) * (1 + by * np.clip((0.85 - away) / 0.4, 0, 1))
    return cv2.remap(rgb, inward.astype(np.float32), rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


@pytest.mark.parametrize("how", ["watercolour", "mosaic", "upside down", "swapped places", "warped", "half of it"])
def test_a_change_without_new_colours_is_visible(how: str) -> None:
    rgb, other = some(2)
    small = cv2.resize(rgb, (64, 64), interpolation=cv2.INTER_AREA)
    source, edited = {
        "watercolour": lambda: (rgb, cv2.stylization(rgb, sigma_s=60, sigma_r=0.45)),
        "mosaic": lambda: (rgb, cv2.resize(small, rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)),
        "upside down": lambda: (rgb, np.ascontiguousarray(rgb[::-1, ::-1])),
        "swapped places": lambda: (beside(rgb, other), beside(other, rgb)),
        "warped": lambda: (rgb, squeezed(rgb, 0.10)),
        "half of it": lambda: (rgb, np.ascontiguousarray(rgb[: 2 * len(rgb) // 3, : 2 * len(rgb) // 3])),
    }[how]()
    measured = measure(source, edited)
    assert measured.values["visible_change"] == VISIBLE
    assert measured.details["signs_of_change"]


def test_new_clothes_and_new_backgrounds_are_changes() -> None:
    for rgb in some(4):
        portrait = prepare(rgb)
        for edit in (clothes_tinted, background_tinted):
            measured = measure(portrait, edit(rgb, (200, 40, 40)))
            assert measured.values["changed_area"] > 0.05
            touched, spared = "clothes", "background"
            if edit is background_tinted:
                touched, spared = spared, touched
            assert measured.values[f"changed_{touched}"] > 0.5 > measured.values[f"changed_{spared}"]
            assert measured.values["changed_face"] < 0.1


def test_a_change_of_the_face_is_seen_inside_the_face(source: SourceReadings) -> None:
    measured = measure(source, lighter(one(), 12))
    assert measured.values["changed_face"] > 0.7
    assert max(measured.values[f"changed_{region}"] for region in ("hair", "clothes", "background")) < 0.1


def test_a_change_of_exposure_changes_everything(source: SourceReadings) -> None:
    assert measure(source, exposed(one(), 0.7)).values["changed_area"] > 0.5


def test_a_picture_of_a_few_pixels_cannot_be_compared(source: SourceReadings) -> None:
    measured = measure(source, np.zeros((1, 1, 3), dtype=np.uint8))
    assert "too small" in measured.abstained["changed_area"]
    assert "changed_area" not in measured.values
