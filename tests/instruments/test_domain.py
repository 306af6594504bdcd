"""Faces that do not look like photographs are not read."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from stillme.core.images import read_rgb
from stillme.instruments import faces
from stillme.instruments.cards import DESCRIBED
from stillme.instruments.domain import describe, drawn, rule, withhold
from stillme.instruments.measurements import measure
from stillme.portraits import portraits

Picture = NDArray[np.uint8]


@pytest.fixture(scope="module")
def portrait() -> Picture:
    return read_rgb(portraits()[5].image.path)


def cartoon(rgb: Picture) -> Picture:
    """Flat colours and black lines, without any network."""
    small = cv2.resize(rgb, (448, 448), interpolation=cv2.INTER_AREA)
    smooth = cv2.bilateralFilter(cv2.bilateralFilter(small, 9, 60, 9), 9, 60, 9)
    grey = cv2.medianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), 5)
    edges = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, 9, 4)
    flat = ((smooth // 32) * 32 + 16).astype(np.uint8)
    return np.asarray(cv2.resize(cv2.bitwise_and(flat, flat, mask=edges), rgb.shape[1::-1]))


def test_what_is_read_from_faces_is_withheld_from_a_drawing_and_colour_is_not(portrait: Picture) -> None:
    measured = measure(portrait, cartoon(portrait))
    assert measured.details["drawn"] > 0
    assert set(DESCRIBED) <= set(measured.abstained)
    assert all("may be a drawing" in measured.abstained[name] for name in DESCRIBED)
    assert not set(DESCRIBED) & set(measured.values)
    assert "same_person" not in measured.details
    assert "changed_area" in measured.values


def test_light_and_storage_leave_a_photograph_one(portrait: Picture) -> None:
    darker = (portrait * 0.7).astype(np.uint8)
    blurred = np.asarray(cv2.GaussianBlur(portrait, (0, 0), 1.5))
    for changed in (portrait, darker, blurred):
        measured = measure(portrait, changed)
        assert measured.details["drawn"] < 0
        assert set(DESCRIBED) <= set(measured.values)


@pytest.mark.parametrize(("source", "edited", "read"), [(3.8, 6.7, True), (-3.0, 6.0, False)])
def test_a_face_is_doubted_that_looked_drawn_before_and_not_read_if_the_edit_made_it_so(
    source: float, edited: float, read: bool
) -> None:
    values, details = dict.fromkeys(DESCRIBED, 0.1) | {"skin_delta_l": 2.0}, {"same_person": True}
    withhold(source, edited, values, {}, details)
    assert set(values) == {*(DESCRIBED if read else ()), "skin_delta_l"}
    assert details.get("same_person") == (True if read else None)
    assert details.get("doubts") == (["perhaps drawn"] if read else None)


@pytest.mark.numeric
def test_the_distance_does_not_lean_on_last_digits(portrait: Picture) -> None:
    face = faces.mesh(portrait, faces.find(portrait)[0])
    numbers = describe(portrait, face)
    assert np.isfinite(numbers).all()
    noisy = numbers + np.random.default_rng(0).normal(0, 1e-6, len(numbers))
    assert rule().score(noisy) == pytest.approx(drawn(portrait, face), abs=1e-3)
