"""sRGB, linear light and CIELAB (D65), in numpy."""

from __future__ import annotations

from functools import cache
from math import radians

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RGB_TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ],
    dtype=np.float32,
)
WHITE = np.array([0.95047, 1.0, 1.08883], dtype=np.float32)
_EPSILON = 216 / 24389
_KAPPA = 24389 / 27


def to_linear(rgb: NDArray[np.uint8]) -> Floats:
    """8-bit sRGB to linear light in 0..1."""
    return _linear_of_byte()[rgb]


def to_srgb(linear: Floats) -> NDArray[np.uint8]:
    """Linear light to 8-bit sRGB; what does not fit the gamut is clipped."""
    x = np.clip(linear, 0.0, 1.0)
    encoded = np.where(x <= 0.0031308, 12.92 * x, 1.055 * np.power(x, 1 / 2.4) - 0.055)
    return np.round(encoded * 255).astype(np.uint8)


def linear_to_lab(linear: Floats) -> Floats:
    """Linear RGB (last axis) to CIELAB."""
    xyz = linear @ RGB_TO_XYZ.T
    xyz /= WHITE
    f = np.where(xyz > _EPSILON, np.cbrt(xyz), (_KAPPA * xyz + 16) / 116)
    x, y, z = f[..., 0], f[..., 1], f[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1).astype(np.float32, copy=False)


def lightness(linear: Floats) -> Floats:
    """L* of linear RGB (last axis), without the other two."""
    y: Floats = linear @ RGB_TO_XYZ[1]
    return np.where(y > _EPSILON, 116 * np.cbrt(y) - 16, _KAPPA * y).astype(np.float32)


def lab_to_linear(lab: Floats) -> Floats:
    """CIELAB to linear RGB, unclipped."""
    y = (lab[..., 0] + 16) / 116
    f = np.stack([y + lab[..., 1] / 500, y, y - lab[..., 2] / 200], axis=-1)
    cubes = f * f * f  # a general power is ten times slower
    xyz = np.where(cubes > _EPSILON, cubes, (116 * f - 16) / _KAPPA) * WHITE
    return (xyz @ np.linalg.inv(RGB_TO_XYZ).T).astype(np.float32)


def to_lab(rgb: NDArray[np.uint8]) -> Floats:
    """8-bit sRGB to CIELAB."""
    return linear_to_lab(to_linear(rgb))


def delta_e(a: Floats, b: Floats) -> Floats:
    """CIEDE2000 between CIELAB colours (last axis); 1 is about the smallest visible difference."""
    c_a, c_b = np.hypot(a[..., 1], a[..., 2]), np.hypot(b[..., 1], b[..., 2])
    c7 = _seventh((c_a + c_b) / 2)
    stretch = 1.5 - 0.5 * np.sqrt(c7 / (c7 + 25.0**7))
    red_a, red_b = a[..., 1] * stretch, b[..., 1] * stretch
    chroma_a, chroma_b = np.hypot(red_a, a[..., 2]), np.hypot(red_b, b[..., 2])
    hue_a, hue_b = np.arctan2(a[..., 2], red_a), np.arctan2(b[..., 2], red_b)
    grey = chroma_a * chroma_b == 0
    apart = hue_b - hue_a
    turn = np.where(grey, 0.0, apart - 2 * np.pi * np.rint(apart / (2 * np.pi)))
    hue = np.where(grey, hue_a + hue_b, hue_a + turn / 2)
    light = (a[..., 0] + b[..., 0]) / 2
    chroma = (chroma_a + chroma_b) / 2
    tilt = (
        1
        - 0.17 * np.cos(hue - radians(30))
        + 0.24 * np.cos(2 * hue)
        + 0.32 * np.cos(3 * hue + radians(6))
        - 0.20 * np.cos(4 * hue - radians(63))
    )
    off = (light - 50) ** 2
    d_light = (b[..., 0] - a[..., 0]) / (1 + 0.015 * off / np.sqrt(20 + off))
    d_chroma = (chroma_b - chroma_a) / (1 + 0.045 * chroma)
    d_hue = 2 * np.sqrt(chroma_a * chroma_b) * np.sin(turn / 2) / (1 + 0.015 * chroma * tilt)
    chroma7 = _seventh(chroma)
    off_blue = (np.where(hue < 0, hue + 2 * np.pi, hue) - radians(275)) / radians(25)
    blue = np.exp(-np.minimum(off_blue * off_blue, 60))  # smaller powers vanish in the sum, and are slow to compute
    swing = -2 * np.sqrt(chroma7 / (chroma7 + 25.0**7)) * np.sin(radians(60) * blue)
    total = d_light**2 + d_chroma**2 + d_hue**2 + swing * d_chroma * d_hue
    return np.sqrt(np.maximum(total, 0)).astype(np.float32)


def _seventh(x: NDArray[np.floating]) -> NDArray[np.floating]:
    square = x * x  # a general power is ten times slower
    return square * square * square * x


@cache
def _linear_of_byte() -> Floats:
    x = np.arange(256, dtype=np.float32) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4).astype(np.float32)
