"""Resize, warp and draw: the few OpenCV calls we need, typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]
Pixels = TypeVar("Pixels", Picture, Floats)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Resize `pixels`; every old pixel counts when shrinking."""
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


def warp(
    pixels: Pixels, matrix: NDArray[np.float64], width: int, height: int, outside: Literal["black", "edge"] = "black"
) -> Pixels:
    """Move `pixels` by a 2×3 matrix into a frame of that size; outside is black, or the edge repeated."""
    import cv2

    border = cv2.BORDER_CONSTANT if outside == "black" else cv2.BORDER_REPLICATE
    scale = float(np.hypot(matrix[0, 0], matrix[1, 0]))
    if scale < 0.5:
        pixels, matrix = _shrunk(pixels, matrix, scale, width, height)
    return cast("Pixels", cv2.warpAffine(pixels, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=border))


def _shrunk(
    pixels: Pixels, matrix: NDArray[np.float64], scale: float, width: int, height: int
) -> tuple[Pixels, NDArray[np.float64]]:
    """Shrink the visible part first: shrinking to less than half in one step would skip pixels."""
    back = inverse(matrix)
    corners = np.array([[0, 0], [width, 0], [0, height], [width, height]]) @ back[:, :2].T + back[:, 2]
    low = np.clip(np.floor(corners.min(axis=0)).astype(int) - 2, 0, [pixels.shape[1], pixels.shape[0]])
    high = np.clip(np.ceil(corners.max(axis=0)).astype(int) + 2, 0, [pixels.shape[1], pixels.shape[0]])
    if (high - low).min() < 1:
        return pixels, matrix
    part = pixels[low[1] : high[1], low[0] : high[0]]
    small = fit(part, max(round(2 * scale * max(part.shape[:2])), 1))
    ratio = np.array([part.shape[1] / small.shape[1], part.shape[0] / small.shape[0]])
    # OpenCV puts the centre of the first pixel at 0, so that a shrunk pixel's centre moves by half the difference.
    start = low + (ratio - 1) / 2
    moved = np.hstack([matrix[:, :2] * ratio, (matrix[:, :2] @ start + matrix[:, 2])[:, None]])
    return small, moved.astype(np.float64)


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
    """The convex hull of `points`."""
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


def largest_region(mask: Mask) -> int:
    """The pixels of the largest connected region of `mask`; 0 where it is empty."""
    import cv2

    _, _, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    return int(stats[1:, cv2.CC_STAT_AREA].max(initial=0))
