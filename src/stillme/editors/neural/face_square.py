"""Find the square of a picture that MediaPipe's face stylizer reads, as MediaPipe finds it.

BlazeFace finds the face, a mesh of 478 points its eyes and mouth, and these a rotated square. Pictures are sampled
bilinearly and without smoothing, as MediaPipe does, so that the same pixels reach the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stillme.editors.neural.graph import Network

Picture = NDArray[np.uint8]
Doubles = NDArray[np.float64]

_SURE = 0.5
_OVERLAP = 0.5
_DETECTOR_SIDE, _MESH_SIDE = 128, 192
_ROOM = 1.5
_LEFT_EYE, _RIGHT_EYE, _MOUTH = (33, 133), (263, 362), (61, 291)
_EYES_TO_MOUTH, _EYE_TO_EYE, _DOWN = 3.6, 4.0, 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Square:
    """A rotated rectangle, in pixels of the picture and radians; a square but for the detector's own."""

    centre: Doubles
    size: Doubles
    angle: float

    def matrix(self, side: int) -> Doubles:
        """From the picture's pixels into a frame of `side` pixels."""
        turn = _turn(-self.angle) * (side / self.size)[:, None]
        return np.hstack([turn, (side / 2 - turn @ self.centre)[:, None]])

    def cut(self, rgb: Picture, side: int) -> NDArray[np.uint8]:
        """What lies in it, black outside the picture."""
        import cv2

        return cast("Any", cv2).warpAffine(rgb, self.matrix(side), (side, side), flags=cv2.INTER_LINEAR)

    def points(self, unit: Doubles) -> Doubles:
        """Points of its unit square, in the picture's pixels."""
        return self.centre + (unit - 0.5) @ _turn(self.angle).T * self.size

    def outside(self, shape: tuple[int, ...]) -> float:
        """The share of it that lies outside of a picture of that shape."""
        grid = (np.arange(32) + 0.5) / 32
        x, y = self.points(np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)).T
        return float(((x < 0) | (y < 0) | (x > shape[1]) | (y > shape[0])).mean())

    def put_back(self, rgb: Picture, square: Picture) -> Picture:
        """The picture with this in its place."""
        import cv2

        height, width = rgb.shape[:2]
        side = square.shape[0]
        back = cast("Any", cv2).invertAffineTransform(self.matrix(side))
        laid = cv2.warpAffine(square, back, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        rows, columns = np.mgrid[:height, :width]
        placed = np.stack([columns, rows], axis=-1) @ self.matrix(side)[:, :2].T + self.matrix(side)[:, 2]
        inside = ((placed >= 0) & (placed <= side)).all(axis=-1)
        return np.where(inside[..., None], laid, rgb).astype(np.uint8)


def find_square(rgb: Picture, detector: Network, landmarks: Network) -> Square | None:
    """The square that the stylizer reads; None where no face is found."""
    face = _find_face(rgb, detector)
    if face is None:
        return None
    crop = face.cut(rgb, _MESH_SIDE).astype(np.float32) / 255
    mesh, presence = landmarks.run(picture=crop[None])
    if not float(presence.ravel()[0]) > np.log(_SURE / (1 - _SURE)):
        return None
    points = face.points(mesh.reshape(-1, 3)[:, :2].astype(np.float64) / _MESH_SIDE)
    parts: list[Doubles] = [points[list(part)].mean(axis=0) for part in (_LEFT_EYE, _RIGHT_EYE, _MOUTH)]
    left, right, mouth = parts
    between = (left + right) / 2
    across, down = right - left, mouth - between
    level = across + np.array([down[1], -down[0]])
    side = max(float(np.linalg.norm(down)) * _EYES_TO_MOUTH, float(np.linalg.norm(across)) * _EYE_TO_EYE)
    return Square(
        centre=np.round(between + _DOWN * down),
        size=np.full(2, float(np.round(side))),
        angle=float(np.arctan2(level[1], level[0])),
    )


def _find_face(rgb: Picture, detector: Network) -> Square | None:
    """The surest face, with the room around it that the mesh needs, and its eyes level."""
    height, width = rgb.shape[:2]
    longest = float(max(height, width))
    frame = Square(centre=np.array([width / 2, height / 2]), size=np.full(2, longest), angle=0.0)
    crop = frame.cut(rgb, _DETECTOR_SIDE).astype(np.float32) / 127.5 - 1
    raw, logits = detector.run(picture=crop[None])
    scores = 1 / (1 + np.exp(-np.clip(logits.ravel().astype(np.float64), -100, 100)))
    sure = np.flatnonzero(scores >= _SURE)
    if not len(sure):
        return None
    numbers = raw[0][sure].astype(np.float64) / _DETECTOR_SIDE
    numbers[:, :2] += _anchors()[sure]
    numbers[:, 4:] += np.tile(_anchors()[sure], 6)
    best = int(np.argmax(scores[sure]))
    near = _overlap(numbers, numbers[best]) > _OVERLAP
    weights = scores[sure][near]
    box = (numbers[near] * weights[:, None]).sum(axis=0) / weights.sum()
    first, second = frame.points(box[4:6]), frame.points(box[6:8])
    eyes = second - first
    return Square(
        centre=frame.points(box[:2]), size=box[2:4] * longest * _ROOM, angle=float(np.arctan2(eyes[1], eyes[0]))
    )


def _overlap(boxes: Doubles, best: Doubles) -> Doubles:
    """Intersection over union with the best box."""
    low = np.maximum(boxes[:, :2] - boxes[:, 2:4] / 2, best[:2] - best[2:4] / 2)
    high = np.minimum(boxes[:, :2] + boxes[:, 2:4] / 2, best[:2] + best[2:4] / 2)
    shared = np.clip(high - low, 0, None).prod(axis=1)
    return shared / (boxes[:, 2:4].prod(axis=1) + best[2:4].prod() - shared)


@cache
def _anchors() -> Doubles:
    """The centres of BlazeFace's 896 boxes: two for each of 16 × 16 cells, six for each of 8 × 8."""
    grids: list[Doubles] = []
    for cells, each in ((16, 2), (8, 6)):
        rows, columns = np.mgrid[:cells, :cells]
        centres = (np.stack([columns, rows], axis=-1).reshape(-1, 2) + 0.5) / cells
        grids.append(np.repeat(centres, each, axis=0))
    return np.concatenate(grids)


def _turn(angle: float) -> Doubles:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
