"""Read pictures that come from anywhere, and write the ones we make."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from stillme.errors import UnreadableImage

MAX_PIXELS = 64_000_000
"""Larger files are refused before they are decoded: a decompression bomb must not exhaust the memory."""

_DAMAGED = (OSError, SyntaxError, ValueError, TypeError, RuntimeError, EOFError, ArithmeticError, LookupError, Warning)
"""What Pillow's decoders raise on broken files, found by trial."""

# Pillow only warns of very large pictures; we refuse them. Set once, as filters are not thread-safe.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


def read_rgb(source: bytes | Path, *, name: str = "") -> NDArray[np.uint8]:
    """Decode to upright 8-bit RGB: EXIF rotation applied, transparency laid on white, 16 bits scaled.

    Anything but a single still picture of a sensible size is refused in one sentence.
    """
    return np.asarray(read_picture(source, name=name))


def read_picture(source: bytes | Path, *, name: str = "") -> Image.Image:
    """As `read_rgb`, for callers that stay with Pillow: a copy to numpy and back takes as long as decoding."""
    label = name or (str(source) if isinstance(source, Path) else "the image")
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as picture:
            _refuse_oversized(picture, label)
            if getattr(picture, "n_frames", 1) > 1:
                raise UnreadableImage(f"{label} is animated; save one frame as a still picture.")
            picture.load()
            return _upright_rgb(picture)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableImage(f"{label} is larger than {MAX_PIXELS // 1_000_000} megapixels; resize it.") from None
    except FileNotFoundError:
        raise UnreadableImage(f"{label} does not exist.") from None
    except IsADirectoryError:
        raise UnreadableImage(f"{label} is a folder, not a picture.") from None
    except UnidentifiedImageError:
        raise UnreadableImage(f"{label} is not a picture in a format that Pillow reads.") from None
    except _DAMAGED as error:
        raise UnreadableImage(f"{label} is damaged or truncated ({error}).") from None


def check(source: bytes | Path, *, name: str = "") -> None:
    """Raise `UnreadableImage` unless `read_rgb` would work."""
    read_rgb(source, name=name)


def encode_png(rgb: NDArray[np.uint8]) -> bytes:
    """Lossless, fast to write: edits are kept exactly as the editor made them."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def encode_webp(rgb: NDArray[np.uint8], *, width: int, quality: int = 70) -> bytes:
    """A small WebP for pages."""
    picture = Image.fromarray(rgb)
    picture.thumbnail((width, width))
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=4)
    return buffer.getvalue()


def _refuse_oversized(picture: Image.Image, label: str) -> None:
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise UnreadableImage(
            f"{label} has {width}×{height} pixels, more than {MAX_PIXELS // 1_000_000} megapixels; resize it."
        )


def _upright_rgb(picture: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(picture)
    if upright.mode.startswith("I"):
        # Pillow clips 16-bit grey to 255 instead of scaling it.
        wide = np.asarray(upright).astype(np.float64)
        return Image.fromarray(np.clip(wide / 257, 0, 255).astype(np.uint8)).convert("RGB")
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        layer = upright.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return upright.convert("RGB")
