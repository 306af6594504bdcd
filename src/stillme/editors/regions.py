"""Segment a portrait into skin, clothes and background, and recolour them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stillme import colour, faces, images
from stillme.types import ImageFile

Mask = NDArray[np.float32]
"""Soft, from 0 to 1."""
Lab = tuple[float, float, float]

_VISIBLE = 0.004
"""A smaller change does not alter any 8-bit value."""
_SKIN_RANGE = np.array([22, 9, 9], dtype=np.float32)
"""How far, in L*, a* and b*, neck and ears may be from the face's colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """One portrait's pixels, and masks of its regions."""

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
        """The portrait with the skin lighter by `skin_shift` L* units, and `area` in the colour `target`."""
        moves = np.zeros(3, dtype=np.float32)
        where = area if area is not None and target is not None else np.zeros_like(self.skin)
        if target is not None and (where > 0.5).any():
            # Only the region's mean colour moves, so folds and shading stay.
            moves = np.array(target, dtype=np.float32) - self.lab[where > 0.5].mean(axis=0)
        touched = (where > _VISIBLE) | (self.skin * abs(skin_shift) > _VISIBLE)
        lab = (self.lab[touched] + where[touched, None] * moves).astype(np.float32)
        lab[:, 0] += np.float32(skin_shift) * self.skin[touched]
        rgb = self.rgb.copy()
        rgb[touched] = colour.to_srgb(colour.lab_to_linear(lab))
        return rgb


@lru_cache(maxsize=16)
def regions_of(image: ImageFile) -> Regions | None:
    """Segment a portrait; None if no face is detected. Cached for the last few."""
    rgb = images.read_rgb(image.path)
    detections = faces.find(rgb)
    if not detections:
        return None
    face = detections[0]
    mesh = faces.mesh(rgb, face)
    lab = colour.to_lab(rgb)
    person = faces.person_mask(rgb)
    tone = np.median(lab[faces.skin_mask(mesh, rgb.shape)], axis=0)
    near_skin = (np.linalg.norm((lab - tone) / _SKIN_RANGE, axis=-1) < 1) & (person > 0.5)
    chin = float(mesh.points[:, 1].max())
    rows = np.arange(rgb.shape[0], dtype=np.float32)[:, None]
    below = np.clip((rows - chin) / max(1.0, 0.15 * face.height), 0, 1)
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
