"""Segment a portrait into skin, clothes and background, and recolour them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from stillme.core import images
from stillme.core.colour import RGB_TO_XYZ, WHITE, Floats
from stillme.core.types import ImageFile
from stillme.instruments import faces
from stillme.instruments.faces.raster import fit, resize

Lab = tuple[float, float, float]
Pixels = NDArray[np.uint8]
"""Rows of R, G, B."""

_TO_XYZ = RGB_TO_XYZ.astype(np.float64) / WHITE.astype(np.float64)[:, None]
"""From linear sRGB, as a share of the white point D65."""
_FROM_XYZ = np.linalg.inv(_TO_XYZ)
_FINE = 65535
"""Steps of a table. One is less than a hundredth of L*."""
_AT_ONCE = 16384
"""Pixels whose numbers fit the processor's cache together."""


def lab_of(pixels: Pixels) -> Floats:
    """CIELAB of each pixel."""
    lab = np.empty((len(pixels), 3), dtype=np.float32)
    for some in _parts(len(pixels)):
        x, y, z = _roots(pixels[some])
        lab[some, 0] = 116 * y - 16
        lab[some, 1] = 500 * (x - y)
        lab[some, 2] = 200 * (y - z)
    return lab


def move(pixels: Pixels, lighter: Floats | None, weights: Floats | None, by: Lab) -> None:
    """Change each pixel in place: `lighter` L* units, and its weight's share of the way `by`."""
    away = by[0] / 116 + by[1] / 500, by[0] / 116, by[0] / 116 - by[2] / 200
    for some in _parts(len(pixels)):
        roots = _roots(pixels[some])
        for root, step in zip(roots, away, strict=True):
            if weights is not None:
                root += np.float32(step) * weights[some]
            if lighter is not None:
                root += lighter[some] * np.float32(1 / 116)
        pixels[some] = _srgb(roots)


def _parts(count: int) -> list[slice]:
    return [slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE)]


def _roots(pixels: Pixels) -> list[Floats]:
    """CIELAB's f of X, Y and Z, which its coordinates are sums of."""
    red, green, blue = (_linear_of_byte().take(pixels[:, channel]) for channel in range(3))
    return [_root_of_share().take(_places(_mixed(row, red, green, blue))) for row in _TO_XYZ.astype(np.float32)]


def _srgb(roots: list[Floats]) -> Pixels:
    shares = [np.where(cube > np.float32(216 / 24389), cube, _near_black(f)) for f in roots for cube in [f * f * f]]
    channels = [_byte_of_linear().take(_places(_mixed(row, *shares))) for row in _FROM_XYZ.astype(np.float32)]
    return np.stack(channels, axis=-1)


def _near_black(root: Floats) -> Floats:
    return (np.float32(116) * root - np.float32(16)) * np.float32(27 / 24389)


def _mixed(row: Floats, a: Floats, b: Floats, c: Floats) -> Floats:
    # Not a matrix product, whose order of adding is the library's.
    one, two, three = row
    return one * a + two * b + three * c


def _places(shares: Floats) -> NDArray[np.intp]:
    """Where in a table these are; what does not fit the gamut is clipped."""
    return (np.clip(shares, 0, 1) * np.float32(_FINE) + np.float32(0.5)).astype(np.intp)


@cache
def _linear_of_byte() -> Floats:
    x = np.arange(256) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4).astype(np.float32)


@cache
def _root_of_share() -> Floats:
    x = np.arange(_FINE + 1) / _FINE
    return np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116).astype(np.float32)


@cache
def _byte_of_linear() -> NDArray[np.uint8]:
    x = np.arange(_FINE + 1) / _FINE
    return np.round(255 * np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)).astype(np.uint8)


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
