"""Separate a change of exposure from a change of skin, by what else is in the picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stillme.colour import Floats, linear_to_lab
from stillme.faces.raster import Mask
from stillme.instruments.scene import Parts, View
from stillme.instruments.thresholds import load_thresholds

_DARK, _BRIGHT = 0.002, 0.9
"""Linear light outside of which a pixel says nothing about a gain: noise below, clipping above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """How the light of the edited picture differs from the source's."""

    gain: tuple[float, float, float]
    """Per channel, linear; what the edited picture was multiplied by. Ones where it is unknown."""
    kept: float
    """The share of background pixels (or of hair and clothes) that the gain explains."""
    normalised: bool
    """Whether the gain is trusted, so that skin is compared as if under the source's light."""
    reference: str
    """What showed the light: the background, or hair and clothes where there is too little of it."""
    note: str
    """Why the light is not known, otherwise."""


def compare_light(source: View, edited: View, parts: Parts) -> Light:
    """Estimate the per-channel gain of what should not have changed, and whether to trust it."""
    source, edited, parts = source.thinned(), edited.thinned(), parts.thinned()
    by_background = _by(source, edited, parts.background, "background")
    if by_background.normalised:
        gain = np.array(by_background.gain, dtype=np.float32)
        if _stayed_behind(source, edited, gain, parts.wear):
            return _unknown(by_background.kept, "background", "the background changed its brightness alone")
        return by_background
    if by_background.note in (_TOO_LITTLE, _NO_INFORMATION):
        by_wear = _by(source, edited, parts.wear, "hair and clothes")
        if by_wear.normalised:
            return by_wear
    return by_background


_TOO_LITTLE = "too little background"
_NO_INFORMATION = "the background is black or overexposed"


def _by(source: View, edited: View, where: Mask, reference: str) -> Light:
    thresholds = load_thresholds().light
    if where.mean() < thresholds.least_background:
        return _unknown(0.0, reference, _TOO_LITTLE)
    gain = _gain(source.linear[where], edited.linear[where])
    if gain is None:
        return _unknown(0.0, reference, _NO_INFORMATION)
    kept = float(_agrees(source, edited, gain, where).mean())
    if kept < thresholds.kept:
        return _unknown(kept, reference, f"the {reference} changed")
    if np.abs(np.log2(gain)).max() > thresholds.largest_stops or gain.max() / gain.min() > thresholds.largest_cast:
        return _unknown(kept, reference, f"the {reference} changed colour")
    red, green, blue = (float(channel) for channel in gain)
    return Light(gain=(red, green, blue), kept=kept, normalised=True, reference=reference, note="")


def _unknown(kept: float, reference: str, note: str) -> Light:
    return Light(gain=(1.0, 1.0, 1.0), kept=kept, normalised=False, reference=reference, note=note)


def _gain(source: Floats, edited: Floats) -> Floats | None:
    usable: Mask = np.all((source > _DARK) & (source < _BRIGHT) & (edited > _DARK) & (edited < _BRIGHT), axis=1)
    # A few usable pixels of a clipped background are its edges, blurred with what is clipped.
    if usable.sum() < max(0.15 * len(usable), 100):
        return None
    return np.median(edited[usable] / source[usable], axis=0).astype(np.float32)


def _agrees(source: View, edited: View, gain: Floats, where: Mask) -> Mask:
    predicted = linear_to_lab(np.minimum(source.linear[where] * gain, 1.0))
    return np.linalg.norm(predicted - edited.lab[where], axis=1) <= load_thresholds().light.inlier


def _stayed_behind(source: View, edited: View, gain: Floats, wear: Mask) -> bool:
    """Whether hair and clothes stayed unchanged while the background changed: then the light did not change.

    The limit is tight: a person whom the edit lightened while the light went down may end near where they were.
    """
    thresholds = load_thresholds().light
    lit = linear_to_lab(np.minimum(source.linear[wear] * gain, 1.0))
    same = source.lab[wear]
    telling = np.linalg.norm(lit - same, axis=1) > thresholds.inlier
    if telling.sum() < max(0.05 * len(telling), 1):
        return False
    actual = edited.lab[wear][telling]
    to_lit = np.linalg.norm(lit[telling] - actual, axis=1)
    to_same = np.linalg.norm(same[telling] - actual, axis=1)
    stayed = float((to_same < np.minimum(to_lit, thresholds.stayed)).mean())
    followed = float((to_lit <= np.minimum(to_same, thresholds.inlier)).mean())
    return stayed > 0.5 and stayed > 2 * followed
