"""Blind the pictures: one format, one size in pixels and in bytes, no metadata, no telling name."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FOLDER = "pictures"
SIDE = 768
QUALITY = 92
_BLOCK = 4096


class Blinded:
    """A folder of blinded pictures. `seal` makes them all equally long once the last is in."""

    def __init__(self, study: Path, side: int = SIDE) -> None:
        self.folder = study / FOLDER
        self._side = side

    def add(self, rgb: NDArray[np.uint8]) -> str:
        """Keep a blinded copy and return its file name."""
        data = blind(rgb, self._side)
        name = hashlib.sha256(data).hexdigest()[:32] + ".jpg"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / name).exists():
            partial = self.folder / f".{name}.partial"
            partial.write_bytes(data)
            partial.replace(self.folder / name)
        return name

    def seal(self) -> int:
        """Fill every file up to the length of the longest: the size of a file would tell how much is in it."""
        files = [path for path in self.folder.iterdir() if path.suffix == ".jpg"]
        longest = max(path.stat().st_size for path in files)
        length = -(-longest // _BLOCK) * _BLOCK
        for path in files:
            # Decoders stop at the end-of-image marker; what follows is not looked at.
            with path.open("ab") as stream:
                stream.truncate(length)
        return length


def blind(rgb: NDArray[np.uint8], side: int) -> bytes:
    """A square JPEG without chroma subsampling, the picture in its middle on neutral grey."""
    picture = Image.fromarray(rgb)
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    canvas = Image.new("RGB", (side, side), (128, 128, 128))
    canvas.paste(picture.resize(size, Image.Resampling.LANCZOS), ((side - size[0]) // 2, (side - size[1]) // 2))
    buffer = io.BytesIO()
    canvas.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return buffer.getvalue()
