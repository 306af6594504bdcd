"""Every returned picture is looked at."""

from __future__ import annotations

import numpy as np
import pytest

from stillme.core import images
from stillme.editors.output_flags import flags_of
from tests import profiles
from tests.pictures import encoded as saved

SOURCE = np.random.default_rng(0).integers(0, 255, (48, 32, 3), dtype=np.uint8)


def png(rgb: np.ndarray) -> bytes:
    return images.encode_png(rgb.astype(np.uint8))


def with_spot(side: int, ground: int, rows: slice, columns: slice, spot: int) -> np.ndarray:
    frame = np.full((side, side, 3), ground)
    frame[rows, columns] = spot
    return frame


PLAIN = np.full((64, 64, 3), (200, 10, 90), dtype=np.uint8)
GREY = png(np.full((16, 16, 3), 80))
WIDE = saved(SOURCE, "PNG", icc_profile=profiles.adobe_rgb())
ODD_PROFILE = saved(255 - SOURCE, "PNG", icc_profile=b"nothing")
SAME = (png(SOURCE),)
CASES: dict[str, tuple[bytes, tuple[bytes, ...], tuple[str, ...]]] = {
    "an edit": (png(255 - SOURCE), SAME, ()),
    "an empty file": (b"", SAME, ("unreadable",)),
    "a page of words": (b"<html>502</html>", SAME, ("unreadable",)),
    "half a file": (png(SOURCE)[:200], SAME, ("unreadable",)),
    "black": (saved(np.full((64, 64, 3), 0, dtype=np.uint8), "JPEG"), SAME, ("black",)),
    "nearly black": (saved(np.full((64, 64, 3), 3, dtype=np.uint8), "JPEG"), SAME, ("black",)),
    "black with a watermark's dot": (png(with_spot(256, 0, slice(1), slice(10), 255)), SAME, ("black",)),
    "one colour": (png(PLAIN), SAME, ("uniform",)),
    "one colour as JPEG": (saved(PLAIN, "JPEG"), SAME, ("uniform",)),
    "a dark picture of something": (png(SOURCE // 8), SAME, ()),
    "a small thing on a plain ground": (png(with_spot(256, 240, slice(100, 140), slice(100, 140), 20)), SAME, ()),
    "the same bytes": (png(SOURCE), SAME, ("identical",)),
    "the same pixels in another format": (saved(SOURCE, "WEBP", lossless=True), SAME, ("identical",)),
    "the source with the losses of JPEG": (saved(SOURCE, "JPEG", quality=90), SAME, ()),
    "the second of two sources": (png(SOURCE), (png(255 - SOURCE), png(SOURCE)), ("identical",)),
    "a plain portrait that comes back": (GREY, (GREY,), ("uniform", "identical")),
    "an unreadable source": (png(SOURCE), (b"broken",), ()),
    "an unreadable profile": (ODD_PROFILE, SAME, ("unreadable colour profile",)),
    "an unreadable profile of both": (ODD_PROFILE, (ODD_PROFILE,), ("identical", "unreadable colour profile")),
    "a readable profile": (saved(255 - SOURCE, "PNG", icc_profile=profiles.srgb()), SAME, ()),
    "a wide source that comes back in sRGB": (png(images.read_rgb(WIDE)), (WIDE,), ("identical",)),
    "the numbers of a wide source in sRGB": (png(SOURCE), (WIDE,), ()),
    "broken bytes that are their own source": (b"broken", (b"broken",), ("unreadable",)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_picture_has_the_flags_of_what_it_shows(case: str):
    picture, sources, flags = CASES[case]
    assert flags_of(picture, *sources) == flags
