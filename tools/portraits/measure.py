# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a finished picture: the skin's colour, and the exposure of what is not skin."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .colour import individual_typology_angle, linear_to_lab, nearest_monk_tone, srgb_to_linear


def _rounded(values: np.ndarray, digits: int = 2) -> list[float]:
    return [round(float(value), digits) for value in values]


def skin_lab(pixels: np.ndarray, patches: Sequence[dict[str, Any]]) -> np.ndarray:
    """CIELAB of cheeks and forehead: the median in linear light, which highlights and moles cannot move."""
    size = pixels.shape[0]
    samples = []
    for patch in patches:
        rows = slice(int(patch["top"] * size), int(patch["bottom"] * size) + 1)
        columns = slice(int(patch["left"] * size), int(patch["right"] * size) + 1)
        samples.append(np.median(srgb_to_linear(pixels[rows, columns].reshape(-1, 3) / 255), axis=0))
    # Every patch counts alike, so that side light is averaged rather than weighted by area.
    return linear_to_lab(np.mean(samples, axis=0))


def measure_picture(pixels: np.ndarray, coverage: np.ndarray, patches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    size = pixels.shape[0]
    lab = skin_lab(pixels, patches)
    linear = srgb_to_linear(pixels / 255)
    open_wall = coverage < 0.004
    # The lower corners show shoulders: the same cloth under the same light in a whole cell.
    low = int(0.95 * size)
    shoulders = np.concatenate(
        [
            linear[low:, int(0.04 * size) : int(0.15 * size)].reshape(-1, 3),
            linear[low:, int(0.85 * size) : int(0.96 * size)].reshape(-1, 3),
        ]
    )
    return {
        "skin_lab": _rounded(lab),
        "ita": round(individual_typology_angle(lab), 2),
        "monk_nearest": nearest_monk_tone(lab),
        "background_lab": _rounded(
            linear_to_lab(np.median(linear[: int(0.16 * size)][open_wall[: int(0.16 * size)]], axis=0))
        ),
        "background_share": round(float(open_wall.mean()), 4),
        "garment_lab": _rounded(linear_to_lab(np.median(shoulders, axis=0))),
    }
