"""The page's thumbnails: each picture once, as many as the page has room for, redacted if asked."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

from PIL import Image

from stillme.core import images
from stillme.core.errors import UnreadableImage
from stillme.core.types import Redaction

WIDTH = 128
QUALITY = 62
PATCHES = 10
"""Width of a blurred portrait in patches: skin and clothes keep their colour, no face can be recognised."""

TILES_ACROSS = 24
_TILE = 40
_BATCH = 64

Locate = Callable[[str], Path | None]
"""From a picture's SHA-256 to its file; it may have to come from another machine."""


class Thumbnails:
    """Thumbnails by the hash of the picture, within a budget of bytes; what does not fit is left out."""

    def __init__(self, redact: Redaction, budget: int) -> None:
        self._redact: Redaction = redact
        self._left = 0 if redact == "omit" else budget
        self._index: dict[str, int] = {}
        self._pictures: list[bytes] = []

    def add(self, hashes: Iterable[str], locate: Locate) -> None:
        """Add pictures, the most important first, until the budget is spent; no other is asked for."""
        missing = [sha256 for sha256 in dict.fromkeys(hashes) if sha256 and sha256 not in self._index]
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(missing), _BATCH):
                if self._left <= 0:
                    return
                batch = missing[start : start + _BATCH]
                encoded = pool.map(partial(_located, locate, self._redact), batch)
                for sha256, picture in zip(batch, encoded, strict=True):
                    self._keep(sha256, picture)

    def index(self, sha256: str) -> int | None:
        """The picture's index in `contents`; None if it is not there."""
        return self._index.get(sha256)

    @property
    def contents(self) -> list[str]:
        """Every thumbnail, as base64."""
        return [base64.b64encode(picture).decode("ascii") for picture in self._pictures]

    def _keep(self, sha256: str, picture: bytes) -> None:
        size = -(-len(picture) // 3) * 4
        if picture and size <= self._left:
            self._left -= size
            self._index[sha256] = len(self._pictures)
            self._pictures.append(picture)


@lru_cache(maxsize=4096)
def encode(path: Path, redact: Redaction, width: int = WIDTH) -> bytes:
    """One picture as a small WebP; empty where it may not be shown or cannot be read.

    Cached, because a page that is served live is rendered again and again with mostly the same pictures.
    """
    if redact == "omit":
        return b""
    try:
        picture = images.read_picture(path)
    except UnreadableImage:
        return b""
    if redact == "blur":
        return images.encode_webp(picture, width=PATCHES, quality=80)
    return images.encode_webp(picture, width=width, quality=QUALITY)


def data_uri(path: Path | None, redact: Redaction, width: int = 160) -> str:
    """One picture inside the page itself; empty where there is none."""
    return _data_uri(encode(path, redact, width)) if path is not None else ""


def mosaic(hashes: Sequence[str], locate: Locate, redact: Redaction) -> bytes:
    """Many pictures as one WebP, edge to edge (the paper's Figure 12); empty where they fill no row."""
    with ThreadPoolExecutor() as pool:
        tiles = [tile for tile in pool.map(partial(_tile, locate, redact), hashes) if tile]
    rows = len(tiles) // TILES_ACROSS
    if not rows:
        return b""
    sheet = Image.new("RGB", (TILES_ACROSS * _TILE, rows * _TILE))
    for index, tile in enumerate(tiles[: rows * TILES_ACROSS]):
        sheet.paste(tile, (index % TILES_ACROSS * _TILE, index // TILES_ACROSS * _TILE))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=60, method=4)
    return buffer.getvalue()


def mosaic_uri(hashes: Sequence[str], locate: Locate, redact: Redaction) -> str:
    """The mosaic inside the page itself."""
    return _data_uri(mosaic(hashes, locate, redact))


def _located(locate: Locate, redact: Redaction, sha256: str) -> bytes:
    path = locate(sha256) if redact != "omit" else None
    return encode(path, redact) if path is not None else b""


def _tile(locate: Locate, redact: Redaction, sha256: str) -> Image.Image | None:
    encoded = _located(locate, redact, sha256)
    if not encoded:
        return None
    picture = images.read_picture(encoded)
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side)).resize((_TILE, _TILE))


def _data_uri(picture: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(picture).decode('ascii')}" if picture else ""
