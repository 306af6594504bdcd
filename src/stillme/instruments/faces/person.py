"""Separate the person from the background."""

from __future__ import annotations

import numpy as np

from stillme.instruments.faces.networks import network
from stillme.instruments.faces.raster import Floats, Picture, resize

_SIDE = 256


def person_mask(rgb: Picture) -> Floats:
    """The probability that a pixel belongs to the person (skin, hair, clothes), in the picture's own size."""
    height, width = rgb.shape[:2]
    small = resize(rgb, _SIDE, _SIDE)
    likely = network("selfie").run(small[None] / np.float32(255))[0].reshape(_SIDE, _SIDE)
    return np.clip(resize(likely, width, height), 0, 1)
