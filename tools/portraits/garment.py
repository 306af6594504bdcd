# SPDX-License-Identifier: GPL-3.0-or-later
"""Clothes: the base mesh's tights helper, cut at a neckline and finished with a collar."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from .mesh import Part, part, unit, vertex_normals

_OFFSET = 0.06
"""Cloth stands off the skin by this much."""
_LOWEST = 2.6
_COLLARBONE = 5.62
"""Height of the neckline's lowest point on the base body when it is round."""


@dataclass(frozen=True)
class Cutting:
    """A kind of garment: its neckline seen from above, and its collar."""

    side: float
    front: float
    back: float
    point: float
    """How far the neckline runs to a point in front (0 is round)."""
    collar: str
    """`band`, `roll` (up the neck) or `shirt`."""
    pattern: str = "plain"


GARMENTS = {
    "crew": Cutting(0.72, 0.70, 0.52, 0.0, "band"),
    "striped": Cutting(0.74, 0.74, 0.54, 0.0, "band", "stripes"),
    "vneck": Cutting(0.74, 0.72, 0.53, 0.55, "band"),
    "heather": Cutting(0.72, 0.70, 0.52, 0.0, "band", "heather"),
    "rollneck": Cutting(0.66, 0.62, 0.47, 0.0, "roll"),
    "shirt": Cutting(0.68, 0.64, 0.49, 0.16, "shirt"),
}
GARMENT_COLOURS = {
    "navy": "2b3a55", "charcoal": "3c4043", "olive": "5a5f42", "burgundy": "5e2a35", "teal": "2f5d62",
    "sand": "b9a98c", "rust": "8f5137", "slate": "5f6f80", "plum": "54405c", "forest": "35513f",
    "offwhite": "cfcac0", "denim": "4a648a",
}  # fmt: skip


@dataclass(frozen=True)
class Garment:
    """Meshes of one garment."""

    body: Part
    cut: np.ndarray
    """Per vertex of the body: above 1 there is cloth."""
    stripe: np.ndarray
    """Per vertex: height on the undeformed body, for patterns."""
    collar_vertices: np.ndarray
    collar_faces: np.ndarray
    pattern: str


def _neckline(cutting: Cutting, base: np.ndarray) -> np.ndarray:
    """1 on the neckline, more outside it; measured on the base body so that every shape fits."""
    x, y, z = base[:, 0], base[:, 1], base[:, 2] - 0.10
    field = np.hypot(x / cutting.side, z / np.where(z > 0, cutting.front, cutting.back))
    if cutting.point:
        # Seen from the front, the opening runs down to a point on the breastbone.
        lowest = _COLLARBONE - cutting.point
        slope = cutting.point / (0.55 * cutting.side)
        field = np.where(z > 0, np.minimum(field, 1 + 2 * (lowest + slope * np.abs(x) - y)), field)
    return np.where(y < 4.4, 3.0, field)


def _contour(
    vertices: np.ndarray, faces: np.ndarray, field: np.ndarray, base: np.ndarray, smoothing: float
) -> np.ndarray:
    """The neckline as a smooth closed curve of 240 points, starting at the back."""
    edges = np.concatenate([faces[:, [i, (i + 1) % 4]] for i in range(4)])
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    a, b = edges.T
    crossing = (field[a] - 1) * (field[b] - 1) < 0
    a, b = a[crossing], b[crossing]
    t = ((1 - field[a]) / (field[b] - field[a]))[:, None]
    points = vertices[a] * (1 - t) + vertices[b] * t
    flat = base[a] * (1 - t) + base[b] * t
    angle = np.arctan2(flat[:, 0], flat[:, 2] - 0.10)
    order = np.argsort(angle)
    even = np.linspace(-np.pi, np.pi, 240, endpoint=False)
    ring = np.stack([np.interp(even, angle[order], points[order, i], period=2 * np.pi) for i in range(3)], 1)
    # Smoothing takes away the mesh's own zigzag; a pointed neckline keeps more of its shape.
    return ndimage.gaussian_filter1d(ring, smoothing, axis=0, mode="wrap")


