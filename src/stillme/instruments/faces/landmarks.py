"""Fit the 468-point mesh to a face, and mask regions along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.instruments.faces.detection import Face
from stillme.instruments.faces.networks import network
from stillme.instruments.faces.raster import Floats, Mask, Picture, disc, grow, hull, inverse, polygon, warp

# Point numbers of MediaPipe's canonical face mesh; left and right are the person's own.
OVAL = (
    *(10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288, 397, 365, 379, 378, 400, 377),
    *(152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109),
)
LEFT_EYE = (263, 249, 390, 373, 374, 380, 381, 382, 362, 398, 384, 385, 386, 387, 388, 466)
RIGHT_EYE = (33, 7, 163, 144, 145, 153, 154, 155, 133, 173, 157, 158, 159, 160, 161, 246)
LEFT_BROW = (276, 283, 282, 295, 285, 336, 296, 334, 293, 300)
RIGHT_BROW = (46, 53, 52, 65, 55, 107, 66, 105, 63, 70)
LIPS = (61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291, 409, 270, 269, 267, 0, 37, 39, 40, 185)
NOSTRILS = (98, 327, 2)
LEFT_EYE_CORNER, RIGHT_EYE_CORNER = 263, 33
FOREHEAD, CHIN, UNDER_NOSE = 10, 152, 2

Doubles = NDArray[np.float64]

_SIDE = 192
_ROOM = 1.5
"""The network expects the face with a quarter of its size around it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mesh:
    """Where each part of a face lies, in the picture's own pixels."""

    points: Floats
    """468 rows of x, y, in MediaPipe's numbering."""
    depth: Floats
    """468 distances towards (−) and away from (+) the viewer, in the same unit."""
    presence: float
    """How sure the network is that there is a face, 0 to 1."""

    @property
    def eye_distance(self) -> float:
        """Between the outer corners of the eyes."""
        return float(np.linalg.norm(self.points[LEFT_EYE_CORNER] - self.points[RIGHT_EYE_CORNER]))


def mesh(rgb: Picture, face: Face) -> Mesh:
    """Fit the mesh to `face` in two passes: the first finds the square that the second reads."""
    right_eye, left_eye = face.points[0], face.points[1]
    angle = _angle(left_eye - right_eye)
    centre = np.array(face.centre)
    side = _ROOM * max(face.width, face.height)
    _, rough, _ = _read_square(rgb, centre, side, angle)
    angle = _angle(rough[LEFT_EYE_CORNER] - rough[RIGHT_EYE_CORNER])
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    upright = rough @ turn.T
    low, high = upright.min(axis=0), upright.max(axis=0)
    presence, points, depth = _read_square(rgb, ((low + high) / 2) @ turn, _ROOM * float((high - low).max()), angle)
    return Mesh(points=points.astype(np.float32), depth=depth.astype(np.float32), presence=presence)


def face_oval(mesh: Mesh, shape: Sequence[int]) -> Mask:
    """Mask the whole face up to the hairline, in a picture of that shape."""
    return polygon(mesh.points[list(OVAL)], shape)


def skin_mask(mesh: Mesh, shape: Sequence[int]) -> Mask:
    """Mask bare skin: the oval without eyes, brows and nostrils, and only above the mouth, where no beard grows."""
    height, width = shape[:2]
    low = np.maximum(np.floor(mesh.points.min(axis=0)).astype(int) - 4, 0)
    high = np.minimum(np.ceil(mesh.points.max(axis=0)).astype(int) + 5, [width, height])
    mask = np.zeros((height, width), dtype=np.bool_)
    if (high <= low).any():
        return mask
    points = (mesh.points - low).astype(np.float32)
    window = int(high[1] - low[1]), int(high[0] - low[0])
    skin = grow(polygon(points[list(OVAL)], window), -0.06 * mesh.eye_distance)
    for part, margin in ((LEFT_EYE, 0.10), (RIGHT_EYE, 0.10), (LIPS, 0.05), (LEFT_BROW, 0.06), (RIGHT_BROW, 0.06)):
        skin &= ~grow(polygon(hull(points[list(part)]), window), margin * mesh.eye_distance)
    for nostril in NOSTRILS:
        skin &= ~disc(points[nostril], 0.07 * mesh.eye_distance, window)
    down = points[CHIN] - points[FOREHEAD]
    down = down / max(float(np.linalg.norm(down)), 1e-6)
    rows, columns = np.mgrid[: window[0], : window[1]]
    below = (columns - points[UNDER_NOSE, 0]) * down[0] + (rows - points[UNDER_NOSE, 1]) * down[1]
    mask[low[1] : high[1], low[0] : high[0]] = skin & (below < 0)
    return mask


def _read_square(rgb: Picture, centre: Doubles, side: float, angle: float) -> tuple[float, Doubles, Doubles]:
    """One pass over a rotated square: presence, points and depth."""
    scale = _SIDE / max(side, 1.0)
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    matrix: Doubles = np.array([[cos, sin, 0.0], [-sin, cos, 0.0]])
    matrix[:, 2] = _SIDE / 2 - matrix[:, :2] @ centre
    square = warp(rgb, matrix, _SIDE, _SIDE)
    raw, presence = network("facemesh").run(square[None] / np.float32(255), ["Identity_2", "Identity_1"])
    points = raw.reshape(468, 3).astype(np.float64)
    back = inverse(matrix)
    return float(presence.ravel()[0]), points[:, :2] @ back[:, :2].T + back[:, 2], points[:, 2] / scale


def _angle(across: NDArray[np.floating]) -> float:
    return float(np.arctan2(across[1], across[0]))
