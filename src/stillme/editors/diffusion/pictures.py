"""From what a pipeline computed to a picture, hiding nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class NotANumber(Exception):
    """A picture with pixels that have no value."""


def to_rgb(pixels: Any) -> NDArray[np.uint8]:
    """Floats between 0 and 1 as 8 bits. Casting would turn NaN into black in silence."""
    values = np.asarray(pixels, dtype=np.float32)
    broken = ~np.isfinite(values)
    if broken.any():
        raise NotANumber(f"{broken.any(axis=-1).mean():.0%} of the pixels are not numbers")
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
