"""Compare skin tone, in CIELAB, under the same light."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.colour import Floats, delta_e, linear_to_lab, to_linear
from stillme.faces.raster import Mask, Picture
from stillme.instruments.light import Light
from stillme.instruments.thresholds import load_thresholds
from stillme.types import Abstained

_LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750], dtype=np.float32)
_CLIPPED = 253
"""From this code value on, a pixel may have been brighter before it was clipped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skin:
    """The bare skin of one picture."""

    linear: Floats
    """Rows of linear RGB."""
    clipped: Mask
    """Which rows are overexposed."""

    @property
    def lightness(self) -> float:
        """L* of the typical spot, in the picture's own light."""
        return float(linear_to_lab(np.median(self.linear, axis=0))[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SkinChange:
    """How skin differs between two pictures."""

    delta_l: float
    """Lightness: positive is lighter."""
    delta_e: float
    """Distance in CIEDE2000."""
    delta_ita: float | Abstained
    """Individual typology angle, in degrees: positive is lighter."""
    source_lab: tuple[float, float, float]
    edited_lab: tuple[float, float, float]


def read_skin(rgb: Picture, mask: Mask) -> Skin | Abstained:
    """Take the skin pixels out of a picture."""
    pixels = rgb[mask]
    least = load_thresholds().skin.least_pixels
    if len(pixels) < least:
        return Abstained(reason=f"too little skin visible: {len(pixels)} of at least {least} pixels")
    return Skin(linear=to_linear(pixels), clipped=np.any(pixels >= _CLIPPED, axis=1))


def compare_skin(source: Skin, edited: Skin, light: Light, *, paired: bool) -> SkinChange | Abstained:
    """Difference of typical skin colour, edited minus source, as if both stood under the source's light.

    `paired`: row for row the same spot of the same face, so that differences can be taken spot by spot.
    """
    before, after = _same_spots(source, edited) if paired else _same_quantiles(source, edited)
    least = load_thresholds().skin.least_pixels
    if min(len(before), len(after)) < least:
        clipped = max(source.clipped.mean(), edited.clipped.mean())
        return Abstained(reason=f"skin overexposed: {clipped:.0%} of it is clipped")
    lit = after / np.array(light.gain, dtype=np.float32)
    a = linear_to_lab(np.median(before, axis=0))
    if paired:
        # The median of differences spot by spot: an edit that leaves part of the skin unchanged does not dilute it.
        b = a + np.median(linear_to_lab(lit) - linear_to_lab(before), axis=0).astype(np.float32)
    else:
        b = linear_to_lab(np.median(lit, axis=0))
    return SkinChange(
        delta_l=float(b[0] - a[0]),
        delta_e=float(delta_e(a, b)),
        delta_ita=_ita_change(a, b),
        source_lab=(float(a[0]), float(a[1]), float(a[2])),
        edited_lab=(float(b[0]), float(b[1]), float(b[2])),
    )


def ita(lab: NDArray[np.floating]) -> float:
    """Individual typology angle of a skin colour, in degrees."""
    return float(np.degrees(np.arctan2(lab[0] - 50, lab[2])))


def _same_spots(source: Skin, edited: Skin) -> tuple[Floats, Floats]:
    """Rows of both pictures: the source's middle quantiles, where neither is overexposed."""
    usable = ~(source.clipped | edited.clipped)
    before, after = source.linear[usable], edited.linear[usable]
    thresholds = load_thresholds().skin
    if len(before) < thresholds.least_band * len(usable):
        return before[:0], after[:0]
    order = np.argsort(before @ _LUMINANCE, kind="stable")
    middle = order[int(thresholds.low * len(order)) : int(thresholds.high * len(order))]
    plain = middle[_ordinary_hue(before[middle])]
    return before[plain], after[plain]


def _same_quantiles(source: Skin, edited: Skin) -> tuple[Floats, Floats]:
    """Rows of each picture between the same quantiles of luminance.

    Overexposed pixels are the brightest: both pictures lose the same share, so that like is compared with like.
    """
    thresholds = load_thresholds().skin
    clipped = float(max(source.clipped.mean(), edited.clipped.mean()))
    high = min(thresholds.high, 1 - clipped - 0.02 if clipped > 0.01 else 1.0)
    if high - thresholds.low < thresholds.least_band:
        return source.linear[:0], edited.linear[:0]
    return _between(source.linear, thresholds.low, high), _between(edited.linear, thresholds.low, high)


def _between(linear: Floats, low: float, high: float) -> Floats:
    order = np.argsort(linear @ _LUMINANCE, kind="stable")
    middle = linear[order[int(low * len(order)) : int(high * len(order))]]
    return middle[_ordinary_hue(middle)]


def _ordinary_hue(linear: Floats) -> Mask:
    """Which rows have an ordinary hue; hair, spectacles and make-up do not."""
    share = linear / np.maximum(linear.sum(axis=1, keepdims=True), 1e-6)
    odd = np.abs(share - np.median(share, axis=0)).sum(axis=1)
    return odd <= np.quantile(odd, 0.85)


def _ita_change(a: Floats, b: Floats) -> float | Abstained:
    if min(a[2], b[2]) < load_thresholds().skin.least_yellow:
        return Abstained(reason=f"ITA has no meaning here: b* is below {load_thresholds().skin.least_yellow:.0f}")
    return ita(b) - ita(a)
