# SPDX-License-Identifier: GPL-3.0-or-later
"""Paint skin: colour and relief as functions of the place on the head, the age and the identity.

No photograph is involved. Colours are offsets in CIELAB around a target tone;
relief is a height in millimetres, later used as bump.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from .chart import Chart, chart, noise, painted_mask, smoothstep
from .colour import lab_to_linear, linear_to_lab
from .identity import ageing
from .parameters import Person
from .scalp import beard_area, scalp_cover

_SHEEN = 0.032
"""Light that skin mirrors rather than colours, in linear light; the rest of the target must come from its colour."""

DEEPEST, HIGHEST = -1.6, 0.6
"""The range of the relief in millimetres."""


@dataclass(frozen=True)
class Skin:
    """Textures in chart texels, row 0 at the top."""

    albedo: np.ndarray
    """Linear RGB."""
    relief: np.ndarray
    """Height in millimetres."""
    gloss: np.ndarray
    """1 where skin is oily (nose, forehead), 0 where it is matt."""


@dataclass(frozen=True)
class Crease:
    """A line that age draws: a polyline in (|x|, y) of the base head, in decimetres."""

    points: Sequence[tuple[float, float]]
    width: float
    depth: float
    """Millimetres when fully grown."""
    onset: float
    """The age at which it begins to show."""
    grown: float
    growth: float = 0.65
    """Below 1 a crease deepens early; it never matters before its onset."""


_CREASES = (
    # Creases of every adult face.
    Crease([(0.00, 6.545), (0.10, 6.55), (0.17, 6.565)], 0.030, 0.36, 10, 40, growth=1.0),  # under the lower lip
    Crease([(0.14, 7.17), (0.20, 7.125), (0.27, 7.10)], 0.022, 0.24, 16, 60, growth=1.0),  # tear trough
    # Nasolabial fold and its echo.
    Crease([(0.185, 7.02), (0.25, 6.93), (0.315, 6.80), (0.345, 6.68)], 0.024, 1.20, 24, 80),
    Crease([(0.39, 6.93), (0.425, 6.82), (0.43, 6.68), (0.40, 6.55)], 0.016, 0.36, 52, 85),
    Crease([(0.47, 6.98), (0.50, 6.86), (0.49, 6.72)], 0.013, 0.28, 58, 88),
    # Marionette line and chin.
    Crease([(0.285, 6.67), (0.315, 6.58), (0.315, 6.47)], 0.018, 0.95, 38, 80),
    Crease([(0.07, 6.50), (0.15, 6.46), (0.20, 6.40)], 0.018, 0.5, 55, 90),
    # Under and beside the eye.
    Crease([(0.16, 7.155), (0.25, 7.095), (0.36, 7.095), (0.45, 7.15)], 0.017, 0.85, 30, 78),
    Crease([(0.18, 7.12), (0.27, 7.055), (0.38, 7.05), (0.47, 7.10)], 0.014, 0.60, 44, 80),
    Crease([(0.21, 7.175), (0.29, 7.14), (0.38, 7.15)], 0.008, 0.40, 33, 70),
    Crease([(0.455, 7.30), (0.52, 7.35), (0.585, 7.40)], 0.010, 0.70, 33, 70),
    Crease([(0.46, 7.265), (0.53, 7.275), (0.60, 7.30)], 0.010, 0.75, 31, 68),
    Crease([(0.455, 7.225), (0.52, 7.20), (0.59, 7.18)], 0.010, 0.70, 33, 70),
    Crease([(0.44, 7.19), (0.49, 7.14), (0.545, 7.09)], 0.010, 0.60, 38, 74),
    Crease([(0.50, 7.33), (0.57, 7.355)], 0.007, 0.45, 48, 78),
    Crease([(0.49, 7.17), (0.56, 7.13)], 0.007, 0.45, 48, 78),
    # Between the brows.
    Crease([(0.060, 7.34), (0.068, 7.42), (0.060, 7.49)], 0.013, 0.55, 38, 74),
    Crease([(0.00, 7.30), (0.06, 7.305)], 0.011, 0.5, 50, 80),
    # Neck.
    Crease([(0.00, 6.18), (0.25, 6.22), (0.50, 6.32)], 0.016, 0.7, 30, 75),
    Crease([(0.00, 6.00), (0.25, 6.03), (0.50, 6.12)], 0.016, 0.7, 34, 78),
)


class _Relief:
    """Height under construction."""

    def __init__(self, place: Chart, rng: np.random.Generator) -> None:
        self.place = place
        self.height = np.zeros(place.shape, np.float32)
        self.rng = rng
        self.wobble = 0.008 * noise(24, rng) + 0.002 * noise(8, rng)
        self.breaks = noise(26, rng)

    def carve(self, points: np.ndarray, side: int, width: float, depth: float) -> None:
        """Press a groove with soft shoulders along a polyline of one half of the face."""
        place = self.place
        x = place.x * side
        low, high = points.min(0) - 4 * width - 0.03, points.max(0) + 4 * width + 0.03
        near = place.head & (x > low[0]) & (x < high[0]) & (place.y > low[1]) & (place.y < high[1]) & (place.z > 0.3)
        if side > 0 and points[0, 0] == 0.0:
            near &= x >= 0
        px, py = x[near] + self.wobble[near], place.y[near] + 0.6 * self.wobble[near]
        lengths = np.r_[0, np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))]
        best, along = np.full(px.shape, 9.0), np.zeros(px.shape)
        for start, end, before in zip(points[:-1], points[1:], lengths):
            step = end - start
            t = np.clip(((px - start[0]) * step[0] + (py - start[1]) * step[1]) / (step @ step), 0, 1)
            distance = np.hypot(px - start[0] - t * step[0], py - start[1] - t * step[1])
            closer = distance < best
            best[closer] = distance[closer]
            along[closer] = before + t[closer] * np.linalg.norm(step)
        position = along / lengths[-1]
        # A crease fades at its ends (not at the midline) and never runs evenly.
        start_fade = 1.0 if points[0, 0] == 0.0 else smoothstep(-0.02, 0.22, position)
        strength = start_fade * smoothstep(1.02, 0.7, position) * np.clip(0.95 + 0.15 * self.breaks[near], 0.5, 1.3)
        groove = np.exp(-((best / width) ** 2)) - 0.30 * np.exp(-(((best - 2.1 * width) / (1.3 * width)) ** 2))
        self.height[near] -= depth * strength * groove

    def add_creases(self, age: float, strength: float) -> None:
        for crease in _CREASES:
            grown = float(smoothstep(crease.onset, crease.grown, age)) ** crease.growth
            for side in (-1, 1):
                points = np.array(crease.points) + self.rng.normal(0, 0.006, (len(crease.points), 2)) * [1, 1]
                points[:, 0] = np.where(np.array(crease.points)[:, 0] == 0, 0, points[:, 0])
                depth = crease.depth * grown * float(self.rng.uniform(0.7, 1.2))
                if crease.growth < 1:
                    depth *= strength
                if depth > 0.02:
                    self.carve(points, side, crease.width, depth)

    def add_forehead_lines(self, age: float) -> None:
        place, rng = self.place, self.rng
        count = int(rng.integers(3, 6))
        for level in np.linspace(7.60, 7.90, count) + rng.normal(0, 0.012, count):
            depth = 0.95 * float(smoothstep(33, 72, age)) ** 0.7 * float(rng.uniform(0.5, 1.1))
            middle, reach = float(rng.normal(0, 0.05)), float(rng.uniform(0.30, 0.48))
            bend = float(rng.uniform(-0.06, 0.10))
            offset = place.y + 1.3 * self.wobble + bend * place.x**2 - level
            groove = np.exp(-((offset / 0.012) ** 2)) - 0.3 * np.exp(-(((np.abs(offset) - 0.026) / 0.016) ** 2))
            fade = smoothstep(reach, reach - 0.2, np.abs(place.x - middle)) * smoothstep(0.85, 1.05, place.z)
            self.height -= depth * groove * fade * np.clip(0.9 + 0.4 * self.breaks, 0.1, 1.3) * place.head

    def add_lip_lines(self, age: float) -> None:
        """Fine upright lines over the upper lip, and the lips' own texture."""
        place = self.place
        waves = np.clip(np.sin(place.x * 2 * np.pi / 0.05 + 90 * self.wobble), 0, 1) ** 3
        band = smoothstep(6.77, 6.80, place.y) * smoothstep(6.95, 6.87, place.y)
        near = smoothstep(0.27, 0.16, np.abs(place.x)) * (place.z > 1.2)
        self.height -= 0.40 * float(smoothstep(50, 80, age)) * waves * band * near
        lip_lines = np.clip(np.sin(place.x * 2 * np.pi / 0.028 + 60 * self.wobble), 0, 1) ** 2
        self.height -= 0.10 * lip_lines * painted_mask("lips", 3.0)

    def add_crinkle(self, age: float, bare: np.ndarray) -> None:
        """The mesh of fine lines on cheeks, lids and neck of late years."""
        place = self.place
        amount = float(smoothstep(45, 84, age))
        if amount == 0:
            return
        ridges = 1 - np.clip(np.abs(noise(3.2, self.rng) - 0.5 * noise(8, self.rng)) * 1.6, 0, 1)
        sides = np.abs(place.x)
        cheeks = smoothstep(0.24, 0.45, sides) * smoothstep(7.35, 7.2, place.y) * smoothstep(0.2, 0.6, place.z)
        lids = np.exp(-(((sides - 0.31) / 0.18) ** 2) - (((place.y - 7.16) / 0.10) ** 2)) * (place.z > 0.8)
        neck = smoothstep(6.4, 6.2, place.y)
        self.height -= 0.26 * amount * ridges * np.clip(cheeks + 0.9 * lids + 0.8 * neck, 0, 1) * bare * place.head


