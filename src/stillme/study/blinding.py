"""Blind the pictures: one format, one size in pixels and in bytes, no metadata, names that tell nothing."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stillme.files import write_whole

FOLDER = "pictures"
SIDE = 768
QUALITY = 92
_BLOCK = 4096


class BlindedPictures:
    """A folder of blinded pictures. Call `pad` after the last one, so that all files are equally long."""

    def __init__(self, study: Path, side: int = SIDE) -> None:
        self.folder = study / FOLDER
        self._side = side

    def add(self, rgb: NDArray[np.uint8]) -> str:
        """Keep a blinded copy and return its file name."""
        data = blind(rgb, self._side)
        name = hashlib.sha256(data).hexdigest()[:32] + ".jpg"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / name).exists():
            write_whole(self.folder / name, data)
        return name

    def pad(self) -> int:
        """Pad every file to the length of the longest: a file's size would tell how much is in the picture."""
        files = [path for path in self.folder.iterdir() if path.suffix == ".jpg"]
        longest = max(path.stat().st_size for path in files)
        length = -(-longest // _BLOCK) * _BLOCK
        for path in files:
            # Decoders stop at the end-of-image marker and ignore what follows.
            with path.open("ab") as stream:
                stream.truncate(length)
        return length


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFormat:
    """What all pictures of a study have in common."""

    side: int
    """Pixels."""
    length: int
    """Bytes."""


@cache
def format_of(folder: Path) -> PictureFormat:
    """The format of the blinded pictures in `folder`, which `BlindedPictures` made alike."""
    file = next(path for path in folder.iterdir() if path.suffix == ".jpg")
    with Image.open(file) as picture:
        return PictureFormat(side=picture.width, length=file.stat().st_size)


def blind(rgb: NDArray[np.uint8], side: int) -> bytes:
    """A square JPEG without chroma subsampling, the picture centred on neutral grey."""
    picture = Image.fromarray(rgb)
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    canvas = Image.new("RGB", (side, side), (128, 128, 128))
    canvas.paste(picture.resize(size, Image.Resampling.LANCZOS), ((side - size[0]) // 2, (side - size[1]) // 2))
    buffer = io.BytesIO()
    canvas.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return buffer.getvalue()
