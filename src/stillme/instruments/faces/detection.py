"""Find faces with YuNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stillme.instruments.faces.networks import network
from stillme.instruments.faces.raster import Floats, Picture, resize

MIN_SCORE = 0.7
_SMALLEST = 8
_CENTRAL = 0.35
"""In shares of the picture; picks the person whom FairFace labelled in all of its pictures with bystanders."""
_OVERLAP = 0.3
_STRIDES = (8, 16, 32)
_SIDES = (320, 640)
"""YuNet sees faces of about 10 to 300 pixels: most portraits fit the first size, small faces need the second."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Face:
    """One face, in the picture's own pixels."""

    left: float
    top: float
    width: float
    height: float
    points: Floats
    """Five rows of x, y: right eye, left eye, nose tip, right and left corner of the mouth (the person's own right)."""
    score: float

    @property
    def size(self) -> float:
        """The side of a square as large as the box."""
        return float(np.sqrt(self.width * self.height))

    @property
    def centre(self) -> tuple[float, float]:
        """The middle of the box, x and y."""
        return self.left + self.width / 2, self.top + self.height / 2


def find(rgb: Picture, *, min_score: float = MIN_SCORE) -> list[Face]:
    """All faces in a picture, the most prominent first; an empty list where there is none."""
    faces = _find_at_any_size(rgb, min_score)
    return sorted(faces, key=lambda face: -prominence(face, rgb.shape))


def prominence(face: Face, shape: Sequence[int]) -> float:
    """How much the picture is about this face: its size, reduced where it is cut off or away from the centre."""
    height, width = shape[:2]
    across = min(face.left + face.width, width) - max(face.left, 0)
    down = min(face.top + face.height, height) - max(face.top, 0)
    visible = max(across, 0) * max(down, 0) / (face.width * face.height)
    x, y = face.centre
    away = np.hypot(x / width - 0.5, y / height - 0.5)
    return float(face.size * visible * np.exp(-((away / _CENTRAL) ** 2)))


def _find_at_any_size(rgb: Picture, min_score: float) -> list[Face]:
    if min(rgb.shape[:2]) < _SMALLEST:
        return []
    for side in _SIDES:
        if faces := _find_at(rgb, side, min_score):
            return faces
    # A face that fills the frame is larger than YuNet was trained on; a margin makes it fit.
    height, width = rgb.shape[:2]
    margin = max(height, width) // 3
    framed = np.pad(rgb, ((margin, margin), (margin, margin), (0, 0)), mode="edge")
    return [_moved(face, -margin) for face in _find_at(framed, _SIDES[0], min_score)]


def _find_at(rgb: Picture, side: int, min_score: float) -> list[Face]:
    height, width = rgb.shape[:2]
    scale = side / max(height, width)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    small = resize(rgb, *size)
    step = np.array([width / size[0], height / size[1]], dtype=np.float32)
    return [
        Face(
            left=float(row[0] * step[0]),
            top=float(row[1] * step[1]),
            width=float(row[2] * step[0]),
            height=float(row[3] * step[1]),
            points=(row[4:14].reshape(5, 2) * step).astype(np.float32),
            score=float(row[14]),
        )
        for row in _decode(small, min_score)
    ]


def _decode(rgb: Picture, min_score: float) -> Floats:
    """Rows of x, y, w, h, five points, score, in the pixels of what the network saw."""
    height, width = rgb.shape[:2]
    down, right = -height % 32, -width % 32
    padded = np.pad(rgb[..., ::-1], ((0, down), (0, right), (0, 0)))
    names = [f"{part}_{stride}" for stride in _STRIDES for part in ("cls", "obj", "bbox", "kps")]
    outputs = network("yunet").run(padded.transpose(2, 0, 1)[None], names)
    rows: list[Floats] = []
    for level, stride in enumerate(_STRIDES):
        likeness, presence, box, points = (output[0] for output in outputs[4 * level : 4 * level + 4])
        score = np.sqrt(np.clip(likeness, 0, 1) * np.clip(presence, 0, 1))[:, 0]
        keep = np.flatnonzero(score >= min_score)
        cells = np.stack([keep % (padded.shape[1] // stride), keep // (padded.shape[1] // stride)], axis=1)
        centre = (cells + box[keep, :2]) * stride
        extent = np.exp(box[keep, 2:]) * stride
        marks = (points[keep].reshape(-1, 5, 2) + cells[:, None]) * stride
        rows.append(np.hstack([centre - extent / 2, extent, marks.reshape(-1, 10), score[keep, None]]))
    return _without_overlaps(np.vstack(rows).astype(np.float32))


def _without_overlaps(rows: Floats) -> Floats:
    """Keep the best-scoring box of each face."""
    rows = rows[np.argsort(-rows[:, 14], kind="stable")]
    kept: list[Floats] = []
    for row in rows:
        if all(_overlap(row, other) <= _OVERLAP for other in kept):
            kept.append(row)
    return np.array(kept, dtype=np.float32).reshape(-1, 15)


def _overlap(a: Floats, b: Floats) -> float:
    low = np.maximum(a[:2], b[:2])
    high = np.minimum(a[:2] + a[2:4], b[:2] + b[2:4])
    shared = float(np.prod(np.maximum(high - low, 0)))
    return shared / float(a[2] * a[3] + b[2] * b[3] - shared)


def _moved(face: Face, by: float) -> Face:
    return Face(
        left=face.left + by,
        top=face.top + by,
        width=face.width,
        height=face.height,
        points=(face.points + np.float32(by)).astype(np.float32),
        score=face.score,
    )
