# SPDX-License-Identifier: GPL-3.0-or-later
"""Grow hair: strands on scalp, brows, lids and jaw.

A few thousand guide strands are combed over the head step by step and kept out
of skin and clothes; every other strand follows its nearest guide. That is
both faster and more hair-like than growing all of them: hair comes in locks.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from .chart import chart, chart_uv, smoothstep
from .identity import brow_shape
from .mesh import HeadFrame, Part, base_mesh, body_normals, head_frame, unit, vertex_normals
from .parameters import Person
from .scalp import beard_area, scalp_cover

_UP = np.array([0.0, 1.0, 0.0])


@dataclass(frozen=True)
class Strands:
    """Polylines of equal length: (strand, point, xyz) in decimetres."""

    points: np.ndarray
    radius: float
    """At the root; strands taper."""


@dataclass(frozen=True)
class Cut:
    """A haircut: lengths in decimetres of a head of base size."""

    top: float
    sides: float
    flow: str
    """`whorl` (out from the crown), `part` (away from a parting) or `back` (swept back)."""
    volume: float
    """How far the outer hair stands off the head."""
    part: float = 0.1
    coily_length: float = 0.3
    """Length when the texture is coily: such hair stands rather than falls."""


CUTS = {
    "buzz": Cut(0.07, 0.06, "whorl", 0.02, coily_length=0.06),
    "crop": Cut(0.34, 0.16, "whorl", 0.10, coily_length=0.16),
    "short": Cut(0.50, 0.20, "whorl", 0.16, coily_length=0.24),
    "sidepart": Cut(0.72, 0.22, "part", 0.15, part=0.24, coily_length=0.30),
    "swept": Cut(0.85, 0.26, "back", 0.16, coily_length=0.36),
    "pixie": Cut(0.80, 0.50, "part", 0.14, part=-0.22, coily_length=0.34),
    "bob": Cut(1.62, 1.50, "part", 0.21, part=0.12, coily_length=0.44),
    "shoulder": Cut(2.45, 2.30, "part", 0.18, part=-0.10, coily_length=0.52),
    "long": Cut(3.30, 3.20, "part", 0.17, part=0.05, coily_length=0.60),
}


@dataclass(frozen=True)
class Texture:
    """How single strands bend."""

    curl: float
    """Radius of the curl."""
    turns: float
    """Turns per decimetre."""
    clump: float
    frizz: float
    fullness: float
    """Factor on the cut's volume."""
    shrink: float
    """Factor on the cut's length."""
    radius: float


TEXTURES = {
    "straight": Texture(0.006, 0.4, 0.55, 0.020, 0.85, 1.0, 0.00105),
    "fine": Texture(0.016, 0.8, 0.55, 0.022, 1.0, 1.0, 0.00095),
    "wavy": Texture(0.032, 1.2, 0.62, 0.022, 1.15, 0.97, 0.00105),
    "curly": Texture(0.055, 2.6, 0.68, 0.035, 1.6, 0.85, 0.00110),
    "coily": Texture(0.030, 8.0, 0.35, 0.045, 1.0, 1.0, 0.00120),
}
_GUIDES, _STRANDS = 3400, 30000


@dataclass(frozen=True)
class _Roots:
    points: np.ndarray
    normals: np.ndarray
    cover: np.ndarray