def _grid_faces(rows: int, columns: int, closed: bool) -> np.ndarray:
    """Quads of a grid of points (row-major), the rows joined into a ring if closed."""
    row = np.arange(rows if closed else rows - 1)
    i, j = np.meshgrid(row, np.arange(columns - 1), indexing="ij")
    after = (i + 1) % rows
    return np.stack([i * columns + j, after * columns + j, after * columns + j + 1, i * columns + j + 1], -1).reshape(
        -1, 4
    )


def _ring_collar(kind: str, contour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A band or a roll: one profile swept along the whole neckline."""
    count = len(contour)
    outward = unit((contour - contour.mean(0)) * [1.0, 0.0, 1.0])
    up = np.array([0.0, 1.0, 0.0])
    if kind == "roll":
        profile = [
            (-0.16, 0.05),
            (-0.06, 0.095),
            (0.05, 0.085),
            (0.20, 0.045),
            (0.33, 0.015),
            (0.40, 0.02),
            (0.42, -0.01),
            (0.38, -0.035),
            (0.2, -0.03),
        ]
    else:
        profile = [(-0.065, 0.012), (-0.03, 0.032), (0.015, 0.030), (0.05, 0.008), (0.045, -0.02), (0.0, -0.03)]
    rows = [contour + height * up + out * outward for height, out in profile]
    return np.stack(rows, 1).reshape(-1, 3), _grid_faces(count, len(profile), closed=True)


def make_garment(vertices: np.ndarray, base_vertices: np.ndarray, kind: str) -> Garment:
    cutting = GARMENTS[kind]
    bare = part(vertices, "helper-tights", _LOWEST)
    body = Part(
        vertices=bare.vertices + _OFFSET * vertex_normals(bare.vertices, bare.faces),
        faces=bare.faces,
        loop_uv=bare.loop_uv,
        base_index=bare.base_index,
    )
    base = base_vertices[bare.base_index]
    field = _neckline(cutting, base)
    contour = _contour(body.vertices, body.faces, field, base, 4.0 if cutting.point else 12.0)
    if cutting.collar == "shirt":
        collar_vertices, collar_faces = _shirt_collar(contour)
    else:
        collar_vertices, collar_faces = _ring_collar(cutting.collar, contour)
    # Cloth runs on a little under the collar, under a roll collar all the way: no gap may show.
    under = 0.22 if cutting.collar == "roll" else 0.03
    return Garment(body, field + under, base[:, 1], collar_vertices, collar_faces, cutting.pattern)


def _shirt_collar(contour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stand, fold and leaf around the neck, open in front."""
    neck = contour.mean(0)
    # The neckline starts at the back; begin in front, so that the opening lies there.
    contour = np.roll(contour, len(contour) // 2, axis=0)
    angle = np.linspace(-np.pi, np.pi, len(contour), endpoint=False)
    keep = np.pi - np.abs(angle) > 0.02
    at = contour[keep]
    from_front = (np.pi - np.abs(angle[keep]))[:, None]
    frontness = np.exp(-((from_front / 0.60) ** 2))
    out = unit((at - neck) * [1.0, 0.0, 1.0])
    up = np.array([0.0, 1.0, 0.0])
    leaf = 0.32 + 0.30 * frontness
    stand = 0.26 - 0.10 * frontness
    # The leaves spread sideways from the opening.
    aside = np.sign(at[:, :1]) * np.array([[1.0, 0.0, 0.0]]) * frontness
    rows = [
        at - 0.08 * up + 0.0 * out,
        at + 0.5 * stand * up - 0.02 * out,
        at + stand * up - 0.04 * out,
        at + (stand + 0.035) * up - 0.015 * out,
        at + (stand + 0.02) * up + 0.035 * out,
        at + (stand - 0.33 * leaf) * up + (0.085 + 0.05 * frontness) * out + 0.05 * aside,
        at + (stand - 0.66 * leaf) * up + (0.145 + 0.08 * frontness) * out + 0.13 * aside,
        at + (stand - leaf) * up + (0.19 + 0.10 * frontness) * out + 0.22 * aside,
    ]
    return np.stack(rows, 1).reshape(-1, 3), _grid_faces(len(at), len(rows), closed=False)
