"""Lay an edited picture over its source, and say how well it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stillme.colour import Floats
from stillme.faces.chips import similarity
from stillme.faces.landmarks import Mesh
from stillme.faces.raster import Mask, Picture, blur, fit, resize, warp

Matrix = NDArray[np.float64]

_SAME = 0.8
_ENOUGH = 0.5
_BETTER = 0.05
"""Correlations: of one and the same picture; of one that was found again; and what another placement must add."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """The edited picture in its source's frame."""

    rgb: Picture
    covered: Mask | None
    """Which pixels of the small copy the edited picture reaches; nothing means all."""
    likeness: float
    """How well the drawings agree over the whole picture, up to 1."""
    face_likeness: float
    """And within the face."""
    moved: bool
    """Whether it had to be moved, beyond a change of size."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawing:
    """What a picture looks like without its tones, to recognise it by."""

    lines: Floats
    face: Mask
    width: int
    height: int
    mesh: Mesh | None


def draw(rgb: Picture, shape: tuple[int, int], face: Mask, mesh: Mesh | None) -> Drawing:
    """Take the lines of a source; `shape` and `face` are those of its small copy."""
    return Drawing(lines=lines(rgb, shape), face=face, width=rgb.shape[1], height=rgb.shape[0], mesh=mesh)


def place(source: Drawing, edited: Picture, mesh: Mesh | None) -> Placement:
    """Resize the edited picture to its source, and move it where that lets the two agree better."""
    best = _placed(source, resize(edited, source.width, source.height), None)
    if best.likeness >= _SAME or best.face_likeness >= _SAME:
        return _refined(source, best)
    for matrix in _guesses(source, edited, mesh):
        moved = _moved(source, edited, matrix)
        if moved.likeness >= _ENOUGH and moved.likeness > best.likeness + _BETTER:
            best = moved
    return _refined(source, best)


def lines(rgb: Picture, shape: tuple[int, int]) -> Floats:
    """Edges and features without tone: grey levels minus their surroundings, in a picture of that shape."""
    grey = resize(rgb, shape[1], shape[0]).astype(np.float32) @ np.array([0.3, 0.59, 0.11], dtype=np.float32)
    return blur(grey, 1.0) - blur(grey, 5.0)


def correlation(a: Floats, b: Floats) -> float:
    """Correlate two rows of numbers; 0 where one of them is flat."""
    if len(a) < 2:
        return 0.0
    x, y = a - a.mean(), b - b.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0 else 0.0


def _placed(source: Drawing, laid: Picture, covered: Mask | None) -> Placement:
    other = lines(laid, source.lines.shape)
    where = np.ones(source.lines.shape, dtype=np.bool_) if covered is None else covered
    face = source.face & where
    return Placement(
        rgb=laid,
        covered=covered,
        likeness=correlation(source.lines[where], other[where]),
        face_likeness=correlation(source.lines[face], other[face]),
        moved=covered is not None,
    )


def _moved(source: Drawing, edited: Picture, matrix: Matrix) -> Placement:
    scale = float(np.hypot(matrix[0, 0], matrix[1, 0]))
    if scale < 0.5:
        small = fit(edited, max(round(2 * scale * max(edited.shape)), 1))
        matrix = matrix * np.array([edited.shape[1] / small.shape[1], edited.shape[0] / small.shape[0], 1.0])
        edited = small
    laid = warp(edited, matrix, source.width, source.height)
    reached = warp(np.ones(edited.shape[:2], dtype=np.float32), matrix, source.width, source.height)
    height, width = source.lines.shape
    covered = resize(reached, width, height) > 0.99
    if covered.mean() < 0.2:
        return Placement(rgb=laid, covered=covered, likeness=0.0, face_likeness=0.0, moved=True)
    return _placed(source, laid, covered)


def _guesses(source: Drawing, edited: Picture, mesh: Mesh | None) -> list[Matrix]:
    """How the edited picture may lie on the source: as the faces do, or as distinctive spots do."""
    guesses: list[Matrix] = []
    if source.mesh is not None and mesh is not None:
        guesses.append(similarity(mesh.points.astype(np.float64), source.mesh.points.astype(np.float64)))
    return guesses


def _refined(source: Drawing, placed: Placement) -> Placement:
    """Correct a drift of a few pixels, as editors that resize their input leave behind."""
    import cv2

    if placed.likeness > 0.97 or placed.likeness < _ENOUGH:
        return placed
    height, width = source.lines.shape
    other = lines(placed.rgb, (height, width))
    start = np.eye(2, 3, dtype=np.float32)
    stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 12, 1e-3)
    try:
        _, found = cv2.findTransformECC(source.lines, other, start, cv2.MOTION_AFFINE, stop, cast("Any", None), 5)
    except cv2.error:
        return placed  # it did not converge: then there is no drift to correct
    inward = np.asarray(found, dtype=np.float64)
    if np.abs(inward - np.eye(2, 3)).max() > 0.1 * max(height, width) or np.abs(inward[:, :2] - np.eye(2)).max() > 0.1:
        return placed
    outward = np.linalg.inv(np.vstack([inward, [0.0, 0.0, 1.0]]))[:2]
    outward[0, 2] *= source.width / width
    outward[1, 2] *= source.height / height
    better = _moved(source, placed.rgb, outward)
    if better.likeness <= placed.likeness + 0.02:
        return placed
    if placed.covered is not None and better.covered is not None:
        covered = better.covered & placed.covered
        return Placement(
            rgb=better.rgb,
            covered=covered,
            likeness=better.likeness,
            face_likeness=better.face_likeness,
            moved=True,
        )
    return better