def _sample_roots(vertices: np.ndarray, density: np.ndarray, count: int, rng: np.random.Generator) -> _Roots:
    """Points on the head, as dense as the map says."""
    place = chart()
    rows, columns = density.shape
    texture = np.clip(chart_uv(base_mesh().texture_vertices), 0, 0.9999)

    def density_at(uv: np.ndarray) -> np.ndarray:
        return density[((1 - uv[..., 1]) * rows).astype(int) % rows, (uv[..., 0] * columns).astype(int)]

    corners = texture[place.triangle_texture]
    candidates = np.maximum(density_at(corners).max(1), density_at(corners.mean(1))) > 0.02
    a, b, c = (vertices[place.triangles[:, i]] for i in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1) * candidates
    chosen = rng.choice(len(area), size=count * 4, p=area / area.sum())
    weights = rng.dirichlet([1, 1, 1], len(chosen))
    cover = density_at((corners[chosen] * weights[:, :, None]).sum(1))
    kept = np.flatnonzero(rng.random(len(chosen)) < cover)[:count]
    chosen, weights = place.triangles[chosen[kept]], weights[kept][:, :, None]
    normals = body_normals(vertices)
    return _Roots((vertices[chosen] * weights).sum(1), unit((normals[chosen] * weights).sum(1)), cover[kept])


class _Obstacle:
    """Skin and clothes, which hair may not enter."""

    def __init__(self, vertices: np.ndarray, garment: Part) -> None:
        triangles = chart().triangles
        normals = body_normals(vertices)
        points, directions = [vertices[np.unique(triangles)]], [normals[np.unique(triangles)]]
        for corners in ((0, 1, 2), (0, 1), (1, 2), (0, 2)):
            points.append(vertices[triangles[:, corners]].mean(1))
            directions.append(unit(normals[triangles[:, corners]].mean(1)))
        points.append(garment.vertices)
        directions.append(vertex_normals(garment.vertices, garment.faces))
        self.points, self.normals = np.concatenate(points), np.concatenate(directions)
        self.tree = cKDTree(self.points)

    def keep_out(self, points: np.ndarray, clearance: np.ndarray, cling: np.ndarray) -> np.ndarray:
        """Lift points to their clearance; draw those above it down by `cling` (0…1)."""
        distance, index = self.tree.query(points, k=3, workers=1)
        weights = 1 / (distance + 1e-3)
        weights /= weights.sum(1, keepdims=True)
        normals = unit((self.normals[index] * weights[..., None]).sum(1))
        surface = (self.points[index] * weights[..., None]).sum(1)
        height = ((points - surface) * normals).sum(1)
        shift = np.maximum(clearance - height, 0) - cling * np.maximum(height - clearance, 0)
        return points + normals * shift[:, None]


def _comb(cut: Cut, points: np.ndarray, normals: np.ndarray, frame: HeadFrame) -> np.ndarray:
    """The direction in which hair rooted here is combed."""
    scale = frame.scale
    crownness = smoothstep(0.1, 0.75, normals[:, 1])[:, None]
    x = points[:, 0] / scale
    down = np.tile([0.0, -1.0, -0.25], (len(points), 1))
    match cut.flow:
        case "whorl":
            crown = frame.midpoint + np.array([0.08, 1.25, -1.15]) * scale
            out = unit((points - crown) * [1.0, 0.25, 1.0])
            # The fringe is combed a little aside, so that it does not fall like a brush.
            out = out + np.array([0.45, 0.12, -0.15]) * smoothstep(
                -0.4, 0.2, (points[:, 2:] - frame.midpoint[2]) / scale
            )
            return unit(out * crownness + down * (1 - crownness))
        case "part":
            # No parting is a ruled line: roots beside it fall to either side.
            line = cut.part + 0.03 * np.sin(8 * points[:, 2] / scale) + 0.02 * np.sin(997 * points.sum(1))
            away = np.where(x > line, 1.0, -1.0)
            across = np.stack([away, np.full_like(x, -0.05), np.full_like(x, -0.35)], 1)
            falling = np.stack([0.15 * away, np.full_like(x, -1.0), np.full_like(x, -0.40)], 1)
            return unit(across * crownness + falling * (1 - crownness))
        case "back":
            back = np.stack([0.12 * x, np.full_like(x, 0.10), np.full_like(x, -1.0)], 1)
            return unit(back * (0.3 + 0.7 * crownness) + down * (1 - crownness) * 0.8)
        case unknown:
            raise ValueError(f"No such flow of hair: {unknown!r}.")


