"""Measure what a curator looks for: pose, focus, light, what is visible, expression.

Nothing here knows how light or dark a person's skin is: light is compared between two sides of one face, in stops,
and exposure is the share of pixels that are clipped. A threshold on brightness would reject dark skin.

Method, all from the 468-point mesh (its depth included) on the picture's most prominent face:
- yaw, pitch, roll: the angles of the line between the outer corners of the eyes and of the line from forehead to chin;
  pitch is counted from that of frontal faces, whose chin lies nearer to the viewer than their forehead;
- mouth and eyes: the gap between lips or lids over the width of mouth or eye; the lift of the mouth's corners over its
  width;
- covered: colours on the skin that are not this face's own, and eyes far darker than its skin; both are proxies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stillme import faces
from stillme.colour import Floats, linear_to_lab, to_linear
from stillme.faces.landmarks import CHIN, FOREHEAD, LEFT_EYE, OVAL, RIGHT_EYE
from stillme.faces.raster import Mask, Picture, fit, grow, hull, polygon
from stillme.instruments.description import embed
from stillme.instruments.quality import read_quality
from stillme.instruments.scene import WORKING
from stillme.instruments.skin import ita

NEUTRAL_PITCH = 10.5
"""Degrees: the mean of the embedded frontal renders, whose camera stands at the height of the eyes."""
_LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750], dtype=np.float32)
_ODD_HUE = 0.06
"""Difference of a channel's share of the light from which a colour is not this skin's."""
_BLANK = 3
_ODD_DARK = 3.0
"""Stops below the skin's median from which a pixel is hair or something in front of the face."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """What the instruments measured on one picture."""

    values: Mapping[str, float]
    """By the names of `criteria.toml`, and those that the dataset card shows; empty where no face was found."""
    embedding: Floats | None
    """The face in 128 numbers; None where there is no face."""
    hash: int
    """64 bits of the whole picture's coarse shape."""


def measure(rgb: Picture) -> Measured:
    """Measure one picture."""
    scale = max(rgb.shape[:2]) / min(WORKING, max(rgb.shape[:2]))
    small = fit(rgb, WORKING)
    detected = faces.find(small)
    shape = picture_hash(small)
    if not detected:
        return Measured(values={"faces": 0.0}, embedding=None, hash=shape)
    face = detected[0]
    mesh = faces.mesh(small, face)
    quality = read_quality(small, mesh)
    rivals = [faces.prominence(other, small.shape) for other in detected[1:2]]
    values = {
        "faces": float(len(detected)),
        "rival": rivals[0] / faces.prominence(face, small.shape) if rivals else 0.0,
        "face_side": face.size * scale,
        "face_share": face.size**2 / (small.shape[0] * small.shape[1]),
        "presence": mesh.presence,
        "cut_off": _cut_off(mesh, small),
        "yaw": quality.yaw,
        "pitch": quality.pitch - NEUTRAL_PITCH,
        "roll": quality.roll,
        "sharpness": quality.sharpness,
        "overexposed": quality.overexposed,
        "underexposed": quality.underexposed,
        **_mouth_and_eyes(mesh),
        **_light(small, mesh),
    }
    rounded = {name: round(value, 4) for name, value in values.items()}
    return Measured(values=rounded, embedding=embed(small, mesh), hash=shape)


def picture_hash(rgb: Picture) -> int:
    """Whether each of 8 × 8 spots is brighter than the one to its right, as 64 bits: similar for similar pictures."""
    import cv2

    grey = cv2.resize(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (9, 8), interpolation=cv2.INTER_AREA)
    bits = (grey[:, :-1] > grey[:, 1:]).ravel()
    return int("".join("1" if bit else "0" for bit in bits), 2)


def _cut_off(mesh: faces.Mesh, rgb: Picture) -> float:
    """The share of the face's outline that lies outside the picture."""
    outline = mesh.points[list(OVAL)]
    height, width = rgb.shape[:2]
    outside = (outline[:, 0] < 0) | (outline[:, 1] < 0) | (outline[:, 0] >= width) | (outline[:, 1] >= height)
    return float(outside.mean())


