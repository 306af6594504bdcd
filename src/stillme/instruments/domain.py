"""Whether an edit may have drawn a face: estimators of people were trained and tried on photographs alone.

Texture and colour of the skin are described by 46 numbers; a linear rule tells drawings of the styles that it has seen
from photographs. It takes some photographs for drawings. So the edited face is held against its source: only where it
looks drawn, and far more so than the source, is what is read from faces (age, gender, race, identity) withheld. Colour
is still measured.
"""

from __future__ import annotations

import itertools
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import cast

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import to_lab
from stillme.core.types import Json
from stillme.instruments import faces
from stillme.instruments.cards import DESCRIBED
from stillme.instruments.faces.landmarks import LEFT_EYE_CORNER, RIGHT_EYE_CORNER
from stillme.instruments.faces.raster import Mask, Picture, blur, warp
from stillme.instruments.thresholds import load_thresholds

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_READ_FROM_FACES = (
    "same_person", "identity", "identity_cut", "identity_cut_for", "age", "age_interval", "male_reading",
    "gender_reading", "gender_interval",
)  # fmt: skip
"""Details of a pair that say the same in other words."""
_SIDE, _EYES = 224, 80.0
"""Pixels of the picture that is read, and between the outer corners of the eyes in it."""
_FEWEST = 200
_RADII = (1, 2, 4)
_SCALES = (1, 2, 4, 8)
_FINE = 2
"""The scale below which texture is compared between channels."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhotographRule:
    """What the numbers are in photographs, how they are weighed, and the limit that few photographs reach."""

    mean: Doubles
    scale: Doubles
    weights: Doubles
    limit: float

    def score(self, numbers: Doubles) -> float:
        """Above 0 is a drawing."""
        return float((numbers - self.mean) / self.scale @ self.weights) - self.limit


def drawn(rgb: Picture, mesh: faces.Mesh) -> float:
    """How much a face looks drawn; up to 0 it passes for a photograph."""
    return rule().score(describe(rgb, mesh))


def withhold(
    source: float,
    edited: float,
    values: MutableMapping[str, float],
    abstained: MutableMapping[str, str],
    details: MutableMapping[str, Json],
) -> None:
    """Take back what was read from the faces if the edit may have drawn one, by the `drawn` of both."""
    details["drawn"] = round(edited, 2)
    if max(source, edited) <= 0:
        return
    if edited <= 0 or edited - source <= load_thresholds().drawing.rise:
        details["doubts"] = [*cast("list[str]", details.get("doubts", [])), "perhaps drawn"]
        return
    reason = "the edited image may be a drawing; age, gender, race and identity are read from photographs only"
    for name in DESCRIBED:
        values.pop(name, None)
        abstained[name] = reason
    for name in _READ_FROM_FACES:
        details.pop(name, None)


@cache
def rule() -> PhotographRule:
    """As it was trained; `tools/models/train_domain.py` makes the file."""
    with as_file(files("stillme.instruments").joinpath("domain.npz")) as path, np.load(path) as stored:
        mean, scale, weights = (stored[name].astype(np.float64) for name in ("mean", "scale", "weights"))
        return PhotographRule(mean=mean, scale=scale, weights=weights, limit=float(stored["limit"]))


def describe(rgb: Picture, mesh: faces.Mesh) -> Doubles:
    """The texture and colour of one face's skin, in 46 numbers."""
    chip, skin = _upright(rgb, mesh)
    lab = np.ascontiguousarray(to_lab(chip), dtype=np.float32)
    # All channels at once, and of the copies only skin: the same numbers in half the time.
    copies = [lab[skin], *(blur(lab, float(scale))[skin] for scale in _SCALES)]
    fine = copies[0] - copies[1 + _SCALES.index(_FINE)]
    light = blur(np.ascontiguousarray(lab[..., 0]), 0.8)
    return np.array([*_patterns(light, skin), *_energies(copies), *_relations(fine)], dtype=np.float64)


def _upright(rgb: Picture, mesh: faces.Mesh) -> tuple[Picture, Mask]:
    """The face with level eyes and of one size, and its skin."""
    across = (mesh.points[LEFT_EYE_CORNER] - mesh.points[RIGHT_EYE_CORNER]).astype(np.float64)
    length = max(float(np.hypot(across[0], across[1])), 1e-6)
    cos, sin = across / length * _EYES / length
    turn = np.array([[cos, sin], [-sin, cos]])
    middle = _SIDE / 2 - turn @ mesh.points.astype(np.float64).mean(axis=0)
    chip = warp(rgb, np.hstack([turn, middle[:, None]]), _SIDE, _SIDE, outside="edge")
    points = (mesh.points @ turn.T + middle).astype(np.float32)
    skin = faces.skin_mask(faces.Mesh(points=points, depth=mesh.depth, presence=mesh.presence), (_SIDE, _SIDE))
    return chip, skin if np.count_nonzero(skin) >= _FEWEST else np.ones((_SIDE, _SIDE), dtype=np.bool_)


def _patterns(light: Floats, skin: Mask) -> list[float]:
    """How often each kind of spot, edge, line and corner occurs: local binary patterns, turned and light alike."""
    height, width = light.shape
    steps = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
    numbers: list[float] = []
    for radius in _RADII:
        around = np.pad(light, radius, mode="wrap")
        code = np.zeros(light.shape, dtype=np.uint8)
        for place, (down, across) in enumerate(steps):
            top, left = radius * (1 + down), radius * (1 + across)
            code |= (around[top : top + height, left : left + width] >= light).view(np.uint8) << np.uint8(place)
        counts = np.bincount(_kinds()[code[skin]], minlength=10)
        numbers.extend(np.sqrt(counts / np.count_nonzero(skin)).tolist())
    return numbers


@cache
def _kinds() -> NDArray[np.int64]:
    """Which of ten kinds a pattern of eight neighbours is: so many brighter ones in a row, or none of these."""
    kinds: list[int] = []
    for code in range(256):
        bits = [(code >> place) & 1 for place in range(8)]
        changes = sum(bits[place] != bits[(place + 1) % 8] for place in range(8))
        kinds.append(sum(bits) if changes <= 2 else 9)
    return np.array(kinds)


def _energies(copies: list[Floats]) -> list[float]:
    """How strong texture is in each colour channel, by size, from ever smoother copies of the same spots."""
    steps = [np.std(before - after, axis=0) for before, after in itertools.pairwise(copies)]
    return [float(np.log(step[channel] + 0.05)) for channel in range(3) for step in steps]


def _relations(fine: Floats) -> list[float]:
    """Whether the channels' textures go together, and whether lightness has few strong marks or many weak ones."""
    texture = fine.astype(np.float64)
    texture = texture - texture.mean(axis=0)
    sizes = np.sqrt((texture**2).mean(axis=0))
    numbers = [
        float((texture[:, a] * texture[:, b]).mean() / (sizes[a] * sizes[b] + 1e-3))
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    squares = texture[:, 0] ** 2
    return [*numbers, float(np.log(((squares**2).mean() + 1e-6) / (squares.mean() ** 2 + 1e-6)))]
