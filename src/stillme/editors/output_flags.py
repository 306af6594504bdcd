"""Flag odd pictures that an editor returns, before any judge rates them.

A flagged picture is kept: a black frame or an untouched portrait is a result, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core import images
from stillme.core.errors import UnreadableImage

Flag = Literal["unreadable", "black", "uniform", "identical", "unreadable colour profile"]

_BLACK = 12
"""Highest level in a black frame: JPEG does not keep zero exactly."""
_UNIFORM = 4
"""Largest range of levels in one channel that counts as one colour."""
_STRAY = 0.001
"""Share of pixels at either end that is ignored, such as a watermark's dot."""


def flags_of(image: bytes, *sources: bytes) -> tuple[Flag, ...]:
    """What is odd about a returned picture; usually nothing.

    `black` is a special case of `uniform` and stands alone. `identical` means the same pixels as a source, in whatever
    file format; a picture that merely looks the same is for the judges. `unreadable colour profile` means that the file
    names colours that could not be read, so that the picture was taken for sRGB.
    """
    if image in sources:
        return _untouched(image)
    try:
        rgb = images.read_rgb(image)
    except UnreadableImage:
        return ("unreadable",)
    identical = any(_same(rgb, source) for source in sources)
    return (*_frame(rgb), *(("identical",) if identical else ()), *_profile(image))


@lru_cache(maxsize=32)
def _untouched(image: bytes) -> tuple[Flag, ...]:
    """The flags of a source that came back byte for byte; such an editor does so for many prompts, hence the cache."""
    try:
        return (*_frame(images.read_rgb(image)), "identical", *_profile(image))
    except UnreadableImage:
        return ("unreadable",)


def _frame(rgb: NDArray[np.uint8]) -> tuple[Flag, ...]:
    levels = rgb.reshape(-1, 3)
    # A few hundred pixels clear most pictures.
    sample = levels[:: max(1, len(levels) // 512)].astype(np.int16)
    if float((np.abs(sample - np.median(sample, axis=0)).max(axis=1) > 8 * _UNIFORM).mean()) > 0.05:
        return ()
    low, high = np.quantile(levels, (_STRAY, 1 - _STRAY), axis=0)
    if float(high.max()) <= _BLACK:
        return ("black",)
    return ("uniform",) if float((high - low).max()) <= _UNIFORM else ()


def _profile(image: bytes) -> tuple[Flag, ...]:
    return ("unreadable colour profile",) if images.colour_problem(image) else ()


def _same(rgb: NDArray[np.uint8], source: bytes) -> bool:
    try:
        return np.array_equal(rgb, images.read_source(source))
    except UnreadableImage:
        return False
