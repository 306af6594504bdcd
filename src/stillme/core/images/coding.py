"""Decode pictures that come from anywhere and encode the ones we make, with numpy and Pillow.

All measurements, judges and pages take pixels for sRGB. Dropping the profile of an AdobeRGB portrait puts ΔE00 2 to 4
between it and an sRGB edit in which nothing changed.

Read are ICC profiles (RGB, grey, CMYK) in every format, and the PNG chunks sRGB, gAMA and cHRM. Pillow exposes neither
the PNG chunk cICP nor AVIF's nclx box; EXIF's `ColorSpace` is ignored, as in browsers. Such pictures count as sRGB.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from stillme.core.errors import UnreadableImage

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


MAX_PIXELS = 64_000_000
"""Larger files are refused before they are decoded: a decompression bomb must not exhaust the memory."""

_DAMAGED = (OSError, SyntaxError, ValueError, TypeError, RuntimeError, EOFError, ArithmeticError, LookupError, Warning)
"""What Pillow's decoders raise on broken files, found by trial."""

_OPAQUE = 255
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
"""Brands of files that a telephone's camera writes, after `ftyp` (ISO/IEC 23008-12)."""

_latest = threading.local()
"""The picture that a thread encoded last, with its pixels: it is looked at next, and need not be decoded for that."""

# Pillow only warns of very large pictures; we refuse them. Set once, as filters are not thread-safe.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


def read_rgb(source: bytes | Path, *, name: str = "") -> NDArray[np.uint8]:
    """Decode to upright 8-bit sRGB: profile and EXIF rotation applied, transparency laid on white, 16 bits scaled.

    Anything but a single still picture of a sensible size is refused in one sentence. A colour profile that cannot be
    applied is ignored; `colour_problem` tells.
    """
    made: tuple[bytes, NDArray[np.uint8]] | None = getattr(_latest, "made", None)
    if made is not None and made[0] is source:
        return made[1]
    return np.asarray(read_picture(source, name=name))


@lru_cache(maxsize=4)
def read_source(data: bytes) -> NDArray[np.uint8]:
    """As `read_rgb`, cached for the last few: requests come portrait by portrait."""
    return read_rgb(data)


def read_picture(source: bytes | Path, *, name: str = "") -> Image.Image:
    """As `read_rgb`, for callers that stay with Pillow: a copy to numpy and back takes as long as decoding."""
    with _opened(source, name) as picture:
        picture.load()
        srgb = _upright_srgb(picture)
        # Saved again with its old profile or gamma, the picture would be converted twice.
        srgb.info.clear()
        return srgb


def colour_problem(source: bytes | Path, *, name: str = "") -> str:
    """Why a picture's colour profile is not applied; empty if it is, or if there is none. Reads only the header."""
    with _opened(source, name) as picture:
        return conversion_of(picture).problem


def has_transparency(source: bytes | Path, *, name: str = "") -> bool:
    """Whether something of the picture is transparent, so that `read_rgb` shows white there."""
    with _opened(source, name) as picture:
        if not _may_be_transparent(picture):
            return False
        least, _ = picture.convert("RGBA").getchannel("A").getextrema()
        return least != _OPAQUE


def check(source: bytes | Path, *, name: str = "") -> None:
    """Raise `UnreadableImage` unless `read_rgb` would work."""
    read_rgb(source, name=name)


def encode_png(rgb: NDArray[np.uint8]) -> bytes:
    """Lossless, fast to write: edits are kept exactly as the editor made them."""
    height, width = rgb.shape[:2]
    rows = rgb.reshape(height, 3 * width)
    filtered = np.empty((height, 1 + 3 * width), dtype=np.uint8)
    # One filter for all rows, each minus the one above it: to try all five, as Pillow does, takes most of its time.
    filtered[:, 0] = 2
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    deflate = zlib.compressobj(1, strategy=zlib.Z_RLE)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of R, G, B; not interlaced
    data = deflate.compress(filtered.data) + deflate.flush()
    made = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")
    if width * height <= MAX_PIXELS:
        pixels = rgb.copy()
        pixels.flags.writeable = False
        _latest.made = made, pixels
    return made


def encode_webp(picture: Image.Image, *, width: int, quality: int = 70) -> bytes:
    """A small WebP for pages. Shrinks the picture itself."""
    picture.thumbnail((width, width))
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=4)
    return buffer.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))))


@contextmanager
def _opened(source: bytes | Path, name: str) -> Generator[Image.Image]:
    """A still picture of a sensible size; whatever goes wrong until it is closed becomes `UnreadableImage`."""
    label = name or (str(source) if isinstance(source, Path) else "the image")
    if isinstance(source, Path) and source.exists() and not (source.is_file() or source.is_dir()):
        # Opening a pipe would wait for a writer.
        raise UnreadableImage(f"{label} is a pipe or a device, not a picture.")
    try:
        if _is_heic(source):
            _read_heic(label)
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as picture:
            _refuse_oversized(picture, label)
            if getattr(picture, "n_frames", 1) > 1:
                raise UnreadableImage(f"{label} is animated; save one frame as a still picture.")
            yield picture
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableImage(f"{label} is larger than {MAX_PIXELS // 1_000_000} megapixels; resize it.") from None
    except FileNotFoundError:
        raise UnreadableImage(f"{label} does not exist.") from None
    except IsADirectoryError:
        raise UnreadableImage(f"{label} is a folder, not a picture.") from None
    except UnidentifiedImageError:
        raise UnreadableImage(f"{label} is not a picture in a format that Pillow reads.") from None
    except _DAMAGED as error:
        raise UnreadableImage(f"{label} is damaged or truncated ({' '.join(str(error).split())}).") from None


def _is_heic(source: bytes | Path) -> bool:
    if isinstance(source, bytes):
        head = source[:12]
    else:
        with source.open("rb") as stream:
            head = stream.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in _HEIC


def _read_heic(label: str) -> None:
    """Teach Pillow to read HEIC. Not a dependency: the codec that the package carries is not permissively licensed."""
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError:
        raise UnreadableImage(
            f"{label} is a HEIC picture; `pip install pillow-heif` to read it, or save it as JPEG."
        ) from None


def _refuse_oversized(picture: Image.Image, label: str) -> None:
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise UnreadableImage(
            f"{label} has {width}×{height} pixels, more than {MAX_PIXELS // 1_000_000} megapixels; resize it."
        )


def _may_be_transparent(picture: Image.Image) -> bool:
    return picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info


def _upright_srgb(picture: Image.Image) -> Image.Image:
    conversion = conversion_of(picture)
    ImageOps.exif_transpose(picture, in_place=True)
    if picture.mode.startswith("I"):
        # Pillow clips 16-bit grey to 255 instead of scaling it.
        wide = np.asarray(picture).astype(np.float64)
        return conversion.applied(Image.fromarray(np.clip(wide / 257, 0, 255).astype(np.uint8)))
    if _may_be_transparent(picture):
        layer = picture.convert("RGBA")
        if conversion.transform:
            transparency = layer.getchannel("A")
            layer = conversion.applied(layer)
            layer.putalpha(transparency)
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return conversion.applied(picture)
