"""ICC profiles for tests, written by hand from published numbers."""

from __future__ import annotations

import struct

from PIL import ImageCms

ADOBE_COLORANTS = {"r": (0.60974, 0.31111, 0.01947), "g": (0.20528, 0.62567, 0.06087), "b": (0.14919, 0.06322, 0.74457)}
"""Adobe RGB (1998), annex B: the primaries as profiles hold them, for the white D50."""
ADOBE_CHROMATICITY = (0.3127, 0.329, 0.64, 0.33, 0.21, 0.71, 0.15, 0.06)


def srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def adobe_rgb() -> bytes:
    """Adobe RGB (1998): a matrix and the curve 563/256."""
    colorants = {f"{name}XYZ": _xyz(*values) for name, values in ADOBE_COLORANTS.items()}
    return _profile("RGB ", {"wtpt": _D50, **colorants, **{f"{name}TRC": _curve(563) for name in "rgb"}})


def grey(gamma: float) -> bytes:
    return _profile("GRAY", {"wtpt": _D50, "kTRC": _curve(round(gamma * 256))})


def cmyk() -> bytes:
    """An ideal printer: Lab of a few inks, in an 8-bit table of two points per ink (lut8, to Lab)."""
    corners: list[int] = []
    for index in range(16):
        cyan, magenta, yellow, black = ((index >> shift) & 1 for shift in (3, 2, 1, 0))
        light = 255 - 60 * (cyan + magenta + yellow) if not black else 20
        corners += [light, 128 + 30 * (magenta - cyan), 128 + 30 * (yellow - magenta)]
    straight = bytes(range(256))
    unity = struct.pack(">9i", *(65536 if place % 4 == 0 else 0 for place in range(9)))
    table = b"mft1" + struct.pack(">4x4B", 4, 3, 2, 0) + unity + straight * 4 + bytes(corners) + straight * 3
    return _profile("CMYK", {"wtpt": _D50, "A2B0": table, "A2B1": table}, kind="prtr", connection="Lab ")


def _xyz(*values: float) -> bytes:
    return b"XYZ " + bytes(4) + b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def _curve(gamma: int) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, gamma) + bytes(2)


_D50 = _xyz(0.9642, 1.0, 0.8249)


def _profile(space: str, tags: dict[str, bytes], *, kind: str = "mntr", connection: str = "XYZ ") -> bytes:
    offset, table, body = 132 + 12 * len(tags), b"", b""
    for name, value in tags.items():
        padded = value + bytes(-len(value) % 4)
        table += name.encode() + struct.pack(">II", offset + len(body), len(value))
        body += padded
    head = bytearray(128)
    head[0:4] = struct.pack(">I", offset + len(body))
    head[8:12] = bytes([2, 0x40, 0, 0])
    head[12:24] = f"{kind}{space}{connection}".encode()
    head[36:40] = b"acsp"
    head[68:80] = _D50[8:]
    return bytes(head) + struct.pack(">I", len(tags)) + table + body
