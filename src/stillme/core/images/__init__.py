"""Read pictures that come from anywhere, and write the ones we make.

Nearly every plugin names this module, and few commands look at a picture: numpy and Pillow come with the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.core.images.coding import (
        MAX_PIXELS,
        check,
        colour_problem,
        encode_png,
        encode_webp,
        has_transparency,
        read_picture,
        read_rgb,
        read_source,
    )

__all__ = [
    "MAX_PIXELS",
    "check",
    "colour_problem",
    "encode_png",
    "encode_webp",
    "has_transparency",
    "read_picture",
    "read_rgb",
    "read_source",
]

__getattr__ = deferred(__name__, coding=__all__)
