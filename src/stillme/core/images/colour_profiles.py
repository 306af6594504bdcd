"""What a picture file says about its colours, and how they become sRGB.

All measurements, judges and pages take pixels for sRGB. Dropping the profile of an AdobeRGB portrait puts ΔE00 2 to 4
between it and an sRGB edit in which nothing changed.

Read are ICC profiles (RGB, grey, CMYK) in every format, and the PNG chunks sRGB, gAMA and cHRM. Pillow exposes neither
the PNG chunk cICP nor AVIF's nclx box; EXIF's `ColorSpace` is ignored, as in browsers. Such pictures count as sRGB.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from PIL import Image, ImageCms

_MAX_BYTES = 8 * 2**20
"""Larger profiles are not read; those of printers have 3 MB."""
_SRGB_CHROMATICITY = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)
_SRGB_GAMMA = 1 / 2.2
_TOLERANCE = 2
"""Levels of 255 by which a transform may move a colour and still count as sRGB: writers round its curve differently."""
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
_MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Pillow's mode for each colour space of ICC."""
_BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
_D50 = (0.9642, 1.0, 0.8249)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The way of a picture's colours to sRGB."""

    problem: str = ""
    """Why the profile is not applied; empty if it is, or if there is none."""
    mode: str = "RGB"
    transform: ImageCms.ImageCmsTransform | None = None
    """None where the numbers count as sRGB already. Threads may share it: LittleCMS keeps no state in it."""

    @property
    def is_identity(self) -> bool:
        """Whether the numbers are sRGB as they stand, and every reader of the file will take them so."""
        return self.transform is None and not self.problem

    def applied(self, picture: Image.Image) -> Image.Image:
        """The picture in sRGB; transparency is dropped."""
        if self.transform is None:
            return picture if picture.mode == "RGB" else picture.convert("RGB")
        converted = ImageCms.applyTransform(picture.convert(self.mode), self.transform)
        return cast("Image.Image", converted)  # None only where it works in place


def conversion_of(picture: Image.Image) -> Conversion:
    """How this picture's colours become sRGB, by what its file says. Needs only the header, not the pixels."""
    info = cast("dict[Any, Any]", picture.info)
    is_grey = picture.mode.partition(";")[0] in _GREY_MODES
    space = "CMYK" if picture.mode == "CMYK" else "GRAY" if is_grey else "RGB"
    if "icc_profile" in info:
        # Pillow keeps None for a profile that it cannot unpack.
        return _by_profile(bytes(info["icc_profile"] or b""), space)
    if "srgb" in info or not ("gamma" in info or "chromaticity" in info):
        return Conversion()
    return _by_png_chunks(info.get("gamma", _SRGB_GAMMA), info.get("chromaticity", _SRGB_CHROMATICITY), space)


@lru_cache(maxsize=8)
def _by_profile(profile: bytes, space: str) -> Conversion:
    """Cached, as a portrait set has a few profiles and building a transform takes longer than applying it."""
    if len(profile) > _MAX_BYTES:
        return Conversion(problem=f"its colour profile has {len(profile) / 2**20:.0f} MB")
    # Pillow's types leave out what createProfile returns.
    cms: Any = ImageCms
    try:
        opened = cms.ImageCmsProfile(io.BytesIO(profile))
        described = opened.profile.xcolor_space.strip()
        # Many grey pictures carry the RGB profile of the program that wrote them.
        if described != space and (described, space) != ("RGB", "GRAY"):
            return Conversion(problem=f"its colour profile is for {described} pictures, but it is {space}")
        mode = _MODES[described]
        # Relative colorimetric leaves every colour that sRGB can show as it is; the perceptual intent moves all by the
        # vendor's taste. Black-point compensation keeps the shadows of print profiles apart.
        transform = cms.buildTransform(
            opened,
            cms.createProfile("sRGB"),
            mode,
            "RGB",
            renderingIntent=cms.Intent.RELATIVE_COLORIMETRIC,
            flags=cms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return Conversion(problem="its colour profile cannot be read")
    conversion = Conversion(mode=mode, transform=transform)
    return Conversion() if mode != "CMYK" and _changes_nothing(conversion) else conversion


def _changes_nothing(conversion: Conversion) -> bool:
    """Names of sRGB profiles cannot be trusted and their bytes vary, so a few colours are tried."""
    levels = np.array([0, 16, 64, 128, 192, 255], dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
    tried = cube if conversion.mode == "RGB" else np.repeat(levels, 3).reshape(1, -1, 3)
    moved = np.asarray(conversion.applied(Image.fromarray(tried))).astype(np.int16) - tried
    return int(np.abs(moved).max()) <= _TOLERANCE


def _by_png_chunks(gamma: float, chromaticity: Sequence[float], space: str) -> Conversion:
    # PNG asks that writers of sRGB put these numbers beside it, though sRGB's curve is no pure power.
    if abs(gamma / _SRGB_GAMMA - 1) < 0.05 and np.allclose(chromaticity, _SRGB_CHROMATICITY, atol=0.005):
        return Conversion()
    try:
        profile = _matrix_profile(1 / gamma, chromaticity)
    except (ArithmeticError, ValueError, struct.error):  # numpy's LinAlgError is a ValueError
        return Conversion(problem="its gAMA or cHRM chunk describes no colours")
    # These chunks of a grey picture describe the same curve.
    return _by_profile(profile, space)


def _matrix_profile(gamma: float, chromaticity: Sequence[float]) -> bytes:
    """An ICC profile (version 2) of a display with these primaries: white, red, green and blue, each x and y."""
    white, *primaries = (
        (x / y, 1.0, (1 - x - y) / y) for x, y in zip(chromaticity[::2], chromaticity[1::2], strict=True)
    )
    columns = np.array(primaries).T
    to_xyz = columns * np.linalg.solve(columns, white)
    # Profiles are written for the white of print, D50.
    adapted = np.linalg.solve(_BRADFORD, np.diag(_BRADFORD @ _D50 / (_BRADFORD @ white)) @ _BRADFORD) @ to_xyz
    curve = b"curv" + struct.pack(">4xIH2x", 1, round(gamma * 256))
    values = {b"wtpt": _xyz(_D50), **{f"{name}TRC".encode(): curve for name in "rgb"}}
    values |= {f"{name}XYZ".encode(): _xyz(adapted[:, place]) for place, name in enumerate("rgb")}
    start = 128 + 4 + 12 * len(values)
    table, body = struct.pack(">I", len(values)), b""
    for name, value in values.items():
        table += name + struct.pack(">II", start + len(body), len(value))
        body += value
    header = struct.pack(">I4xI4s4s4s12x4s28x", start + len(body), 0x02400000, b"mntr", b"RGB ", b"XYZ ", b"acsp")
    return header + _xyz(_D50)[8:] + bytes(48) + table + body


def _xyz(values: Sequence[float] | np.ndarray[Any, Any]) -> bytes:
    return b"XYZ " + struct.pack(">4x3i", *(round(float(value) * 65536) for value in values))
