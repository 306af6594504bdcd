"""A portrait taken apart into skin, clothes and background, and painted anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stillme import colour, faces, images
from stillme.types import ImageFile

Mask = NDArray[np.float32]
"""Soft: 0 to 1."""
Lab = tuple[float, float, float]

_SEEN = 0.004
"""Less of a change than this moves no 8-bit value."""
_LIKE_SKIN = np.array([22, 9, 9], dtype=np.float32)
"""How far, in L*, a* and b*, neck and ears may be from the face's own colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """One portrait's pixels and where they belong."""

    rgb: NDArray[np.uint8]
    lab: colour.Floats
    tone: Lab
    """The face's skin colour."""
    skin: Mask
    clothes: Mask
    background: Mask

    def area(self, what: str) -> Mask:
        """The mask of `clothes`, `background` or `both`."""
        if what == "both":
            return np.maximum(self.clothes, self.background)
        return self.clothes if what == "clothes" else self.background

    def painted(
        self, *, skin_shift: float = 0.0, area: Mask | None = None, target: Lab | None = None
    ) -> NDArray[np.uint8]:
        """The portrait with the skin so many L* lighter, and with `area` in the colour `target`."""
        moves = np.zeros(3, dtype=np.float32)
        where = area if area is not None and target is not None else np.zeros_like(self.skin)
        if target is not None and (where > 0.5).any():
            # Folds and shading stay: only the middle of the region's colours moves.
            moves = np.array(target, dtype=np.float32) - self.lab[where > 0.5].mean(axis=0)
        touched = (where > _SEEN) | (self.skin * abs(skin_shift) > _SEEN)
        lab = (self.lab[touched] + where[touched, None] * moves).astype(np.float32)
        lab[:, 0] += np.float32(skin_shift) * self.skin[touched]
        made = self.rgb.copy()
        made[touched] = colour.to_srgb(colour.lab_to_linear(lab))
        return made


@lru_cache(maxsize=16)
def regions_of(image: ImageFile) -> Regions | None:
    """Take a portrait apart; None where there is no face. The last few are remembered."""
    rgb = images.read_rgb(image.path)
    found = faces.find(rgb)
    if not found:
        return None
    mesh = faces.mesh(rgb, found[0])
    lab = colour.to_lab(rgb)
    person = faces.person_mask(rgb)
    tone = np.median(lab[faces.skin_mask(mesh, rgb.shape)], axis=0)
    near_skin = (np.linalg.norm((lab - tone) / _LIKE_SKIN, axis=-1) < 1) & (person > 0.5)
    chin = float(mesh.points[:, 1].max())
    rows = np.arange(rgb.shape[0], dtype=np.float32)[:, None]
    below = np.clip((rows - chin) / max(1.0, 0.15 * found[0].height), 0, 1)
    soft = max(1.0, mesh.eye_distance / 25)
    oval = faces.face_oval(mesh, rgb.shape)
    skin = np.maximum(faces.blur(oval.astype(np.float32), soft), faces.blur(near_skin.astype(np.float32), soft))
    return Regions(
        rgb=rgb,
        lab=lab,
        tone=(float(tone[0]), float(tone[1]), float(tone[2])),
        skin=skin,
        clothes=(below * person * (1 - skin)).astype(np.float32),
        background=(1 - person).astype(np.float32),
    )
