"""Pictures by the hash of their bytes: written whole or not at all, each kept once."""

from __future__ import annotations

import hashlib
from pathlib import Path

from stillme.files import write_whole
from stillme.types import ImageFile

_SUFFIXES = (".png", ".webp", ".jpg", ".bin")


class Pictures:
    """A folder of images named by SHA-256. Any number of threads and processes may add at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, data: bytes) -> str:
        """Keep the bytes and return their hash. On return they are on disk under their final name."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.find(sha256) is None:
            self._write(data, self._path(sha256, _suffix(data)))
        return sha256

    def take(self, image: ImageFile) -> None:
        """Keep a copy of a file, if it is still the one of its hash; what is here is not read again."""
        if self.find(image.sha256) is None and image.path.is_file():
            data = image.read()
            if hashlib.sha256(data).hexdigest() == image.sha256:
                self._write(data, self._path(image.sha256, _suffix(data)))

    def where(self, sha256: str) -> Path:
        """Where the file of that hash is, or would be."""
        return self.find(sha256) or self._path(sha256, ".png")

    def find(self, sha256: str) -> Path | None:
        """The file of that hash, if it is here."""
        candidates = (self._path(sha256, suffix) for suffix in _SUFFIXES)
        return next((path for path in candidates if path.exists()), None)

    def _path(self, sha256: str, suffix: str) -> Path:
        return self.folder / sha256[:2] / f"{sha256}{suffix}"

    def _write(self, data: bytes, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A row that names this picture is committed later; after a power cut it must not point at nothing.
        write_whole(path, data)


def _suffix(data: bytes) -> str:
    if data.startswith(b"\x89PNG"):
        return ".png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    if data.startswith(b"\xff\xd8"):
        return ".jpg"
    return ".bin"
