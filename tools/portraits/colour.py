# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert between sRGB, linear light and CIELAB; name a skin colour by ITA and Monk tone."""

import math

import numpy as np

_RGB_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_XYZ_TO_RGB = np.linalg.inv(_RGB_TO_XYZ)
_WHITE = np.array([0.95047, 1.0, 1.08883])
_EPSILON, _KAPPA = 216 / 24389, 24389 / 27

# Ellis Monk's ten tones as published on skintone.google (display colours).
MONK_HEX = ("f6ede4", "f3e7db", "f7ead0", "eadaba", "d7bd96", "a07e56", "825c43", "604134", "3a312a", "292420")


def srgb_to_linear(srgb: np.ndarray) -> np.ndarray:
    srgb = np.asarray(srgb, float)
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def linear_to_srgb(linear: np.ndarray) -> np.ndarray:
    linear = np.clip(np.asarray(linear, float), 0, None)
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * np.maximum(linear, 1e-12) ** (1 / 2.4) - 0.055)


def linear_to_lab(linear: np.ndarray) -> np.ndarray:
    xyz = np.asarray(linear, float) @ _RGB_TO_XYZ.T / _WHITE
    f = np.where(xyz > _EPSILON, np.cbrt(np.maximum(xyz, 1e-12)), (_KAPPA * xyz + 16) / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1)


def lab_to_linear(lab: np.ndarray) -> np.ndarray:
    lab = np.asarray(lab, float)
    fy = (lab[..., 0] + 16) / 116
    f = np.stack([fy + lab[..., 1] / 500, fy, fy - lab[..., 2] / 200], -1)
    xyz = np.where(f**3 > _EPSILON, f**3, (116 * f - 16) / _KAPPA) * _WHITE
    return np.clip(xyz @ _XYZ_TO_RGB.T, 0, None)


def srgb_to_lab(srgb: np.ndarray) -> np.ndarray:
    return linear_to_lab(srgb_to_linear(srgb))


def hex_to_srgb(code: str) -> np.ndarray:
    return np.array([int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)])


_MONK_LAB = srgb_to_lab(np.array([hex_to_srgb(code) for code in MONK_HEX]))


def individual_typology_angle(lab: np.ndarray) -> float:
    """ITA in degrees: above 55 very light, below -30 dark (Chardon et al., 1991)."""
    return math.degrees(math.atan2(float(lab[0]) - 50, float(lab[2])))


def nearest_monk_tone(lab: np.ndarray) -> int:
    """The Monk tone (1-10) nearest in CIELAB. For display only: the steps are coarse and uneven."""
    return int(np.argmin(((_MONK_LAB - np.asarray(lab)) ** 2).sum(1))) + 1