def _colour(person: Person, rng: np.random.Generator) -> np.ndarray:
    """Regional colour: blood in cheeks, nose and ears, shade around the eyes, lips, mottling."""
    place = chart()
    x, y, z = np.abs(place.x), place.y, place.z
    target = linear_to_lab(np.maximum(lab_to_linear(np.array(person.skin_lab)) - _SHEEN, 0.004))
    # Blood shows less through dark skin; shade shows more.
    lightness = float(np.clip((target[0] - 22) / 45, 0.3, 1))
    depth = 1 - lightness
    feminine, old = 1 - person.gender, ageing(person.age)

    def spot(cx: float, cy: float, rx: float, ry: float, front: float = 0.55) -> np.ndarray:
        return np.exp(-(((x - cx) / rx) ** 2) - ((y - cy) / ry) ** 2) * (z > front)

    lab = np.empty((*place.shape, 3), np.float32)
    lab[...] = target
    lips, lids, ears = painted_mask("lips", 2.6), painted_mask("eyelids", 5), painted_mask("ears", 10)
    cheek, nose, chin = spot(0.43, 7.0, 0.19, 0.17), spot(0, 7.03, 0.15, 0.11, 1.3), spot(0, 6.45, 0.16, 0.11)
    wings = spot(0.13, 6.98, 0.06, 0.06, 1.1)
    flush = float(rng.uniform(0.7, 1.4))
    lab[..., 1] += lightness * flush * (3.4 * cheek + 4.0 * nose + 2.0 * wings + 1.6 * chin + 3.4 * ears + 2.0 * lids)
    lab[..., 0] -= lightness * (1.5 * cheek + 2.0 * nose + 1.5 * wings) + 2.0 * ears
    lab[..., 2] += lightness * 1.4 * spot(0, 7.75, 0.45, 0.22)
    socket, below = spot(0.31, 7.29, 0.19, 0.12), spot(0.27, 7.14, 0.14, 0.05)
    tired = float(rng.uniform(0.8, 1.5))
    lab[..., 0] -= (3.0 + 2.0 * depth) * socket + tired * (2.4 + 3.4 * old) * below
    lab[..., 1] += lightness * (1.5 * socket + 1.6 * below)
    lab[..., 2] -= lightness * 2.0 * below
    lab[..., 0] -= depth * 3.5 * spot(0, 6.68, 0.32, 0.17) + 1.8 * smoothstep(6.5, 6.2, y)
    lab[..., 0] += depth * 2.0 * spot(0.42, 7.05, 0.16, 0.12)

    lip_strength = lips * (1 + 0.10 * noise(2.4, rng))
    paler = 1 - (0.2 + 0.25 * person.gender) * old
    lab[..., 0] += lip_strength * (-7.5 * lightness - 3.0 * depth) * paler
    lab[..., 1] += lip_strength * ((8 + 4 * feminine) * lightness + 4.5 * depth) * paler
    lab[..., 2] += lip_strength * -1.5

    # Mottling at three grains, more with age and sun.
    uneven = 1 + 0.9 * old
    lab[..., 0] += uneven * (0.75 * noise(30, rng, 2) + 0.55 * noise(8, rng, 3))
    lab[..., 1] += uneven * lightness * (0.75 * noise(36, rng, 2) + 0.45 * noise(10, rng, 2))
    lab[..., 2] += 0.5 * noise(44, rng, 2)
    lab[..., 0] -= 0.9 * old
    lab[..., 2] += 1.0 * old * lightness
    return lab


