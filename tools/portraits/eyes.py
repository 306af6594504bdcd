# SPDX-License-Identifier: GPL-3.0-or-later
"""Eyeballs: a sphere with a cornea's bulge, and a painted iris and sclera."""

from dataclasses import dataclass

import numpy as np

from .chart import noise, smoothstep
from .colour import hex_to_srgb, srgb_to_linear
from .identity import ageing
from .mesh import unit

_SIZE = 768
_IRIS, _PUPIL = 0.375, 0.140
"""Angles from the optical axis, in radians; MakeHuman's eyeball is larger than a real one, so these are smaller."""

# (outer, inner) colours of the iris.
IRIDES = {
    "darkbrown": ("2a1a12", "46301f"),
    "brown": ("3f2818", "6a4526"),
    "amber": ("54371b", "8a6230"),
    "hazel": ("4a4a30", "7d6536"),
    "green": ("46533f", "75805a"),
    "grey": ("454f57", "757f82"),
    "blue": ("364a5c", "6f8796"),
}


@dataclass(frozen=True)
class Eyeball:
    vertices: np.ndarray
    faces: np.ndarray
    loop_uv: np.ndarray


def eyeball(centre: np.ndarray, radius: float) -> Eyeball:
    """A sphere whose texture is centred on the optical axis (+z)."""
    rings, spokes = 56, 64
    polar = np.linspace(0, np.pi, rings + 1)[:, None]
    around = np.linspace(0, 2 * np.pi, spokes, endpoint=False)[None]
    direction = np.stack(
        [np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), np.cos(polar) + 0 * around], -1
    ).reshape(-1, 3)
    angle = np.arccos(np.clip(direction[:, 2], -1, 1))
    bulge = 0.05 * np.clip(np.cos(np.clip(angle / 0.45, 0, 1) * np.pi / 2), 0, 1)
    ring, spoke = np.meshgrid(np.arange(rings), np.arange(spokes), indexing="ij")
    after = (spoke + 1) % spokes
    faces = np.stack(
        [ring * spokes + spoke, ring * spokes + after, (ring + 1) * spokes + after, (ring + 1) * spokes + spoke], -1
    ).reshape(-1, 4)
    flat = np.repeat(angle, 1) / (np.pi / 2)
    plane = unit(np.c_[direction[:, :2], np.zeros(len(direction))])[:, :2]
    uv = 0.5 + 0.5 * flat[:, None] * plane
    return Eyeball(centre + direction * (radius * (1 + bulge))[:, None], faces, uv[faces].reshape(-1, 2))


def paint_eye(iris: str, age: float, seed: int) -> np.ndarray:
    """Linear RGB of the front half of the eyeball, row 0 at the top."""
    rng = np.random.default_rng([seed, 9])
    y, x = np.mgrid[1 : -1 : _SIZE * 1j, -1 : 1 : _SIZE * 1j]
    angle = np.hypot(x, y) * np.pi / 2
    turn = (np.arctan2(y, x) / (2 * np.pi)) % 1
    fine, coarse = rng.random(360), rng.random(70)
    fibres = np.interp(turn, np.arange(361) / 360, np.r_[fine, fine[:1]])
    bundles = np.interp(turn, np.arange(71) / 70, np.r_[coarse, coarse[:1]])

    outer, inner = (srgb_to_linear(hex_to_srgb(code)) for code in IRIDES[iris])
    across = np.clip((angle - _PUPIL) / (_IRIS - _PUPIL), 0, 1)[..., None]
    collarette = np.exp(-(((across - 0.28 - 0.06 * bundles[..., None]) / 0.10) ** 2))
    colour = inner * (1 - across) + outer * across
    colour = colour * (0.62 + 0.45 * fibres[..., None] + 0.28 * bundles[..., None]) * (1 + 0.35 * collarette)
    colour = colour * (1 - 0.80 * smoothstep(0.74, 1.0, across))  # limbal ring

    old = ageing(age)
    sclera = np.array([0.50, 0.465, 0.44]) * (1 - 0.10 * old) - np.array([0.0, 0.015, 0.05]) * old
    rim = smoothstep(0.55, 1.10, angle)[..., None]
    sclera = sclera * (1 - rim * np.array([0.12, 0.34, 0.38]))
    veins = np.clip(1 - np.abs(noise(5, rng, 2, (_SIZE, _SIZE))) * 2.6, 0, 1)[..., None]
    sclera = sclera - np.array([0.02, 0.085, 0.08]) * veins * smoothstep(0.45, 0.9, angle)[..., None]
    # The upper lid and its lashes shade the ball more than a few light bounces can.
    lid_shade = 1 - 0.50 * smoothstep(0.10, 0.42, y * np.pi / 2)[..., None]

    edge = smoothstep(_IRIS - 0.035, _IRIS + 0.03, angle)[..., None]
    eye = colour * (1 - edge) + sclera * edge
    pupil = smoothstep(_PUPIL + 0.015, _PUPIL - 0.015, angle)[..., None]
    eye = (eye * (1 - pupil) + 0.002 * pupil) * lid_shade
    return np.clip(eye, 0, 1).astype(np.float32)
