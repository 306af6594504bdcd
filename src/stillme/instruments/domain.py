"""Whether a face is a photograph or a drawing: estimators of people were trained on photographs alone.

Seven plain features of the face, all relative to its own size, and one linear rule over them. They look for what a
drawing has and skin has not: strokes (fine structure that runs in one direction), texture that is stronger than pores,
colours that no skin has under one light, and flat areas with hard edges.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from stillme import faces
from stillme.colour import to_lab
from stillme.faces.landmarks import LEFT_EYE_CORNER, RIGHT_EYE_CORNER
from stillme.faces.raster import Picture, blur, warp

FEATURES = (
    "fine texture",
    "middle texture",
    "strokes",
    "chroma",
    "hue",
    "spread of colour",
    "flatness",
)
_SIDE = 160
_EYES = 56.0
"""Pixels between the outer corners of the eyes, in the picture that is read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """Standardise the features, weigh them, and compare with the limit."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    limit: float

    def score(self, features: Sequence[float]) -> float:
        """Above 0 is a drawing; in log-odds from the limit."""
        return float(((np.asarray(features) - self.centre) / self.scale) @ self.weights - self.limit)


def drawing_score(rgb: Picture, mesh: faces.Mesh) -> float:
    """How far beyond the limit a face is a drawing; below 0 it passes for a photograph."""
    return rule().score(read_features(rgb, mesh))


def read_features(rgb: Picture, mesh: faces.Mesh) -> tuple[float, ...]:
    """The features of one face, in the order of `FEATURES`."""
    right, left = mesh.points[RIGHT_EYE_CORNER], mesh.points[LEFT_EYE_CORNER]
    across = (left - right).astype(np.float64)
    scale = _EYES / max(float(np.hypot(*across)), 1e-6)
    cos, sin = across / max(float(np.hypot(*across)), 1e-6) * scale
    turn = np.array([[cos, sin], [-sin, cos]])
    centre = mesh.points.astype(np.float64).mean(axis=0)
    matrix = np.hstack([turn, (_SIDE / 2 - turn @ centre)[:, None]])
    chip = warp(rgb, matrix, _SIDE, _SIDE, outside="edge")
    points = (mesh.points @ turn.T + matrix[:, 2]).astype(np.float32)
    moved = faces.Mesh(points=points, depth=mesh.depth, presence=mesh.presence)
    skin = faces.skin_mask(moved, (_SIDE, _SIDE))
    if not skin.any():
        skin = faces.face_oval(moved, (_SIDE, _SIDE))
    lab = to_lab(chip).astype(np.float32)
    light = np.ascontiguousarray(lab[..., 0])
    fine, middle = light - blur(light, 1.2), blur(light, 1.2) - blur(light, 4.0)
    a, b = (float(np.median(lab[..., channel][skin])) for channel in (1, 2))
    chroma = float(np.hypot(a, b))
    colours = np.stack([blur(np.ascontiguousarray(lab[..., channel]), 2.0) for channel in (1, 2)], axis=-1)[skin]
    return (
        float(np.log(np.std(fine[skin]) + 0.05)),
        float(np.log(np.std(middle[skin]) + 0.05)),
        _strokes(fine, skin),
        chroma / 20,
        # Skin of any tone is between red and yellow; away from that, the sine of the angle is large.
        float(abs(np.arctan2(b, a) - np.radians(55))) if chroma > 3 else 0.0,
        float(np.log(np.sqrt(colours.var(axis=0).sum()) + 0.2)),
        float(np.mean(np.abs(fine[skin]) < 0.3)),
    )


@cache
def rule() -> Rule:
    """The rule as it was trained."""
    stored = json.loads(files("stillme.instruments").joinpath("domain.json").read_text("utf-8"))
    centre, scale, weights = (np.array(stored[name], dtype=np.float64) for name in ("centre", "scale", "weights"))
    return Rule(centre=centre, scale=scale, weights=weights, limit=float(stored["limit"]))


def _strokes(fine: NDArray[np.float32], skin: NDArray[np.bool_]) -> float:
    """How strongly fine structure runs in one direction, patch by patch, 0 to 1."""
    down, across = np.gradient(fine)
    parts = [blur(np.ascontiguousarray(part.astype(np.float32)), 4.0) for part in (across**2, down**2, across * down)]
    energy = parts[0] + parts[1]
    lean = np.sqrt((parts[0] - parts[1]) ** 2 + 4 * parts[2] ** 2)
    return float(np.mean((lean / (energy + 1e-3))[skin]))
