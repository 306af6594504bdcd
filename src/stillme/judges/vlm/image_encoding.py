"""Images as a model gets them: upright, downscaled, encoded once however often and to whomever they are sent."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import NamedTuple

from PIL import Image

from stillme.core import images
from stillme.core.images.sending import EncodedImage
from stillme.core.types import ImageFile

_CACHE_BYTES = 256 * 2**20
_ENCODERS = threading.BoundedSemaphore(os.cpu_count() or 1)
"""More encoders than cores would only starve the thread that talks to the provider."""


class _Key(NamedTuple):
    sha256: str
    side: int
    quality: int


class ImageEncoder:
    """Encodes each image once and caches the most recent ones, by the hash of the file."""

    def __init__(self, *, cache_bytes: int = _CACHE_BYTES) -> None:
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[_Key, Future[EncodedImage]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.misses = 0
        """How many images were encoded rather than taken from the cache."""

    def encode(self, image: ImageFile, *, side: int, quality: int) -> EncodedImage:
        """The image as it is sent; raises `UnreadableImage` if the file is none.

        Many prompts of one portrait come at the same moment, so the second caller waits for the first one's result.
        """
        key, mine = _Key(image.sha256, side, quality), Future[EncodedImage]()
        with self._lock:
            cached = self._cache.setdefault(key, mine)
            self._cache.move_to_end(key)
        if cached is not mine:
            return cached.result()
        try:
            encoded = _encoded(image, side, quality)
        except BaseException as error:
            with self._lock:
                self._cache.pop(key, None)
            mine.set_exception(error)
            raise
        mine.set_result(encoded)
        self._make_room(len(encoded.data))
        return encoded

    def _make_room(self, added: int) -> None:
        with self._lock:
            self.misses += 1
            self._bytes += added
            for key in list(self._cache)[:-1]:
                if self._bytes <= self._cache_bytes:
                    break
                if self._cache[key].done():
                    self._bytes -= len(self._cache.pop(key).result().data)


SHARED = ImageEncoder()
"""Of all models of this process: two judges look at the same portraits."""


def _encoded(image: ImageFile, side: int, quality: int) -> EncodedImage:
    with _ENCODERS:
        picture = images.read_picture(image.path)
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        # Comments and colour profiles are not part of what is judged.
        picture.info.clear()
        buffer = io.BytesIO()
        # No chroma subsampling: it would alter skin tones.
        picture.save(buffer, "JPEG", quality=quality, subsampling=0)
    return EncodedImage(data=buffer.getvalue(), mime="image/jpeg", size=picture.size)
