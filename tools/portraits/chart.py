# SPDX-License-Identifier: GPL-3.0-or-later
"""The head's texture chart: which point of the base head every texel shows.

Skin, scalp and beard are painted as functions of that canonical position, so
they follow every identity without hand-made texture maps.
"""

import functools
from dataclasses import dataclass

import numpy as np
from PIL import Image
from scipy import ndimage

from .mesh import base_mesh, mpfb_folder

_RASTER = 2560
"""Texels a side of the whole body's texture; about 0.4 mm a texel on the face."""
_ROWS = slice(int(0.1709 * _RASTER), int(0.8692 * _RASTER))
_COLUMNS = slice(int(0.6299 * _RASTER), _RASTER)
_LOWEST = 4.5
"""Height under which the base body is not part of a portrait."""


@dataclass(frozen=True)
class Chart:
    """The head's part of the texture, row 0 at the top."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    head: np.ndarray
    """Texels that show any of the head or neck."""
    triangles: np.ndarray
    triangle_texture: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.head.shape


def _triangles() -> tuple[np.ndarray, np.ndarray]:
    base = base_mesh()
    chosen = (base.groups == "body") & (base.vertices[base.faces].mean(1)[:, 1] > _LOWEST)
    quads, texture = base.faces[chosen], base.face_texture[chosen]
    corners = [[0, 1, 2], [0, 2, 3]]
    return np.concatenate([quads[:, c] for c in corners]), np.concatenate([texture[:, c] for c in corners])


@functools.cache
def chart() -> Chart:
    """Rasterise the canonical positions once a process (about three seconds)."""
    triangles, texture = _triangles()
    base = base_mesh()
    position = np.zeros((_RASTER, _RASTER, 3), np.float32)
    covered = np.zeros((_RASTER, _RASTER), bool)
    margin = -0.02  # Neighbouring triangles overlap by a hair, so that no texel between them stays empty.
    for corners, pixels in zip(
        base.vertices[triangles], base.texture_vertices[texture] * [_RASTER, -_RASTER] + [-0.5, _RASTER - 0.5]
    ):
        low = np.maximum(np.floor(pixels.min(0)).astype(int) - 1, 0)
        high = np.minimum(np.ceil(pixels.max(0)).astype(int) + 1, _RASTER - 1)
        (ax, ay), (bx, by), (cx, cy) = pixels
        area = (by - cy) * (ax - cx) + (cx - bx) * (ay - cy)
        if (high < low).any() or abs(area) < 1e-9:
            continue
        columns, rows = np.meshgrid(np.arange(low[0], high[0] + 1), np.arange(low[1], high[1] + 1))
        a = ((by - cy) * (columns - cx) + (cx - bx) * (rows - cy)) / area
        b = ((cy - ay) * (columns - cx) + (ax - cx) * (rows - cy)) / area
        weights = np.stack([a, b, 1 - a - b], -1)
        inside = (weights >= margin).all(-1)
        position[rows[inside], columns[inside]] = weights[inside] @ corners
        covered[rows[inside], columns[inside]] = True
    position, covered = position[_ROWS, _COLUMNS], covered[_ROWS, _COLUMNS].copy()
    covered[:, :12] = False
    return Chart(*np.ascontiguousarray(position.transpose(2, 0, 1)), covered, triangles, texture)


def chart_uv(uv: np.ndarray) -> np.ndarray:
    """Texture coordinates of the whole body → coordinates within the chart."""
    rows, columns = _ROWS.stop - _ROWS.start, _COLUMNS.stop - _COLUMNS.start
    return np.stack(
        [(uv[:, 0] * _RASTER - _COLUMNS.start) / columns, 1 - ((1 - uv[:, 1]) * _RASTER - _ROWS.start) / rows], 1
    )


@functools.cache
def painted_mask(name: str, blur: float) -> np.ndarray:
    """One of MPFB's own region masks (lips, eyelids, ears), in chart texels."""
    picture = Image.open(mpfb_folder() / "textures" / f"mpfb_{name}.jpg").convert("L")
    mask = np.asarray(picture.resize((_RASTER, _RASTER), Image.Resampling.BICUBIC), np.float32)[_ROWS, _COLUMNS] / 255
    return ndimage.gaussian_filter(np.where(mask > 0.25, mask, 0), blur)


@functools.cache
def _noise_field(scale: float, shape: tuple[int, int]) -> np.ndarray:
    white = np.random.default_rng(int(scale * 100)).standard_normal(shape).astype(np.float32)
    smooth = ndimage.gaussian_filter(white, scale, mode="wrap")
    return smooth / smooth.std()


def noise(scale: float, rng: np.random.Generator, octaves: int = 1, shape: tuple[int, int] | None = None) -> np.ndarray:
    """Smooth noise of unit variance per octave; `scale` is its grain in texels.

    One field per scale is filtered and then shifted at random: filtering anew
    for every identity would cost more than rendering it.
    """
    shape = shape or chart().shape
    total, amplitude = np.zeros(shape, np.float32), 1.0
    for octave in range(octaves):
        field = _noise_field(round(max(0.5, scale / 2**octave), 2), shape)
        total += amplitude * np.roll(field, (int(rng.integers(shape[0])), int(rng.integers(shape[1]))), (0, 1))
        amplitude *= 0.6
    return total


def smoothstep(start: float, end: float, value: np.ndarray | float) -> np.ndarray:
    t = np.clip((np.asarray(value) - start) / (end - start), 0, 1)
    return t * t * (3 - 2 * t)
