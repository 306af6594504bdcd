"""Morphs between two photographs: a face that lies a known fraction of the way from one person to another."""

from __future__ import annotations

import cv2
import numpy as np
from scipy.interpolate import LinearNDInterpolator

from stillme.instruments.faces import Mesh
from stillme.instruments.faces.chips import similarity

SIDE = 256
_FRAME = 0.6


def morph(a: tuple[np.ndarray, Mesh], b: tuple[np.ndarray, Mesh], share: float) -> tuple[np.ndarray, Mesh]:
    """The face of `a`, `share` of the way to `b`'s: shape and colour, in a square around it."""
    (rgb_a, points_a), (rgb_b, points_b) = (_squared(rgb, mesh) for rgb, mesh in (a, b))
    points = (1 - share) * points_a + share * points_b
    edges = (-64.0, SIDE / 2, SIDE + 64.0)
    corners = np.array([(x, y) for x in edges for y in edges if (x, y) != (SIDE / 2, SIDE / 2)])
    grid = np.mgrid[:SIDE, :SIDE][::-1].reshape(2, -1).T
    made = np.zeros((SIDE, SIDE, 3))
    for rgb, own, weight in ((rgb_a, points_a, 1 - share), (rgb_b, points_b, share)):
        where = LinearNDInterpolator(np.vstack([points, corners]), np.vstack([own, corners]))(grid)
        columns, rows = where.astype(np.float32).reshape(SIDE, SIDE, 2).transpose(2, 0, 1)
        made += weight * cv2.remap(rgb, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    mesh = Mesh(points=points.astype(np.float32), depth=a[1].depth, presence=1.0)
    return np.clip(np.rint(made), 0, 255).astype(np.uint8), mesh


def _squared(rgb: np.ndarray, mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """The face upright in a square of its own."""
    points = mesh.points.astype(np.float64)
    eyes = points[[33, 263]]
    target = SIDE * np.array([[0.5 - _FRAME / 4, 0.45], [0.5 + _FRAME / 4, 0.45]])
    matrix = similarity(eyes, target)
    square = cv2.warpAffine(rgb, matrix, (SIDE, SIDE), flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REPLICATE)
    return square, points @ matrix[:, :2].T + matrix[:, 2]
