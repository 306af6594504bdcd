"""Portraits of nobody, and changes of known size."""

from __future__ import annotations

import io
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stillme.core.colour import lab_to_linear, to_lab, to_linear, to_srgb
from stillme.core.images import read_rgb
from stillme.instruments import faces
from stillme.portraits import portraits
from tests.pictures import encoded

Picture = NDArray[np.uint8]


@cache
def some(count: int) -> tuple[Picture, ...]:
    """So many portraits, spread over the embedded set."""
    everyone = sorted(portraits(), key=lambda portrait: portrait.id)
    step = len(everyone) / count
    return tuple(read_rgb(everyone[int(index * step)].image.path) for index in range(count))


@cache
def portrait(name: str) -> Picture:
    """One of the embedded set, by its id."""
    return next(read_rgb(known.image.path) for known in portraits() if known.id == name)


@cache
def one() -> Picture:
    """A portrait of medium skin tone."""
    everyone = sorted(portraits(), key=lambda portrait: portrait.id)
    return read_rgb(everyone[len(everyone) // 2].image.path)


def oval(rgb: Picture) -> NDArray[np.bool_]:
    return faces.face_oval(faces.mesh(rgb, faces.find(rgb)[0]), rgb.shape)


def lighter(rgb: Picture, by: float) -> Picture:
    """Shift L* of the face, with a soft edge."""
    lab = to_lab(rgb)
    lab[..., 0] += by * cv2.GaussianBlur(oval(rgb).astype(np.float32), (0, 0), 3)
    return to_srgb(lab_to_linear(lab))


def exposed(rgb: Picture, stops: float) -> Picture:
    return to_srgb(to_linear(rgb) * np.float32(2**stops))


def jpeg(rgb: Picture, quality: int) -> Picture:
    return np.asarray(Image.open(io.BytesIO(encoded(rgb, "JPEG", quality=quality))))


def there_and_back(rgb: Picture, scale: float) -> Picture:
    height, width = rgb.shape[:2]
    small = Image.fromarray(rgb).resize((int(width * scale), int(height * scale)), Image.Resampling.LANCZOS)
    return np.asarray(small.resize((width, height), Image.Resampling.LANCZOS))


def background_tinted(rgb: Picture, colour: tuple[int, int, int]) -> Picture:
    away = (faces.person_mask(rgb) < 0.3)[..., None]
    return np.where(away, (0.4 * rgb + 0.6 * np.array(colour)).astype(np.uint8), rgb)


def clothes_tinted(rgb: Picture, colour: tuple[int, int, int]) -> Picture:
    face = faces.find(rgb)[0]
    rows = np.arange(rgb.shape[0])[:, None]
    shirt = ((faces.person_mask(rgb) > 0.7) & (rows > face.top + 1.25 * face.height))[..., None]
    return np.where(shirt, (0.4 * rgb + 0.6 * np.array(colour)).astype(np.uint8), rgb)