def _grow_guides(
    roots: _Roots, person: Person, frame: HeadFrame, obstacle: _Obstacle, rng: np.random.Generator
) -> np.ndarray:
    """Comb the guides over the head, one step after the other."""
    cut, texture = CUTS[person.hair.cut], TEXTURES[person.hair.texture]
    scale, count = frame.scale, len(roots.points)
    standing = person.hair.texture == "coily"
    crownness = smoothstep(0.1, 0.75, roots.normals[:, 1])
    length = cut.sides + (cut.top - cut.sides) * crownness
    if standing:
        length = np.full(count, cut.coily_length) * (0.82 + 0.18 * crownness)
    # At the hairline hair is short and fine.
    length = (
        length * texture.shrink * rng.uniform(0.82, 1.05, count) * (0.15 + 0.85 * smoothstep(0.05, 0.6, roots.cover))
    )
    length = length * scale
    steps = int(np.clip(8 * float(length.max()) / scale, 5, 26))
    step = (length / steps)[:, None]

    volume = cut.volume * texture.fullness * (1 - 0.35 * person.hair.recession)
    clearance = (rng.beta(1.2, 1.7, count) * volume + 0.008) * scale * (0.45 + 0.55 * crownness)
    if cut.flow == "part":
        clearance *= 0.50 + 0.50 * smoothstep(0.0, 0.28, np.abs(roots.points[:, 0] / scale - cut.part))
    combed = _comb(cut, roots.points, roots.normals, frame)
    lift = 0.9 if standing else (0.75 if cut.top < 0.6 else 0.45)
    direction = unit(
        roots.normals * lift + combed * (0.15 if standing else 0.7) + 0.08 * rng.standard_normal((count, 3))
    )
    points = [roots.points - 0.006 * scale * roots.normals]
    position = points[0]
    for i in range(steps):
        t = (i + 1) / steps
        if standing:
            pull = roots.normals * 0.5 + 0.1 * _UP
        else:
            pull = combed * max(0.0, 1 - 1.6 * t * min(1.0, float(length.max()) / scale))
        gravity = 0.0 if standing or cut.top < 0.1 else 0.05 if cut.top < 0.6 else 0.28
        direction = unit(
            0.65 * direction + 0.42 * pull - _UP * gravity * (0.4 + 0.9 * t) + 0.03 * rng.standard_normal((count, 3))
        )
        moved = position + direction * step
        near_head = smoothstep(frame.midpoint[1] - 0.35 * scale, frame.midpoint[1] + 0.25 * scale, moved[:, 1])
        cling = (0.0 if standing else 0.40) * near_head
        kept = obstacle.keep_out(moved, clearance * min(1.0, 0.3 + 1.4 * t), cling)
        direction = unit(0.5 * direction + 0.5 * unit(kept - position))
        position = kept
        points.append(position)
    return np.stack(points, 1)


