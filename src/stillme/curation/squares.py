"""Crop a picture to a square of the size that audits use. Nothing is invented: no edges are extended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from stillme import faces
from stillme.faces.raster import Picture, fit

SIZE = 1024
"""Pixels each way, as in the paper."""

Crop = Literal["face", "centre"]
METHODS: dict[Crop, str] = {
    "face": "the largest square within the picture whose centre is nearest to the face's",
    "centre": "the largest square in the middle of the picture",
}
RESIZING = "Lanczos on 8-bit sRGB"
_DETECTION_SIDE = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Square:
    """A picture made square."""

    rgb: Picture
    box: tuple[int, int, int]
    """Left, top and side of the crop, in the source's pixels."""
    enlarged: float
    """Pixels of the result per pixel of the source, one way; above 1 no detail was added."""
    method: str
    """`centre` also where a face was looked for and none was found."""


def make_square(rgb: Picture, crop: Crop, size: int = SIZE) -> Square:
    """Crop and resize one picture."""
    height, width = rgb.shape[:2]
    side = min(height, width)
    middle = _face_centre(rgb) if crop == "face" else None
    x, y = middle or (width / 2, height / 2)
    left = int(np.clip(round(x - side / 2), 0, width - side))
    top = int(np.clip(round(y - side / 2), 0, height - side))
    part = Image.fromarray(rgb[top : top + side, left : left + side])
    resized = part if side == size else part.resize((size, size), Image.Resampling.LANCZOS)
    return Square(
        rgb=np.asarray(resized),
        box=(left, top, side),
        enlarged=round(size / side, 3),
        method=crop if crop == "centre" or middle else "centre",
    )


def _face_centre(rgb: Picture) -> tuple[float, float] | None:
    small = fit(rgb, _DETECTION_SIDE)
    detected = faces.find(small)
    if not detected:
        return None
    scale = rgb.shape[1] / small.shape[1]
    x, y = detected[0].centre
    return x * scale, y * scale
