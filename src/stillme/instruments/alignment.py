"""Align an edited picture with its source, and measure how well they agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import Floats
from stillme.core.types import Abstained
from stillme.instruments.faces.chips import similarity
from stillme.instruments.faces.raster import Mask, Picture, blur, grow, resize, warp
from stillme.instruments.scene import Person, Scene

Matrix = NDArray[np.float64]

# Correlations of two drawings:
_EXACT = 0.99  # they lie on each other to a fraction of a pixel
_SAME = 0.8  # they show the same, in about the same place
_ENOUGH = 0.5  # the picture is recognised
_BETTER = 0.05  # what moving a picture must gain over leaving it
_SMEAR = 8
_COARSE = (64, 128)
"""Longer sides, before the small copy's own, at which drift is looked for: a pixel there is several of the copy's."""
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
    mirrored: bool = False
    """Whether it was mirrored, and was mirrored back."""
    turned: float = 0.0
    """By how many degrees it had to be turned."""

    @property
    def cover(self) -> float:
        """The share of the source that the edited picture shows."""
        return 1.0 if self.covered is None else float(self.covered.mean())


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
    """Resize the edited picture to its source, and move it where that lets the two agree better over the whole."""
    best = _placed(source, resize(edited.rgb, source.width, source.height), None)
    if _is_mirrored(source, best):
        flipped = np.ascontiguousarray(best.rgb[:, ::-1])
        return replace(_refined(source, _placed(source, flipped, None)), mirrored=True)
    best = _refined(source, best)
    if best.likeness >= _SAME or best.face_likeness >= _SAME:
        return best
    for matrix in _guesses(source, edited):
        moved = _moved(source, edited.rgb, matrix)
        if moved.likeness >= _ENOUGH and moved.likeness > best.likeness + (0 if best.moved else _BETTER):
            best = moved
        if best.likeness >= _EXACT:
            break
    return _refined(source, best)


def _is_mirrored(source: Drawing, placed: Placement) -> bool:
    """Whether the picture is recognised in its mirror image, and not as it is."""
    if placed.likeness >= _EXACT:
        return False
    flipped = correlation(source.lines.ravel(), lines(placed.small)[:, ::-1].ravel())
    # A face before a plain wall is nearly its own mirror image.
    return flipped >= _EXACT or flipped >= max(_ENOUGH, placed.likeness + _BETTER)


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
    return replace(_placed(source, laid, covered), turned=_angle(matrix))


def _angle(matrix: Matrix) -> float:
    """By how many degrees a matrix turns."""
    return float(np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0])))


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
    """Correct a drift, as editors that resize or crop their input leave behind."""
    if placed.likeness > _EXACT:
        return placed
    drift = _drift(source.lines, lines(placed.small), placed.covered)
    if drift is None:
        return placed
    height, width = source.lines.shape
    outward = np.linalg.inv(np.vstack([drift, [0.0, 0.0, 1.0]]))[:2]
    outward[0, 2] *= source.width / width
    outward[1, 2] *= source.height / height
    better = _moved(source, placed.rgb, outward)
    if better.likeness < _ENOUGH or better.likeness <= placed.likeness + 0.005:
        return placed
    covered = better.covered if placed.covered is None or better.covered is None else better.covered & placed.covered
    return replace(better, covered=covered, turned=placed.turned + better.turned, mirrored=placed.mirrored)


def _drift(source: Floats, edited: Floats, covered: Mask | None) -> Matrix | None:
    """How the edited lines lie in the source's: found in coarse copies first, where a wide drift is a narrow one."""
    import cv2

    height, width = source.shape
    longest = max(height, width)
    found = np.eye(2, 3, dtype=np.float32)
    for side in (*(side for side in _COARSE if side < longest), longest):
        scale = side / longest
        size = max(round(width * scale), 1), max(round(height * scale), 1)
        a, b = (resize(blur(part, 0.4 / scale) if scale < 1 else part, *size) for part in (source, edited))
        reached = None if covered is None else (resize(covered.astype(np.float32), *size) > 0.99).astype(np.uint8)
        start = found.copy()
        start[:, 2] *= scale
        stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 12 if scale == 1 else 30, 1e-3)
        try:
            _, step = cv2.findTransformECC(a, b, start, cv2.MOTION_AFFINE, stop, cast("Any", reached), 5)
        except cv2.error:
            continue  # no convergence at this size
        found = np.asarray(step, dtype=np.float32)
        found[:, 2] /= scale
    inward = found.astype(np.float64)
    if np.abs(inward - np.eye(2, 3)).max() > 0.1 * longest or np.abs(inward[:, :2] - np.eye(2)).max() > 0.1:
        return None
    return inward