def _follow(
    guides: np.ndarray, guide_roots: _Roots, roots: _Roots, person: Person, scale: float, rng: np.random.Generator
) -> np.ndarray:
    """Let every strand run along its nearest guide, gathered into locks and curled."""
    cut, texture = CUTS[person.hair.cut], TEXTURES[person.hair.texture]
    count, steps = len(roots.points), guides.shape[1]

    def sided(points: np.ndarray) -> np.ndarray:
        # A strand must not follow a guide across the parting.
        apart = np.where(points[:, 0] / scale > cut.part, 1.0, -1.0) if cut.flow == "part" else np.zeros(len(points))
        return np.c_[points, apart]

    nearest = cKDTree(sided(guide_roots.points)).query(sided(roots.points))[1]
    t = np.linspace(0, 1, steps)
    shortened = t[None] * rng.uniform(0.78, 1.0, (count, 1)) * (steps - 1)
    low = np.minimum(shortened.astype(int), steps - 2)
    fraction = (shortened - low)[..., None]
    along = guides[nearest]
    rows = np.arange(count)[:, None]
    followed = along[rows, low] * (1 - fraction) + along[rows, low + 1] * fraction
    gather = 1 - texture.clump * t[None, :, None] ** 0.8 * rng.uniform(0.5, 1.2, (count, 1, 1))
    offset = (roots.points - 0.006 * scale * roots.normals - guides[nearest, 0])[:, None]
    stray = rng.standard_normal((count, 1, 3)) * texture.frizz * scale * t[None, :, None] ** 1.3
    stray = stray * np.where(rng.random((count, 1, 1)) < 0.06, 2.2, 0.8)
    strands = followed + offset * gather + stray
    if texture.curl > 0 and cut.top > 0.1:
        travelled = np.r_[[0.0], np.cumsum(np.linalg.norm(np.diff(guides.mean(0), axis=0), axis=1))] / scale
        phase = rng.uniform(0, 2 * np.pi, len(guides))[nearest] + rng.normal(0, 0.45, count)
        turns = (texture.turns * rng.uniform(0.8, 1.25, len(guides)))[nearest]
        sense = np.where(rng.random(len(guides)) < 0.5, 1.0, -1.0)[nearest]
        tangent = unit(np.gradient(strands, axis=1))
        first = unit(np.cross(tangent, np.array([0.3, 0.2, 0.9])))
        second = np.cross(tangent, first)
        angle = phase[:, None] + (sense * turns)[:, None] * 2 * np.pi * travelled[None]
        radius = (texture.curl * scale * np.minimum(1, 2.5 * t))[None, :, None]
        strands = strands + radius * (np.cos(angle)[..., None] * first + np.sin(angle)[..., None] * second)
    return strands


def _tidy(strands: np.ndarray, person: Person, frame: HeadFrame) -> np.ndarray:
    """Drop strands that stick out sideways, jump, or cross the face or throat."""
    cut, scale = CUTS[person.hair.cut], frame.scale
    across = np.abs(strands[..., 0]) / scale
    height = (strands[..., 1] - frame.midpoint[1]) / scale
    depth = (strands[..., 2] - frame.midpoint[2]) / scale
    over_face = ((across < 0.50) & (height < 0.42) & (depth > -0.3)).any(1)
    over_throat = ((across < 0.62) & (height < -0.80) & (depth > -1.1)).any(1)
    wide = ((across > 1.30) & (height > -1.6)).any(1)
    stride = np.linalg.norm(np.diff(strands, axis=1), axis=2)
    jumps = stride.max(1) > 4 * np.median(stride, axis=1) + 0.02
    if person.hair.texture == "coily" or cut.top < 0.6:
        return strands[~over_face]
    return strands[~(over_face | over_throat | wide | jumps)]


def head_hair(vertices: np.ndarray, garment: Part, person: Person) -> Strands:
    frame = head_frame(vertices)
    rng = np.random.default_rng([person.seed, 5])
    cover = scalp_cover(person)
    roots = _sample_roots(vertices, cover**0.85, _STRANDS, rng)
    guide_roots = _sample_roots(vertices, np.sqrt(cover), _GUIDES, rng)
    guides = _grow_guides(guide_roots, person, frame, _Obstacle(vertices, garment), rng)
    strands = _follow(guides, guide_roots, roots, person, frame.scale, rng)
    return Strands(_tidy(strands, person, frame), TEXTURES[person.hair.texture].radius * frame.scale)


