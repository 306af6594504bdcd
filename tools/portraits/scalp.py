# SPDX-License-Identifier: GPL-3.0-or-later
"""Where hair grows: the scalp with an identity's own hairline, and the beard."""

import functools

import numpy as np
from scipy import ndimage

from .chart import chart, noise, painted_mask, smoothstep
from .parameters import Person

# Height of the hairline by the angle from the face's middle to the back of the head, in degrees.
_ANGLES = (0, 20, 35, 48, 57, 65, 74, 82, 90, 100, 120, 180)
_HEIGHTS = (7.97, 7.93, 7.84, 7.69, 7.47, 7.12, 7.06, 7.30, 7.25, 6.98, 6.80, 6.74)


@functools.cache
def _ears() -> np.ndarray:
    coarse = ndimage.grey_dilation(painted_mask("ears", 4)[::4, ::4], size=(9, 9))
    rows, columns = chart().shape
    return np.clip(1.5 * coarse.repeat(4, 0).repeat(4, 1)[:rows, :columns], 0, 1)


@functools.lru_cache(maxsize=4)
def _cover(seed: int, recession: float, gender: float) -> np.ndarray:
    place = chart()
    rng = np.random.default_rng([seed, 4])
    angle = np.degrees(np.arctan2(np.abs(place.x), place.z - 0.35))
    line = np.interp(angle, _ANGLES, _HEIGHTS)
    peak, lift, corner = rng.uniform(-0.03, 0.05), rng.uniform(-0.05, 0.03), rng.uniform(0, 0.05)
    line = line + lift * smoothstep(50, 20, angle) - peak * np.exp(-((angle / 9) ** 2))
    line = line + corner * (0.5 + gender) * np.exp(-(((angle - 27) / 9) ** 2))
    # Hair recedes at the temples first, then in the middle, last on the crown.
    line = line + recession * (0.22 * np.exp(-(((angle - 30) / 13) ** 2)) + 0.10 * smoothstep(45, 0, angle))
    line = line + 0.018 * noise(10, rng, 2) + 0.010 * noise(3, rng)
    cover = smoothstep(-0.05, 0.16 + 0.12 * recession, place.y - line)
    crown = smoothstep(0.62, 0.15, np.hypot(place.x, place.z + 0.05)) * smoothstep(8.0, 8.35, place.y)
    front = smoothstep(7.85, 8.2, place.y) * smoothstep(0.0, 0.7, place.z)
    thinning = np.clip(1.1 * recession * crown + 0.8 * recession * front - 0.15, 0, 0.97)
    return (place.head * cover * (1 - _ears()) * (1 - thinning)).astype(np.float32)


def scalp_cover(person: Person) -> np.ndarray:
    """How densely hair grows, 0…1, in chart texels."""
    return _cover(person.seed, person.hair.recession, person.gender)


@functools.cache
def beard_area() -> np.ndarray:
    place = chart()
    x, y, z = np.abs(place.x), place.y, place.z
    lower_face = smoothstep(6.92, 6.74, y - 0.55 * np.maximum(0, x - 0.36)) * smoothstep(6.15, 6.40, y)
    moustache = np.exp(-((x / 0.22) ** 4) - ((y - 6.86) / 0.055) ** 4)
    cheeks = smoothstep(0.30, 0.38, x + 0.9 * np.maximum(0, 6.72 - y))
    mouth = np.exp(-((x / 0.275) ** 6) - ((y - 6.715) / 0.085) ** 4)
    area = np.clip(lower_face * np.maximum(cheeks, smoothstep(6.62, 6.54, y)) + moustache * (z > 1.1), 0, 1)
    return (place.head * area * (1 - mouth) * smoothstep(0.35, 0.6, z)).astype(np.float32)