def _scatter(where: np.ndarray, count: int, sizes: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """Small soft dots at random places, 0…1."""
    dots = np.zeros(where.shape, np.float32)
    places = np.argwhere(where)
    for row, column in places[rng.integers(0, len(places), count)]:
        radius = float(rng.uniform(*sizes))
        reach = int(3 * radius) + 1
        rows = slice(max(row - reach, 0), row + reach + 1)
        columns = slice(max(column - reach, 0), column + reach + 1)
        yy, xx = np.mgrid[rows.start - row : rows.stop - row, columns.start - column : columns.stop - column]
        squash, strength = float(rng.uniform(0.7, 1.4)), float(rng.uniform(0.35, 1))
        dot = strength * np.exp(-((xx * squash) ** 2 + (yy / squash) ** 2) / radius**2)
        window = dots[rows, columns]
        np.maximum(window, dot[: window.shape[0], : window.shape[1]], out=window)
    return dots


def _add_spots(lab: np.ndarray, person: Person, rng: np.random.Generator) -> None:
    """Freckles, moles and the spots of age; each is drawn for every skin so that the seed stays in step."""
    place = chart()
    face = place.head & (place.z > 0.85) & (place.y > 6.45) & (place.y < 7.95)
    freckles = _scatter(face, int(900 * person.freckles), (1.2, 2.6), rng) * np.exp(-(((place.y - 7.1) / 0.32) ** 2))
    lab[..., 0] -= 7 * freckles
    lab[..., 1] += 2.5 * freckles
    lab[..., 2] += 3 * freckles
    moles = _scatter(face, int(rng.integers(2, 8)), (1.6, 3.2), rng)
    lab[..., 0] -= min(22.0, 0.35 * person.skin_lab[0]) * moles
    lab[..., 2] -= 2 * moles
    old = float(smoothstep(45, 85, person.age))
    spots = _scatter(place.head & (place.z > 0.1) & (place.y > 6.5), int(70 * old), (3.5, 10), rng)
    lab[..., 0] -= 5.0 * spots * (0.6 + 0.4 * person.skin_lab[0] / 70)
    lab[..., 2] += 1.2 * spots


def paint_skin(person: Person) -> Skin:
    place = chart()
    rng = np.random.default_rng([person.seed, 3])
    lab = _colour(person, rng)
    _add_spots(lab, person, rng)

    cover = scalp_cover(person)
    relief = _Relief(place, rng)
    # Finer skin of feminine presentation creases less deeply.
    relief.add_creases(person.age, strength=0.75 + 0.25 * person.gender)
    relief.add_forehead_lines(person.age)
    relief.add_lip_lines(person.age)
    relief.add_crinkle(person.age, 1 - cover)
    creased = np.clip(relief.height, -1.2, 0.4)
    # Light hardly reaches the bottom of a crease, and blood gathers there.
    lab[..., 0] += (4.5 + 3.0 * ageing(person.age)) * creased
    lab[..., 1] -= 0.8 * np.minimum(creased, 0)

    beard = beard_area() * person.gender**2
    shade = float(np.clip(0.35 + person.hair.beard / 3, 0, 1)) * (1 - 0.6 * person.hair.grey)
    grain = 0.7 + 0.5 * (noise(1.2, rng) > 0.5)
    lab[..., 0] -= beard * shade * grain * np.clip(person.skin_lab[0] / 14, 1.5, 4.5) * person.hair.melanin
    lab[..., 2] -= beard * shade * 3.0
    lab[..., 1] -= beard * shade * 1.2

    hair_lightness = min(8 + 34 * (1 - person.hair.melanin) + 40 * person.hair.grey, person.skin_lab[0] - 2)
    under_hair = (0.82 * cover**1.5 * (1 - 0.55 * person.hair.grey))[..., None]
    lab = lab * (1 - under_hair) + np.array([hair_lightness, 2.0, 4.0]) * under_hair
    lab[..., 0] = np.clip(lab[..., 0], 3, 97)

    rough = 1 + 0.6 * ageing(person.age)
    pores = 0.030 * rough * noise(1.1, rng) + 0.045 * rough * noise(2.4, rng) + 0.015 * noise(9, rng)
    height = ndimage.gaussian_filter(relief.height, 0.8) + pores
    sides = np.abs(place.x)
    gloss = (
        np.exp(-((sides / 0.16) ** 2) - ((place.y - 7.15) / 0.22) ** 2) * (place.z > 1.2)
        + 0.7 * np.exp(-((sides / 0.40) ** 2) - ((place.y - 7.72) / 0.16) ** 2)
        + 0.4 * np.exp(-(((sides - 0.42) / 0.16) ** 2) - ((place.y - 7.08) / 0.10) ** 2)
    )
    gloss = gloss * (1 - 0.4 * ageing(person.age)) + 0.9 * painted_mask("lips", 2.6) + 0.08 * noise(5, rng)
    return Skin(
        albedo=lab_to_linear(lab).astype(np.float32),
        relief=np.clip(height, DEEPEST, HIGHEST),
        gloss=np.clip(gloss, 0, 1).astype(np.float32),
    )
