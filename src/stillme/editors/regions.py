"""Segment a portrait into skin, clothes and background, and recolour them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stillme.core import images
from stillme.core.types import ImageFile
from stillme.editors.painting import Lab, lab_of, move
from stillme.instruments import faces
from stillme.instruments.faces.raster import fit, resize

Mask = NDArray[np.uint8]
"""Soft, from 0 to 255. In bytes, blurring and enlarging give the same on every processor."""

_WORKING = 512
"""Longer side, in pixels, at which a portrait is segmented. It is painted in its own size."""
_STRIP = 128
"""Rows that are painted at once: memory does not grow with them."""
_SKIN_RANGE = (22, 9, 9)
"""How far, in L*, a* and b*, neck and ears may be from the face's colour."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Area:
    """What an edit recolours."""

    mask: Mask
    colour: Lab
    """Its mean."""

    @property
    def share(self) -> float:
        """Of the picture."""
        return float((self.mask > 127).mean())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regions:
    """Masks of one portrait's regions; small, so that many portraits' can be kept."""

    image: ImageFile
    tone: Lab
    """The face's skin colour."""
    skin: Mask
    clothes: Area
    background: Area
    both: Area

    def area(self, what: str) -> Area:
        """That of `clothes`, `background` or `both`."""
        return {"clothes": self.clothes, "background": self.background, "both": self.both}[what]

    def painted(
        self, *, skin_shift: float = 0.0, area: Area | None = None, target: Lab | None = None
    ) -> NDArray[np.uint8]:
        """The portrait with the skin lighter by `skin_shift` L* units, and `area` in the colour `target`."""
        rgb = images.read_source(self.image.read()).copy()
        height, width = rgb.shape[:2]
        moves, where, lighter = (0.0, 0.0, 0.0), None, None
        if area is not None and target is not None:
            # Only the region's mean colour moves, so folds and shading stay.
            moves = target[0] - area.colour[0], target[1] - area.colour[1], target[2] - area.colour[2]
            where = resize(area.mask, width, height)
        if skin_shift:
            lighter = resize(self.skin, width, height)
        for start in range(0, height, _STRIP):
            rows = slice(start, start + _STRIP)
            weights, lightened = (None if mask is None else mask[rows].ravel() for mask in (where, lighter))
            pixels = rgb[rows].reshape(-1, 3)
            touched = np.flatnonzero(_either(weights, lightened))
            some = pixels.take(touched, axis=0)
            move(some, _share(lightened, touched, skin_shift), _share(weights, touched, 1.0), moves)
            pixels[touched] = some
        return rgb


def _either(one: Mask | None, other: Mask | None) -> Mask:
    if one is None or other is None:
        return next((mask for mask in (one, other) if mask is not None), np.zeros(0, dtype=np.uint8))
    return one | other


def _share(mask: Mask | None, touched: NDArray[np.intp], of: float) -> NDArray[np.float32] | None:
    return None if mask is None else mask.take(touched) * np.float32(of / 255)


@lru_cache(maxsize=96)
def regions_of(image: ImageFile) -> Regions | None:
    """Segment a portrait; None if no face is detected. Cached: every editor of an audit gets the same portraits."""
    rgb = fit(images.read_source(image.read()), _WORKING)
    detections = faces.find(rgb)
    if not detections:
        return None
    face = detections[0]
    mesh = faces.mesh(rgb, face)
    lab = lab_of(rgb.reshape(-1, 3)).reshape(rgb.shape)
    person = np.round(faces.person_mask(rgb) * 255).astype(np.uint8)
    tone = _rounded(np.median(lab[faces.skin_mask(mesh, rgb.shape)], axis=0).tolist())
    away = sum(((lab[..., axis] - tone[axis]) / np.float32(_SKIN_RANGE[axis])) ** 2 for axis in range(3))
    near_skin = (away < 1) & (person > 127)
    soft = max(1.0, mesh.eye_distance / 25)
    oval = faces.face_oval(mesh, rgb.shape)
    skin = np.maximum(*(faces.blur(mask.astype(np.uint8) * np.uint8(255), soft) for mask in (oval, near_skin)))
    chin = float(mesh.points[:, 1].max())
    rows = np.arange(rgb.shape[0], dtype=np.float32)[:, None]
    below = np.clip((rows - chin) / max(1.0, 0.15 * face.height), 0, 1)
    clothes = np.round(below * person * ((255 - skin) / np.float32(255))).astype(np.uint8)
    background = 255 - person
    return Regions(
        image=image,
        tone=tone,
        skin=skin,
        clothes=_area(clothes, lab),
        background=_area(background, lab),
        both=_area(np.maximum(clothes, background), lab),
    )


def _area(mask: Mask, lab: NDArray[np.float32]) -> Area:
    import cv2

    lightness, red, yellow, _ = cv2.mean(lab, (mask > 127).view(np.uint8))
    return Area(mask=mask, colour=_rounded((lightness, red, yellow)))


def _rounded(colour: Iterable[float]) -> Lab:
    # A sum's last digits are the processor's own.
    lightness, red, yellow = (round(float(value), 2) for value in colour)
    return lightness, red, yellow