def _mouth_and_eyes(mesh: faces.Mesh) -> dict[str, float]:
    points = mesh.points.astype(np.float64)

    def gap(a: int, b: int) -> float:
        return float(np.linalg.norm(points[a] - points[b]))

    width = max(gap(61, 291), 1e-6)
    down = points[CHIN] - points[FOREHEAD]
    down = down / max(float(np.linalg.norm(down)), 1e-6)
    lift = (points[[13, 14]].mean(axis=0) - points[[61, 291]].mean(axis=0)) @ down
    eyes = gap(386, 374) / max(gap(263, 362), 1e-6), gap(159, 145) / max(gap(33, 133), 1e-6)
    return {
        "mouth_open": gap(13, 14) / width,
        "smile": float(lift) / width,
        "eyes_open": min(eyes),
    }


def _light(rgb: Picture, mesh: faces.Mesh) -> dict[str, float]:
    skin = faces.skin_mask(mesh, rgb.shape)
    pixels = to_linear(rgb[skin])
    if len(pixels) < 200:
        return {}
    light = pixels @ _LUMINANCE
    typical = np.median(pixels, axis=0)
    brightness = max(float(np.median(light)), 1e-6)
    lab = linear_to_lab(typical.astype(np.float32))
    background = _background(rgb, mesh)
    values = {
        "skin_l": float(lab[0]),
        "skin_ita": ita(lab),
        "side_light": _side_light(rgb, mesh, skin),
        "odd_skin": _odd(pixels, typical, brightness),
        "eyes_dark": _stops(rgb, _eyes(mesh, rgb), brightness),
    }
    if background is not None:
        values["background_l"] = background
    return values


def _side_light(rgb: Picture, mesh: faces.Mesh, skin: Mask) -> float:
    """How much brighter the skin on one side of the nose is than on the other, in stops."""
    top, down = mesh.points[FOREHEAD], mesh.points[CHIN] - mesh.points[FOREHEAD]
    rows, columns = np.nonzero(skin)
    side = (columns - top[0]) * down[1] - (rows - top[1]) * down[0]
    light = to_linear(rgb[skin]) @ _LUMINANCE
    left, right = light[side > 0], light[side < 0]
    if min(len(left), len(right)) < 50:
        return 0.0
    return abs(float(np.log2(max(np.median(left), 1e-6) / max(np.median(right), 1e-6))))


def _odd(pixels: Floats, typical: Floats, brightness: float) -> float:
    """The share of the skin's area that shows something else: hair, hands, spectacles, a microphone."""
    share = pixels / np.maximum(pixels.sum(axis=1, keepdims=True), 1e-6)
    own = typical / max(float(typical.sum()), 1e-6)
    odd = np.abs(share - own).max(axis=1) > _ODD_HUE
    dark = pixels @ _LUMINANCE < brightness / 2**_ODD_DARK
    return float((odd | dark).mean())


def _eyes(mesh: faces.Mesh, rgb: Picture) -> Mask:
    both = polygon(hull(mesh.points[list(LEFT_EYE)]), rgb.shape) | polygon(
        hull(mesh.points[list(RIGHT_EYE)]), rgb.shape
    )
    return grow(both, 0.10 * mesh.eye_distance)


def _stops(rgb: Picture, where: Mask, brightness: float) -> float:
    if not where.any():
        return 0.0
    return float(np.log2(brightness / max(float(np.median(to_linear(rgb[where]) @ _LUMINANCE)), 1e-6)))


def _background(rgb: Picture, mesh: faces.Mesh) -> float | None:
    """Lightness of what is not the person; None where there is too little of it."""
    outside = (faces.person_mask(rgb) < 0.1) & ~faces.face_oval(mesh, rgb.shape)
    # Pictures that were rotated upright have black corners, which are not background.
    outside &= rgb.max(axis=2) > _BLANK
    if outside.mean() < 0.03:
        return None
    return float(linear_to_lab(np.median(to_linear(rgb[outside]), axis=0).astype(np.float32))[0])
