# SPDX-License-Identifier: GPL-3.0-or-later
"""Lights and backgrounds, by name.

Light comes from discs placed around the head and from a faint sky. The background
is a wall far behind that throws no light: it is painted behind the rendered
person, so that a change of background changes nothing else, to the last bit.
"""

from dataclasses import dataclass

import numpy as np

from .chart import smoothstep
from .colour import hex_to_srgb, srgb_to_linear


@dataclass(frozen=True)
class Lamp:
    """A disc of light that faces the head."""

    azimuth: float
    """Degrees to the viewer's right of the camera."""
    elevation: float
    distance: float
    """Metres."""
    size: float
    power: float
    colour: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Rig:
    lamps: tuple[Lamp, ...]
    sky: float
    gain: float
    """Exposure of the rig, set so that skin of a given reflectance has the same lightness under all rigs."""


_WARM, _COOL = (1.0, 0.93, 0.85), (0.90, 0.95, 1.0)

RIGS = {
    "softbox-left": Rig(
        (Lamp(-36, 24, 1.4, 0.8, 20), Lamp(45, 4, 1.5, 1.1, 7), Lamp(138, 32, 1.2, 0.5, 7)), 0.20, 0.95
    ),
    "softbox-right": Rig(
        (Lamp(38, 26, 1.4, 0.8, 20), Lamp(-46, 2, 1.5, 1.1, 7), Lamp(-138, 32, 1.2, 0.5, 7)), 0.20, 0.97
    ),
    "window": Rig(
        (Lamp(-58, 12, 1.5, 1.4, 26, _COOL), Lamp(52, 0, 1.7, 1.2, 9, _WARM), Lamp(-125, 20, 1.4, 0.8, 4, _COOL)),
        0.22,
        1.30,
    ),
    "beauty": Rig(
        (Lamp(0, 38, 1.3, 0.7, 20), Lamp(0, -28, 1.4, 1.0, 5), Lamp(150, 35, 1.2, 0.5, 6), Lamp(-150, 35, 1.2, 0.5, 6)),
        0.20,
        0.86,
    ),
    "overcast": Rig(
        (Lamp(-12, 50, 1.6, 1.8, 24, _COOL), Lamp(60, 10, 1.8, 1.4, 5), Lamp(-60, 10, 1.8, 1.4, 7)), 0.32, 1.16
    ),
    "evening": Rig(
        (Lamp(48, 18, 1.5, 0.9, 24, _WARM), Lamp(-40, 6, 1.6, 1.2, 8, _COOL), Lamp(-140, 28, 1.2, 0.5, 8, _WARM)),
        0.18,
        1.06,
    ),
}


@dataclass(frozen=True)
class Wall:
    """Two colours and how they meet."""

    first: str
    second: str
    angle: float
    """Direction of the gradient in degrees."""
    patches: float
    """Strength of out-of-focus shapes."""
    seed: int


WALLS = {
    "grey": Wall("9a9b9d", "7c7e82", 70, 0.10, 1),
    "blue": Wall("7f92a6", "55677c", 60, 0.25, 2),
    "sand": Wall("b9ab97", "93856f", 110, 0.25, 3),
    "sage": Wall("8b9a86", "66755f", 80, 0.35, 4),
    "dusk": Wall("6f6a80", "474a60", 120, 0.45, 5),
    "clay": Wall("a98874", "7c6152", 50, 0.35, 6),
    "teal": Wall("6e9295", "476a70", 100, 0.35, 7),
    "paper": Wall("c2c0bb", "a5a39e", 90, 0.15, 8),
    "leaves": Wall("7d8f6a", "4c6150", 75, 0.9, 9),
    "office": Wall("9fa3a6", "6d7680", 15, 0.9, 10),
    "brick": Wall("94705f", "6b5248", 30, 0.6, 11),
    "night": Wall("4b5568", "343b4a", 65, 0.7, 12),
}


def paint_wall(name: str, size: int) -> np.ndarray:
    """Linear RGB of the background; the same at every size."""
    wall = WALLS[name]
    first, second = (srgb_to_linear(hex_to_srgb(code)) for code in (wall.first, wall.second))
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    turn = np.radians(wall.angle)
    t = smoothstep(-1.3, 1.3, x * np.cos(turn) + y * np.sin(turn))
    rng = np.random.default_rng([wall.seed, 10])
    for _ in range(14):
        cx, cy, radius = rng.uniform(-1.2, 1.2), rng.uniform(-1.2, 1.0), rng.uniform(0.12, 0.55)
        soft = radius * rng.uniform(0.25, 0.6)
        t = t + wall.patches * rng.normal(0, 0.35) * smoothstep(radius + soft, radius - soft, np.hypot(x - cx, y - cy))
    t = np.clip(t, -0.25, 1.25)[..., None]
    return np.clip(first * (1 - t) + second * t, 0.01, 1) * (1 - 0.10 * np.hypot(x, y) ** 2)[..., None]
