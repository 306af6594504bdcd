"""Picture files that several tests need."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stillme.core.types import ImageFile


def encoded(picture: Image.Image | NDArray[np.uint8], kind: str = "PNG", **options: object) -> bytes:
    """A picture as a file."""
    buffer = io.BytesIO()
    shown = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    shown.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(file: Path, width: int = 64, height: int = 64, *, seed: int = 0) -> ImageFile:
    """A picture of no one."""
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)).save(file)
    return ImageFile.of(file)


def turned() -> Image.Exif:
    """What a camera says that was held upright: the stored picture lies on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def on_its_side(folder: Path) -> ImageFile:
    """A file of 8 × 4 pixels that shows 4 × 8."""
    file = folder / "turned.jpg"
    file.write_bytes(encoded(Image.new("RGB", (8, 4)), "JPEG", exif=turned()))
    return ImageFile.of(file)


def animated() -> bytes:
    """Two pictures in one file."""
    first, second = (Image.new("RGB", (80, 72), colour) for colour in ("red", "blue"))
    return encoded(first, "GIF", save_all=True, append_images=[second])


def bomb(side: int = 40_000) -> bytes:
    """A picture of as many pixels each way, announced in a file of a few bytes."""
    data = bytearray(encoded(Image.new("RGB", (80, 72))))
    data[16:24] = side.to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)
