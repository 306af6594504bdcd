"""Accept a candidate's picture as it is, or say in one sentence why not."""

from __future__ import annotations

import io
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from stillme import images
from stillme.errors import UnreadableImage

SMALLEST = 64
"""Pixels of the shorter side; less cannot show a face."""
_FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "TIFF": ".tif", "BMP": ".bmp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A picture that can be used."""

    suffix: str
    width: int
    height: int


def inspect(data: bytes, name: str) -> Inspected:
    """Decode a file once. Animated, too large, too small and CMYK pictures are refused."""
    try:
        # The header; `read_rgb` below decodes.
        with Image.open(io.BytesIO(data)) as picture:
            kind, mode = picture.format or "", picture.mode
            width, height = picture.size
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning, OSError):
        kind, mode, width, height = "", "", SMALLEST, SMALLEST  # read_rgb below reports the reason
    if mode == "CMYK":
        raise UnreadableImage(f"{name} is in CMYK, where skin has no defined colour; convert it to RGB.")
    images.read_rgb(data, name=name)
    if kind not in _FORMATS:
        raise UnreadableImage(f"{name} is {kind}; portraits are {', '.join(_FORMATS)}.")
    if min(width, height) < SMALLEST:
        raise UnreadableImage(f"{name} has {width}×{height} pixels; at least {SMALLEST} each way are needed.")
    return Inspected(suffix=_FORMATS[kind], width=width, height=height)
