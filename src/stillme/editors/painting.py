"""Move colours in CIELAB by tables: the same bytes on every processor, and memory that the picture's size does not set.

`stillme.core.colour` measures; its powers and roots differ in the last digit between processors. Here a last digit
could decide an 8-bit value, and with it a picture's hash.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import RGB_TO_XYZ, WHITE, Floats

Lab = tuple[float, float, float]
Pixels = NDArray[np.uint8]
"""Rows of R, G, B."""

_TO_XYZ = RGB_TO_XYZ.astype(np.float64) / WHITE.astype(np.float64)[:, None]
"""From linear sRGB, as a share of the white point D65."""
_FROM_XYZ = np.linalg.inv(_TO_XYZ)
_FINE = 65535
"""Steps of a table. One is less than a hundredth of L*."""
_AT_ONCE = 16384
"""Pixels whose numbers fit the processor's cache together."""


def lab_of(pixels: Pixels) -> Floats:
    """CIELAB of each pixel."""
    lab = np.empty((len(pixels), 3), dtype=np.float32)
    for some in _parts(len(pixels)):
        x, y, z = _roots(pixels[some])
        lab[some, 0] = 116 * y - 16
        lab[some, 1] = 500 * (x - y)
        lab[some, 2] = 200 * (y - z)
    return lab


def move(pixels: Pixels, lighter: Floats | None, weights: Floats | None, by: Lab) -> None:
    """Change each pixel in place: `lighter` L* units, and its weight's share of the way `by`."""
    away = by[0] / 116 + by[1] / 500, by[0] / 116, by[0] / 116 - by[2] / 200
    for some in _parts(len(pixels)):
        roots = _roots(pixels[some])
        for root, step in zip(roots, away, strict=True):
            if weights is not None:
                root += np.float32(step) * weights[some]
            if lighter is not None:
                root += lighter[some] * np.float32(1 / 116)
        pixels[some] = _srgb(roots)


def _parts(count: int) -> list[slice]:
    return [slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE)]


def _roots(pixels: Pixels) -> list[Floats]:
    """CIELAB's f of X, Y and Z, which its coordinates are sums of."""
    red, green, blue = (_linear_of_byte().take(pixels[:, channel]) for channel in range(3))
    return [_root_of_share().take(_places(_mixed(row, red, green, blue))) for row in _TO_XYZ.astype(np.float32)]


def _srgb(roots: list[Floats]) -> Pixels:
    shares = [np.where(cube > np.float32(216 / 24389), cube, _near_black(f)) for f in roots for cube in [f * f * f]]
    channels = [_byte_of_linear().take(_places(_mixed(row, *shares))) for row in _FROM_XYZ.astype(np.float32)]
    return np.stack(channels, axis=-1)


def _near_black(root: Floats) -> Floats:
    return (np.float32(116) * root - np.float32(16)) * np.float32(27 / 24389)


def _mixed(row: Floats, a: Floats, b: Floats, c: Floats) -> Floats:
    # Not a matrix product, whose order of adding is the library's.
    one, two, three = row
    return one * a + two * b + three * c


def _places(shares: Floats) -> NDArray[np.intp]:
    """Where in a table these are; what does not fit the gamut is clipped."""
    return (np.clip(shares, 0, 1) * np.float32(_FINE) + np.float32(0.5)).astype(np.intp)


@cache
def _linear_of_byte() -> Floats:
    x = np.arange(256) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4).astype(np.float32)


@cache
def _root_of_share() -> Floats:
    x = np.arange(_FINE + 1) / _FINE
    return np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116).astype(np.float32)


@cache
def _byte_of_linear() -> NDArray[np.uint8]:
    x = np.arange(_FINE + 1) / _FINE
    return np.round(255 * np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)).astype(np.uint8)
