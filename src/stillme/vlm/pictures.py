"""Pictures as a model gets them: upright, downscaled, encoded once however often they are shown."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from PIL import Image

from stillme import images
from stillme.types import ImageFile

_HELD = 256 * 2**20
"""Bytes of encoded pictures that are kept."""
_AT_ONCE = threading.BoundedSemaphore(os.cpu_count() or 1)
"""More encoders than cores would only starve the thread that talks to the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded picture. Carries no file name: a name could tell the group."""

    data: bytes
    size: tuple[int, int]
    mime: str = "image/jpeg"


class Darkroom:
    """Encodes each picture once and keeps the most recent ones, by the hash of the file."""

    def __init__(self, side: int, quality: int, *, held: int = _HELD) -> None:
        self._side, self._quality, self._held = side, quality, held
        self._kept: OrderedDict[str, Future[Picture]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.encoded = 0
        """How many pictures were really encoded."""

    def develop(self, image: ImageFile) -> Picture:
        """The picture as it is sent; raises `UnreadableImage` for what is none.

        Twenty prompts of one portrait come at the same moment, so whoever is second waits for the first.
        """
        mine = Future[Picture]()
        with self._lock:
            known = self._kept.setdefault(image.sha256, mine)
            self._kept.move_to_end(image.sha256)
        if known is not mine:
            return known.result()
        try:
            made = self._encode(image)
        except BaseException as error:
            with self._lock:
                self._kept.pop(image.sha256, None)
            mine.set_exception(error)
            raise
        mine.set_result(made)
        self._make_room(len(made.data))
        return made

    def _make_room(self, more: int) -> None:
        with self._lock:
            self.encoded += 1
            self._bytes += more
            for key in list(self._kept)[:-1]:
                if self._bytes <= self._held:
                    break
                if self._kept[key].done():
                    self._bytes -= len(self._kept.pop(key).result().data)

    def _encode(self, image: ImageFile) -> Picture:
        with _AT_ONCE:
            picture = images.read_picture(image.path)
            picture.thumbnail((self._side, self._side), Image.Resampling.LANCZOS)
            # Comments and profiles are no part of what is judged.
            picture.info.clear()
            buffer = io.BytesIO()
            # No chroma subsampling: skin tone is.
            picture.save(buffer, "JPEG", quality=self._quality, subsampling=0)
        return Picture(data=buffer.getvalue(), size=picture.size)
