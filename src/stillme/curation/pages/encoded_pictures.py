"""Candidates' pictures for the page: re-encoded, so that neither file names nor metadata reach the browser."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from stillme import images
from stillme.curation.pools import Pools

Size = Literal["small", "large"]
_SIZES: dict[Size, tuple[int, int]] = {"small": (480, 82), "large": (1600, 92)}
"""Pixels and WebP quality."""


class EncodedPictures:
    """Candidates' pictures as WebP, cached."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._encoded = lru_cache(maxsize=400)(self._encode)

    def webp(self, candidate: str, size: Size) -> bytes:
        """One candidate's picture; raises `KeyError` for an unknown one."""
        return self._encoded(candidate, size)

    def _encode(self, candidate: str, size: Size) -> bytes:
        width, quality = _SIZES[size]
        return images.encode_webp(images.read_picture(self._pools.by_id[candidate].path), width=width, quality=quality)
