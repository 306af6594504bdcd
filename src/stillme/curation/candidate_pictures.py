"""Accept a candidate's picture as it is, or say in one sentence why not."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from stillme import images
from stillme.errors import UnreadableImage
from stillme.faces.raster import Picture

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


def read_srgb(source: bytes | Path, *, name: str = "") -> Picture:
    """Decode to upright 8-bit sRGB. A colour profile in the file is applied, so that skin keeps its colour."""
    rgb = images.read_rgb(source, name=name)
    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as picture:
        profile = cast("dict[Any, Any]", picture.info).get("icc_profile")
        if not profile or picture.mode not in ("RGB", "RGBA"):
            return rgb
        upright = ImageOps.exif_transpose(picture).convert("RGB")
    # Pillow's types leave out what createProfile returns.
    cms: Any = ImageCms
    try:
        converted = cms.profileToProfile(
            upright, cms.ImageCmsProfile(io.BytesIO(profile)), cms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, OSError):
        # Viewers assume sRGB where the profile is damaged.
        return rgb
    return np.asarray(converted)
