"""Align an edited picture with its source, and measure how well they agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stillme.colour import Floats
from stillme.faces.chips import similarity
from stillme.faces.raster import Mask, Picture, blur, grow, resize, warp
from stillme.instruments.scene import Person, Scene
from stillme.types import Abstained

Matrix = NDArray[np.float64]

# Correlations of two drawings:
_EXACT = 0.99  # they lie on each other to a fraction of a pixel
_SAME = 0.8  # they show the same, in about the same place
_ENOUGH = 0.5  # the picture is recognised
_BETTER = 0.05  # what moving a picture must gain over leaving it
_SMEAR = 8
_FEWEST_SPOTS = 12
_SMALLEST = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """The edited picture in its source's frame."""

    rgb: Picture
    small: Picture
    """The same, in the size of the source's small copy."""
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
    """A picture's edges without its tones, to align by."""

    lines: Floats
    face: Mask
    rgb: Picture
    person: Person | Abstained

    @property
    def width(self) -> int:
        """Of the picture itself."""
        return self.rgb.shape[1]

    @property
    def height(self) -> int:
        """Of the picture itself."""
        return self.rgb.shape[0]


def draw(scene: Scene, small: Picture, face: Mask) -> Drawing:
    """Draw the edges of a source; `face` is the mask in its small copy."""
    return Drawing(lines=lines(small), face=face, rgb=scene.rgb, person=scene.person)


def place(source: Drawing, edited: Scene) -> Placement:
    """Resize the edited picture to its source, and move it where that lets the two agree better."""
    best = _placed(source, resize(edited.rgb, source.width, source.height), None)
    if best.likeness >= _SAME or best.face_likeness >= _SAME:
        return _refined(source, best)
    for matrix in _guesses(source, edited):
        moved = _moved(source, edited.rgb, matrix)
        if moved.likeness >= _ENOUGH and moved.likeness > best.likeness + (0 if best.moved else _BETTER):
            best = moved
        if best.likeness >= _EXACT:
            break
    return _refined(source, best)


def lines(small: Picture) -> Floats:
    """Edges and features without tone: grey levels minus their surroundings."""
    grey = small.astype(np.float32) @ np.array([0.3, 0.59, 0.11], dtype=np.float32)
    return blur(grey, 1.0) - blur(grey, 5.0)


def correlation(a: Floats, b: Floats) -> float:
    """Correlate two rows of numbers; 0 where one of them is flat."""
    if len(a) < 2:
        return 0.0
    x, y = a - a.mean(), b - b.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0 else 0.0


def _placed(source: Drawing, laid: Picture, covered: Mask | None) -> Placement:
    height, width = source.lines.shape
    small = resize(laid, width, height)
    other = lines(small)
    where = np.ones(source.lines.shape, dtype=np.bool_) if covered is None else covered
    # Edges near the border of the covered part come from pixels that are not there.
    where = where if covered is None else grow(where, -_SMEAR)
    face = source.face & where
    return Placement(
        rgb=laid,
        small=small,
        covered=covered,
        likeness=correlation(source.lines[where], other[where]),
        face_likeness=correlation(source.lines[face], other[face]),
        moved=covered is not None,
    )


def _moved(source: Drawing, edited: Picture, matrix: Matrix) -> Placement:
    laid = warp(edited, matrix, source.width, source.height, outside="edge")
    reached = warp(np.ones(edited.shape[:2], dtype=np.float32), matrix, source.width, source.height)
    height, width = source.lines.shape
    covered = resize(reached, width, height) > 0.99
    return _placed(source, laid, covered)


def _guesses(source: Drawing, edited: Scene) -> Iterator[Matrix]:
    """Candidate alignments: by the faces, or by distinctive spots."""
    if isinstance(source.person, Person) and isinstance(edited.person, Person):
        yield similarity(edited.person.mesh.points.astype(float), source.person.mesh.points.astype(float))
    by_spots = _by_spots(edited.rgb, source.rgb)
    if by_spots is not None:
        yield by_spots


def _by_spots(edited: Picture, source: Picture) -> Matrix | None:
    """Match distinctive spots of both pictures, and find the similarity that most of them agree on."""
    import cv2

    if min(*edited.shape[:2], *source.shape[:2]) < _SMALLEST:
        return None
    finder = cv2.ORB.create(nfeatures=600)
    empty = cast("Any", None)
    points_a, marks_a = finder.detectAndCompute(cv2.cvtColor(edited, cv2.COLOR_RGB2GRAY), empty)
    points_b, marks_b = finder.detectAndCompute(cv2.cvtColor(source, cv2.COLOR_RGB2GRAY), empty)
    if min(len(points_a), len(points_b)) < _FEWEST_SPOTS:
        return None
    matches = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(marks_a, marks_b)
    if len(matches) < _FEWEST_SPOTS:
        return None
    a = np.array([points_a[match.queryIdx].pt for match in matches], dtype=np.float32)
    b = np.array([points_b[match.trainIdx].pt for match in matches], dtype=np.float32)
    matrix, agree = cv2.estimateAffinePartial2D(a, b, ransacReprojThreshold=3.0)
    if cast("Any", matrix) is None or np.count_nonzero(agree) < _FEWEST_SPOTS:
        return None
    return np.asarray(matrix, dtype=np.float64)


def _refined(source: Drawing, placed: Placement) -> Placement:
    """Correct a drift of a few pixels, as editors that resize their input leave behind."""
    import cv2

    if placed.likeness > _EXACT or placed.likeness < _ENOUGH:
        return placed
    height, width = source.lines.shape
    other = lines(placed.small)
    start = np.eye(2, 3, dtype=np.float32)
    reached = cast("Any", None if placed.covered is None else placed.covered.astype(np.uint8))
    stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 12, 1e-3)
    try:
        _, drift = cv2.findTransformECC(source.lines, other, start, cv2.MOTION_AFFINE, stop, reached, 5)
    except cv2.error:
        return placed  # no convergence, so no drift to correct
    inward = np.asarray(drift, dtype=np.float64)
    if np.abs(inward - np.eye(2, 3)).max() > 0.1 * max(height, width) or np.abs(inward[:, :2] - np.eye(2)).max() > 0.1:
        return placed
    outward = np.linalg.inv(np.vstack([inward, [0.0, 0.0, 1.0]]))[:2]
    outward[0, 2] *= source.width / width
    outward[1, 2] *= source.height / height
    better = _moved(source, placed.rgb, outward)
    if better.likeness <= placed.likeness + 0.005:
        return placed
    if placed.covered is not None and better.covered is not None:
        return replace(better, covered=better.covered & placed.covered)
    return better
