"""Crop a face upright and centred, as the networks that read faces expect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stillme.instruments.faces.landmarks import Mesh
from stillme.instruments.faces.raster import Picture, warp

Doubles = NDArray[np.float64]

# dlib's mean face: outer and inner corner of either eye, and the base of the nose, in a unit square.
_ANCHORS = (263, 362, 33, 133, 2)
_MEAN_FACE = np.array(
    [
        [0.8595674595992, 0.2134981538014],
        [0.6460604764104, 0.2289674387677],
        [0.1205750620789, 0.2137274526848],
        [0.3340850613712, 0.2290642403242],
        [0.4901123135679, 0.6277975316475],
    ]
)

# Where recognisers expect the eyes, the tip of the nose and the corners of the mouth, in 112 pixels.
_FIVE_POINTS = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
_RECOGNISED = 112


def recognition_chip(rgb: Picture, mesh: Mesh) -> Picture:
    """Rotate, scale and crop a face to the 112 pixels that face recognisers were trained on."""
    points = mesh.points.astype(np.float64)
    eyes = points[[33, 362]] / 2 + points[[133, 263]] / 2
    return warp(rgb, similarity(np.vstack([eyes, points[[1, 61, 291]]]), _FIVE_POINTS), _RECOGNISED, _RECOGNISED)


def chip(rgb: Picture, mesh: Mesh, size: int, padding: float) -> Picture:
    """Rotate, scale and crop a face to `size` pixels, with `padding` (a share of the face) around it."""
    target = (padding + _MEAN_FACE) / (2 * padding + 1) * size
    source = mesh.points[list(_ANCHORS)].astype(np.float64)
    matrix = similarity(source, target)
    return warp(rgb, matrix, size, size)


def similarity(source: Doubles, target: Doubles) -> Doubles:
    """Find the rotation, scale and shift that bring `source` closest to `target`."""
    a, b = source - source.mean(axis=0), target - target.mean(axis=0)
    spread = max(float((a**2).sum()), 1e-9)
    cos = float((a * b).sum()) / spread
    sin = float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()) / spread
    rotation = np.array([[cos, -sin], [sin, cos]])
    return np.hstack([rotation, (target.mean(axis=0) - rotation @ source.mean(axis=0))[:, None]])