def brows(vertices: np.ndarray, person: Person) -> Strands:
    place, own, frame = chart(), brow_shape(person), head_frame(vertices)
    rng = np.random.default_rng([person.seed, 6])
    x = np.abs(place.x)
    t = (x - own.inner) / (own.outer - own.inner)
    inside = np.clip(t, 0, 1)
    middle = (
        7.405 + own.height + own.arch * np.sin(inside * 2.35) - 0.05 * np.clip(t - 0.6, 0, 1) + 0.028 * (1 - inside)
    )
    width = own.thickness * (1 - 0.62 * smoothstep(0.45, 1, t))
    density = (place.head & (place.z > 0.9)) * np.exp(-(((place.y - middle) / width) ** 4))
    density = density * smoothstep(-0.06, 0.14, t) * smoothstep(1.05, 0.8, t)
    roots = _sample_roots(
        vertices,
        density.astype(np.float32),
        int(700 * own.density * person.hair.brow_weight * (1 + 0.15 * person.gender)),
        rng,
    )
    count = len(roots.points)
    outward = np.sign(roots.points[:, 0])
    t = np.clip((np.abs(roots.points[:, 0]) / frame.scale - own.inner) / (own.outer - own.inner), 0, 1)
    direction = np.stack([outward * (0.45 + 0.55 * t), 0.62 * (1 - t) ** 1.5 - 0.25 * t, np.zeros(count)], 1)
    direction += 0.12 * rng.standard_normal((count, 3))
    direction = unit(direction - (direction * roots.normals).sum(1, keepdims=True) * roots.normals)
    length = (0.078 * rng.uniform(0.5, 1.15, count) * frame.scale)[:, None]
    points = [roots.points - 0.004 * frame.scale * roots.normals]
    for t in (0.25, 0.5, 0.75, 1.0):
        points.append(roots.points + direction * length * t + roots.normals * 0.010 * frame.scale * np.sin(2.6 * t))
    return Strands(np.stack(points, 1), 0.00085 * frame.scale)


def beard(vertices: np.ndarray, person: Person) -> Strands | None:
    """Stubble to short beard; none below half a millimetre."""
    if person.hair.beard < 0.5:
        return None
    frame = head_frame(vertices)
    rng = np.random.default_rng([person.seed, 7])
    count = int(9000 + 900 * min(person.hair.beard, 8))
    roots = _sample_roots(vertices, beard_area(), count, rng)
    length = (person.hair.beard / 100) * frame.scale * rng.uniform(0.6, 1.15, (len(roots.points), 1))
    lean = np.array([0.0, -0.9, 0.15]) + 0.25 * rng.standard_normal((len(roots.points), 3))
    curl = 0.3 if person.hair.texture in ("coily", "curly") else 0.1
    points = [roots.points - 0.004 * frame.scale * roots.normals]
    direction = unit(roots.normals * 0.7 + 0.6 * lean)
    for _ in range(4):
        direction = unit(direction + 0.25 * lean + curl * rng.standard_normal(direction.shape))
        points.append(points[-1] + direction * length / 4)
    return Strands(np.stack(points, 1), 0.0008 * frame.scale)


def lashes(vertices: np.ndarray, person: Person) -> Strands:
    """Lashes along the helper strips that the base mesh has for them."""
    base, frame = base_mesh(), head_frame(vertices)
    rng = np.random.default_rng([person.seed, 8])
    strands = []
    for side, centre in zip("lr", frame.eye_centres):
        for row, repeats in (("1", 7), ("2", 2)):
            for face in base.faces[base.groups == f"helper-{side}-eyelashes-{row}"]:
                corners = vertices[face]
                order = np.argsort(np.linalg.norm(corners - centre, axis=1))
                a, b = int(order[0]), int(order[1])
                if abs(a - b) not in (1, 3):
                    continue
                forward = (a + 1) % 4 == b
                tip_a, tip_b = ((a - 1) % 4, (b + 1) % 4) if forward else ((a + 1) % 4, (b - 1) % 4)
                for u in rng.random(repeats):
                    root = corners[a] * (1 - u) + corners[b] * u
                    tip = corners[tip_a] * (1 - u) + corners[tip_b] * u
                    reach = float(rng.uniform(0.7, 1.05)) * (1.0 - 0.25 * person.gender)
                    strands.append([root + (tip - root) * reach * t for t in (0, 0.35, 0.7, 1)])
    return Strands(np.array(strands), 0.0007 * frame.scale)
