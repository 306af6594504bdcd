"""Resize, warp and draw: the few OpenCV calls we need, typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]
Pixels = TypeVar("Pixels", Picture, Floats)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Give `pixels` another size; every old pixel counts when shrinking."""
    import cv2

    if pixels.shape[:2] == (height, width):
        return pixels
    shrinks = width * height < pixels.shape[0] * pixels.shape[1]
    mode = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cast("Pixels", cv2.resize(pixels, (width, height), interpolation=mode))


def fit(pixels: Pixels, longest: int) -> Pixels:
    """Shrink `pixels` until its longer side is at most `longest`; never enlarge."""
    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    return resize(pixels, max(round(width * scale), 1), max(round(height * scale), 1))


def warp(pixels: Pixels, matrix: NDArray[np.floating], width: int, height: int) -> Pixels:
    """Move `pixels` by a 2×3 matrix into a frame of that size; what lies outside is black."""
    import cv2

    return cast("Pixels", cv2.warpAffine(pixels, matrix.astype(np.float64), (width, height), flags=cv2.INTER_LINEAR))


def inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undo a 2×3 matrix."""
    turn = np.linalg.inv(matrix[:, :2])
    return np.hstack([turn, -turn @ matrix[:, 2:]]).astype(np.float64)


def blur(pixels: Pixels, sigma: float) -> Pixels:
    """Smooth `pixels` with a Gaussian."""
    import cv2

    return cast("Pixels", cv2.GaussianBlur(pixels, (0, 0), sigma))


def polygon(points: NDArray[np.floating], shape: Sequence[int]) -> Mask:
    """Fill the inside of a closed line, in a picture of that shape."""
    import cv2

    canvas = np.zeros((shape[0], shape[1]), dtype=np.uint8)
    cv2.fillPoly(canvas, [np.round(points).astype(np.int32)], 1)
    return canvas.astype(np.bool_)


def hull(points: Floats) -> Floats:
    """Stretch a line around `points`."""
    import cv2

    return np.asarray(cast("Any", cv2.convexHull(points)), dtype=np.float32).reshape(-1, 2)


def disc(centre: Sequence[float] | Floats, radius: float, shape: Sequence[int]) -> Mask:
    """Fill a circle, in a picture of that shape."""
    import cv2

    canvas = np.zeros((shape[0], shape[1]), dtype=np.uint8)
    cv2.circle(canvas, (int(centre[0]), int(centre[1])), max(1, int(radius)), 1, -1)
    return canvas.astype(np.bool_)


def grow(mask: Mask, by: float) -> Mask:
    """Move the edge of `mask` outwards, or inwards when `by` is negative, by so many pixels (at least one)."""
    import cv2

    reach = 2 * max(1, int(abs(by))) + 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
    change = cv2.dilate if by > 0 else cv2.erode
    return change(mask.astype(np.uint8), kernel).astype(np.bool_)
