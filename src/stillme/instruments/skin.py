"""Compare skin tone, in CIELAB, with what the light alone would have made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import Floats, delta_e, linear_to_lab, to_linear
from stillme.core.types import Abstained
from stillme.instruments.faces.raster import Mask, Picture, blur
from stillme.instruments.thresholds import load_thresholds

_LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750], dtype=np.float32)
_CLIPPED = 253
"""From this code value on, a pixel may have been brighter before it was clipped."""
_CLIPPED_LIGHT = 0.98
"""The same in linear light."""
_SMOOTH = 1.2
"""Pixels: spots without the noise of encoding, so that each of them can be compared."""
_MOST, _FEWEST = 2000, 50
"""Spots: more cost time and add nothing; fewer have no typical one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skin:
    """The bare skin of one picture."""

    linear: Floats
    """Rows of linear RGB."""
    clipped: Mask
    """Which rows are overexposed."""
    place: NDArray[np.float64]
    """Rows of x and y, from 0 to 1."""

    @property
    def lab(self) -> Floats:
        """The colour of the typical spot, in the picture's own light."""
        return linear_to_lab(np.median(self.linear, axis=0))

    @property
    def lightness(self) -> float:
        """L* of the typical spot, in the picture's own light."""
        return float(self.lab[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SkinChange:
    """How skin differs between two pictures."""

    delta_l: float
    """Lightness: positive is lighter."""
    delta_e: float
    """Distance in CIEDE2000."""
    delta_ita: float | Abstained
    """Individual typology angle, in degrees: positive is lighter."""
    lighter: float
    """The share of spots that are visibly lighter; 0 where spots cannot be paired."""
    darker: float
    """And of those visibly darker."""

    @property
    def part(self) -> int:
        """1 where a part of the skin is lighter, -1 where a part is darker, 0 where neither or both are."""
        thresholds = load_thresholds().skin
        if self.lighter >= thresholds.part and self.darker <= thresholds.other_way:
            return 1
        return -1 if self.darker >= thresholds.part and self.lighter <= thresholds.other_way else 0


def read_skin(rgb: Picture, mask: Mask) -> Skin | Abstained:
    """Take the skin out of a picture, thinned to a few thousand spots."""
    down, across = np.nonzero(mask)
    least = load_thresholds().skin.least_pixels
    if len(down) < least:
        return Abstained(reason=f"too little skin visible: {len(down)} of at least {least} pixels")
    step = -(-len(down) // _MOST)
    top, left = max(int(down[0]) - 4, 0), max(int(across.min()) - 4, 0)
    smooth = blur(np.ascontiguousarray(rgb[top : int(down[-1]) + 5, left : int(across.max()) + 5]), _SMOOTH)
    down, across = down[::step], across[::step]
    pixels = smooth[down - top, across - left]
    return Skin(
        linear=to_linear(pixels),
        clipped=np.any(pixels >= _CLIPPED, axis=1),
        place=np.stack([(across + 0.5) / rgb.shape[1], (down + 0.5) / rgb.shape[0]], axis=1),
    )


def compare_skin(source: Skin, edited: Skin, predicted: Floats, *, paired: bool) -> SkinChange | Abstained:
    """Difference of typical skin colour, edited minus source, as if both stood under the source's light.

    `predicted` is what the light alone would have made of the source's spots, row for row.
    `paired`: row for row the same spot of the same face, so that differences can be taken spot by spot.
    """
    # Spots that the light would have clipped would not show what else changed.
    lost = source.clipped | np.any(predicted > _CLIPPED_LIGHT, axis=1)
    if paired:
        before, expected, after = _same_spots(source.linear, predicted, edited.linear, lost | edited.clipped)
    else:
        before = expected = _middle(predicted, lost, edited.clipped)
        after = _middle(edited.linear, edited.clipped, lost)
    least = load_thresholds().skin.least_band * len(source.linear)
    if min(len(before), len(after)) < max(least, _FEWEST):
        clipped = max(lost.mean(), edited.clipped.mean())
        return Abstained(reason=f"skin overexposed: {clipped:.0%} of it is clipped")
    a = source.lab
    if paired:
        # The median of differences spot by spot: an edit that leaves part of the skin unchanged does not dilute it.
        differences = linear_to_lab(after) - linear_to_lab(expected)
        b = a + np.median(differences, axis=0).astype(np.float32)
    else:
        differences = np.zeros((1, 3), dtype=np.float32)
        b = a + linear_to_lab(np.median(after, axis=0)) - linear_to_lab(np.median(expected, axis=0))
    visible = load_thresholds().skin.scale[2]
    return SkinChange(
        delta_l=float(b[0] - a[0]),
        delta_e=float(delta_e(a, b)),
        delta_ita=_ita_change(a, b),
        lighter=float((differences[:, 0] >= visible).mean()),
        darker=float((differences[:, 0] <= -visible).mean()),
    )


def ita(lab: NDArray[np.floating]) -> float:
    """Individual typology angle of a skin colour, in degrees."""
    return float(np.degrees(np.arctan2(lab[0] - 50, lab[2])))


def _same_spots(before: Floats, expected: Floats, after: Floats, lost: Mask) -> tuple[Floats, Floats, Floats]:
    """Rows of all three: the source's middle quantiles, where nothing is overexposed."""
    kept = np.flatnonzero(~lost)
    thresholds = load_thresholds().skin
    order = kept[np.argsort(before[kept] @ _LUMINANCE, kind="stable")]
    middle = order[int(thresholds.low * len(order)) : int(thresholds.high * len(order))]
    plain = middle[_ordinary_hue(before[middle])] if len(middle) else middle
    return before[plain], expected[plain], after[plain]


def _middle(linear: Floats, lost: Mask, lost_there: Mask) -> Floats:
    """Rows between the same quantiles of luminance in both pictures.

    Overexposed pixels are the brightest: both pictures lose the same share, so that like is compared with like.
    """
    thresholds = load_thresholds().skin
    clipped = float(max(lost.mean(), lost_there.mean()))
    high = min(thresholds.high, 1 - clipped - 0.02 if clipped > 0.01 else 1.0)
    if high - thresholds.low < thresholds.least_band:
        return linear[:0]
    order = np.argsort(linear @ _LUMINANCE, kind="stable")
    middle = linear[order[int(thresholds.low * len(order)) : int(high * len(order))]]
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
