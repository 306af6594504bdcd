"""The page's thumbnails: each picture once, as many as the page has room for, redacted if asked."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from PIL import Image

from stillme import images
from stillme.errors import UnreadableImage
from stillme.report.data import Redaction

THUMBNAIL = 128
QUALITY = 62
PATCHES = 10
"""A blurred portrait is so many patches wide: skin and clothes keep their colour, nobody keeps a face."""

_AT_ONCE = 64
_TILE = 40
_ACROSS = 24

Wanted = tuple[str, Path | None]
"""A picture's SHA-256 and where it lies."""


class Album:
    """Thumbnails by the hash of the picture, within a budget of bytes. What does not fit is not there."""

    def __init__(self, redact: Redaction, budget: int) -> None:
        self._redact: Redaction = redact
        self._left = 0 if redact == "omit" else budget
        self._places: dict[str, int] = {}
        self._pictures: list[bytes] = []

    def add(self, wanted: Iterable[Wanted]) -> None:
        """Take in pictures, the most wanted first, until the budget is spent."""
        missing = dict[str, Path]()
        for name, path in wanted:
            if path is not None and name not in self._places:
                missing.setdefault(name, path)
        names = list(missing)
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(names), _AT_ONCE):
                if self._left <= 0:
                    return
                chunk = names[start : start + _AT_ONCE]
                made = pool.map(encode, [missing[name] for name in chunk], [self._redact] * len(chunk))
                for name, picture in zip(chunk, made, strict=True):
                    self._keep(name, picture)

    def place(self, name: str) -> int | None:
        """Where in `contents` a picture is, if it is."""
        return self._places.get(name)

    @property
    def contents(self) -> list[str]:
        """Every thumbnail, as base64."""
        return [base64.b64encode(picture).decode("ascii") for picture in self._pictures]

    def _keep(self, name: str, picture: bytes) -> None:
        size = -(-len(picture) // 3) * 4
        if picture and size <= self._left:
            self._left -= size
            self._places[name] = len(self._pictures)
            self._pictures.append(picture)


@lru_cache(maxsize=4096)
def encode(path: Path, redact: Redaction, width: int = THUMBNAIL) -> bytes:
    """One picture as a small WebP; empty where it may not be shown or cannot be read.

    Kept, because a page that is served live is written again and again with mostly the same pictures.
    """
    if redact == "omit":
        return b""
    try:
        rgb = images.read_rgb(path)
    except UnreadableImage:
        return b""
    if redact == "blur":
        return images.encode_webp(rgb, width=PATCHES, quality=80)
    return images.encode_webp(rgb, width=width, quality=QUALITY)


def uri(path: Path | None, redact: Redaction, width: int = 160) -> str:
    """One picture to stand in the page itself; empty where there is none."""
    return _as_uri(encode(path, redact, width)) if path is not None else ""


def mosaic(paths: Sequence[Path], redact: Redaction) -> str:
    """Many pictures as one, edge to edge (the paper's Figure 12)."""
    tiles = list(_tiles(paths, redact))
    tiles = tiles[: len(tiles) // _ACROSS * _ACROSS]
    if not tiles:
        return ""
    sheet = Image.new("RGB", (_ACROSS * _TILE, len(tiles) // _ACROSS * _TILE))
    for place, tile in enumerate(tiles):
        sheet.paste(tile, (place % _ACROSS * _TILE, place // _ACROSS * _TILE))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=60, method=4)
    return _as_uri(buffer.getvalue())


def from_uri(uri: str) -> bytes:
    """The picture behind a data URI of ours."""
    return base64.b64decode(uri.partition(",")[2])


def _tiles(paths: Sequence[Path], redact: Redaction) -> Iterator[Image.Image]:
    with ThreadPoolExecutor() as pool:
        for small in pool.map(encode, paths, [redact] * len(paths)):
            if small:
                with Image.open(io.BytesIO(small)) as picture:
                    yield _square(picture)


def _square(picture: Image.Image) -> Image.Image:
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side)).convert("RGB").resize((_TILE, _TILE))


def _as_uri(picture: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(picture).decode('ascii')}" if picture else ""
