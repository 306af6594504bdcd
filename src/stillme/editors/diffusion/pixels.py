"""Convert a pipeline's float pixels to 8 bits without hiding invalid ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class NotFinite(Exception):
    """Pixels that are NaN or infinite."""


def to_rgb(pixels: Any) -> NDArray[np.uint8]:
    """Floats between 0 and 1 as 8 bits. A plain cast would silently turn NaN into black."""
    import numpy as np

    values = np.asarray(pixels, dtype=np.float32)
    invalid = ~np.isfinite(values)
    if invalid.any():
        raise NotFinite(f"{invalid.any(axis=-1).mean():.0%} of the pixels are not numbers")
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
