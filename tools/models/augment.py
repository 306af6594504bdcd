"""Changes of a picture that change nobody in it."""

from __future__ import annotations

import io

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stillme.core.colour import to_linear, to_srgb

Picture = NDArray[np.uint8]


def mild(rgb: Picture) -> dict[str, Picture]:
    """What storage and transmission do; the face stays where it is."""
    height, width = rgb.shape[:2]
    half = cv2.resize(rgb, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    return {
        "JPEG 75": jpeg(rgb, 75),
        "JPEG 50": jpeg(rgb, 50),
        "half size and back": cv2.resize(half, (width, height), interpolation=cv2.INTER_CUBIC),
        "blur": cv2.GaussianBlur(rgb, (0, 0), max(height, width) / 300),
        "exposure +0.4": exposed(rgb, 0.4),
        "exposure -0.4": exposed(rgb, -0.4),
        "white balance": to_srgb(to_linear(rgb) * np.array([1.06, 1.0, 0.94], dtype=np.float32)),
    }


def framed(rgb: Picture) -> dict[str, Picture]:
    """What moves the face within the frame."""
    height, width = rgb.shape[:2]
    y, x = round(0.06 * height), round(0.06 * width)
    return {
        "crop": np.ascontiguousarray(rgb[y : height - y, x : width - x]),
        "mirror": np.ascontiguousarray(rgb[:, ::-1]),
        "half size": cv2.resize(rgb, (width // 2, height // 2), interpolation=cv2.INTER_AREA),
    }


def jpeg(rgb: Picture, quality: int) -> Picture:
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def exposed(rgb: Picture, stops: float) -> Picture:
    return to_srgb(to_linear(rgb) * np.float32(2**stops))


def new_background(rgb: Picture, person: NDArray[np.float32], number: int) -> Picture:
    """Put the person before a wall of another colour."""
    hue = np.array([[[number * 37 % 180, 110, 60 + number * 53 % 170]]], dtype=np.uint8)
    wall = cv2.cvtColor(hue, cv2.COLOR_HSV2RGB)[0, 0].astype(np.float32)
    share = person[..., None]
    return (rgb * share + wall * (1 - share)).astype(np.uint8)
