"""How much of a picture changed, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stillme.core.colour import Floats, delta_e
from stillme.instruments.alignment import Placement
from stillme.instruments.faces.raster import Mask, blur, grow, largest_region
from stillme.instruments.scene import Parts, View
from stillme.instruments.thresholds import load_thresholds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """Which part of a picture an edit touched visibly."""

    area: float
    """Share of the whole picture."""
    regions: Mapping[str, float]
    """Share of the face, the hair, the clothes and the background; absent where there is too little of one."""
    mean: float
    """Mean ΔE00 over the picture."""
    ssim: float
    """Mean structural similarity of lightness, up to 1: the drawing, more than its colours."""
    face_ssim: float
    """The same within the face, which a plain wall around it must not hide; 1 without a face."""
    largest: float
    """The largest connected changed region, in shares of the face's box; 0 without a face."""
    map: Floats
    """ΔE00 of every pixel of the small copy."""
    mask: Mask
    """Which pixels count as changed."""


def compare(source: View, edited: View, parts: Parts, covered: Mask | None = None, *, face_box: float = 0.0) -> Change:
    """Find what changed between two aligned views, where the edited one covers the source.

    `face_box` is the size of the face's box, in pixels of the view.
    """
    thresholds = load_thresholds().change
    distance = _distance(source.lab, edited.lab)
    changed = distance > thresholds.visible
    where = np.ones(changed.shape, dtype=np.bool_) if covered is None else covered
    changed &= where
    if changed.any():
        # Morphological opening: thin lines along edges are ringing, not a change.
        changed = grow(grow(changed, -thresholds.speck / 2), thresholds.speck / 2) & changed
    seen = parts.within(covered)
    regions = {"face": seen.face, "hair": seen.hair, "clothes": seen.clothes, "background": seen.background}
    similar = _similarity(source.lightness, edited.lightness)
    return Change(
        area=float(changed[where].mean()),
        regions={
            name: float(changed[mask].mean())
            for name, mask in regions.items()
            if mask.mean() >= thresholds.least_region
        },
        mean=float(distance[where].mean()),
        ssim=float(similar[where].mean()),
        face_ssim=float(similar[seen.face].mean()) if seen.face.any() else 1.0,
        largest=largest_region(changed) / face_box if face_box else 0.0,
        map=np.where(where, distance, 0).astype(np.float32),
        mask=changed,
    )


def signs_of_change(change: Change, placed: Placement) -> tuple[str, ...]:
    """What shows that something was edited; nothing where there is no visible change.

    Saving, resizing, mirroring, or moving the picture within its frame is not an edit.
    """
    thresholds = load_thresholds().change
    signs = {
        f"{change.area:.1%} of the picture changed": change.area > thresholds.unchanged,
        f"structural similarity {change.ssim:.2f}": change.ssim < thresholds.similar,
        f"structural similarity of the face {change.face_ssim:.2f}": change.face_ssim < thresholds.similar,
        f"a region of {change.largest:.0%} of the face's box changed": change.largest >= thresholds.spot,
        f"only {placed.cover:.0%} of the source is shown": placed.cover < thresholds.cover,
        f"turned by {abs(placed.turned):.0f}°": abs(placed.turned) > thresholds.turned,
    }
    return tuple(sign for sign, shows in signs.items() if shows)


def _distance(a: Floats, b: Floats) -> Floats:
    """ΔE00 where a change is visible; below 1 the plain distance is as good, at a tenth of the cost."""
    apart = a - b
    distance = np.sqrt(np.einsum("...i,...i->...", apart, apart))
    visible = distance > 1
    distance[visible] = delta_e(a[visible], b[visible])
    return distance


def _similarity(a: Floats, b: Floats) -> Floats:
    """SSIM at every pixel, of lightness from 0 to 100, in Gaussian windows (Wang et al., 2004)."""
    mean_a, mean_b = blur(a, 1.5), blur(b, 1.5)
    spread_a, spread_b = blur(a * a, 1.5) - mean_a**2, blur(b * b, 1.5) - mean_b**2
    shared = blur(a * b, 1.5) - mean_a * mean_b
    level = (2 * mean_a * mean_b + 1.0) / (mean_a**2 + mean_b**2 + 1.0)
    return (level * (2 * shared + 9.0) / (spread_a + spread_b + 9.0)).astype(np.float32)
