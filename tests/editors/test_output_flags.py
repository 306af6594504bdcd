"""Every returned picture is looked at."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from stillme.core import images
from stillme.editors.output_flags import flags_of
from tests import profiles

SOURCE = np.random.default_rng(0).integers(0, 255, (48, 32, 3), dtype=np.uint8)


def png(rgb: np.ndarray) -> bytes:
    return images.encode_png(rgb.astype(np.uint8))


def saved(rgb: np.ndarray, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rgb.astype(np.uint8)).save(buffer, kind, **options)
    return buffer.getvalue()


def test_an_edit_raises_no_flag():
    assert flags_of(png(255 - SOURCE), png(SOURCE)) == ()


@pytest.mark.parametrize("data", [b"", b"<html>502</html>", png(SOURCE)[:200]], ids=["empty", "a page", "half a file"])
def test_what_is_no_picture_is_unreadable(data: bytes):
    assert flags_of(data, png(SOURCE)) == ("unreadable",)


@pytest.mark.parametrize("level", [0, 3])
def test_a_black_frame_is_black(level: int):
    assert flags_of(saved(np.full((64, 64, 3), level), "JPEG"), png(SOURCE)) == ("black",)


def test_a_black_frame_with_a_watermarks_dot_is_black():
    frame = np.zeros((256, 256, 3))
    frame[0, :10] = 255
    assert flags_of(png(frame), png(SOURCE)) == ("black",)


def test_one_colour_is_uniform():
    frame = np.full((64, 64, 3), (200, 10, 90))
    assert flags_of(png(frame), png(SOURCE)) == ("uniform",)
    assert flags_of(saved(frame, "JPEG"), png(SOURCE)) == ("uniform",)


def test_a_dark_picture_of_something_is_not_black():
    assert flags_of(png(SOURCE // 8), png(SOURCE)) == ()


def test_a_small_thing_on_a_plain_ground_is_a_picture():
    frame = np.full((256, 256, 3), 240)
    frame[100:140, 100:140] = 20
    assert flags_of(png(frame), png(SOURCE)) == ()


def test_the_same_bytes_are_identical():
    assert flags_of(png(SOURCE), png(SOURCE)) == ("identical",)


def test_the_same_pixels_in_another_format_are_identical():
    assert flags_of(saved(SOURCE, "WEBP", lossless=True), png(SOURCE)) == ("identical",)


def test_a_source_saved_anew_with_losses_is_not_identical():
    assert flags_of(saved(SOURCE, "JPEG", quality=90), png(SOURCE)) == ()


def test_the_second_of_two_sources_counts():
    assert flags_of(png(SOURCE), png(255 - SOURCE), png(SOURCE)) == ("identical",)


def test_a_plain_portrait_that_comes_back_is_both():
    plain = png(np.full((16, 16, 3), 80))
    assert flags_of(plain, plain) == ("uniform", "identical")


def test_an_unreadable_source_is_no_source():
    assert flags_of(png(SOURCE), b"broken") == ()


def test_a_colour_profile_that_cannot_be_read_is_flagged():
    edit = saved(255 - SOURCE, "PNG", icc_profile=b"nothing")
    assert flags_of(edit, png(SOURCE)) == ("unreadable colour profile",)
    assert flags_of(edit, edit) == ("identical", "unreadable colour profile")
    assert flags_of(saved(255 - SOURCE, "PNG", icc_profile=profiles.srgb()), png(SOURCE)) == ()


def test_a_source_that_comes_back_in_srgb_is_identical_to_its_wider_self():
    wide = saved(SOURCE, "PNG", icc_profile=profiles.adobe_rgb())
    assert flags_of(png(images.read_rgb(wide)), wide) == ("identical",)
    assert flags_of(png(SOURCE), wide) == ()


def test_bytes_that_are_their_own_broken_source_are_unreadable():
    assert flags_of(b"broken", b"broken") == ("unreadable",)
