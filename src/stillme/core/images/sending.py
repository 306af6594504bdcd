"""Pictures as requests carry them: encoded bytes, base64, data URIs, and no file name, which could tell the group."""

from __future__ import annotations

import base64
import io
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stillme.core import images

_SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
_ORIENTATION = 0x0112


@dataclass(frozen=True, kw_only=True)
class EncodedImage:
    """An encoded image in a format that every provider reads."""

    data: bytes
    mime: str
    size: tuple[int, int]

    @property
    def file_name(self) -> str:
        """A name for upload forms that does not identify the portrait."""
        return f"image.{self.mime.removeprefix('image/')}"

    @cached_property
    def base64(self) -> str:
        """The image in base64. Cached: several models are sent the same image."""
        return base64.b64encode(self.data).decode()

    @property
    def data_uri(self) -> str:
        """The image as a `data:` URL."""
        return f"data:{self.mime};base64,{self.base64}"


def encode_for_upload(path: Path) -> EncodedImage:
    """The file as it is if every provider reads it alike, else as PNG.

    EXIF rotation and colour profile are applied before sending: judges see the image upright and in sRGB, and not
    every provider reads these entries.
    """
    from PIL import Image

    from stillme.core.images.coding import conversion_of

    data = path.read_bytes()
    # `read_rgb` says what is wrong with a file that cannot be opened.
    with suppress(OSError, ValueError, SyntaxError), Image.open(io.BytesIO(data)) as picture:
        mime = _SENT_AS_IS.get(picture.format or "")
        if mime and picture.getexif().get(_ORIENTATION, 1) == 1 and conversion_of(picture).is_identity:
            return EncodedImage(data=data, mime=mime, size=picture.size)
    return encode_as_png(data, name=str(path))


def encode_as_png(picture: bytes | Path, *, name: str = "") -> EncodedImage:
    """A picture as PNG, upright, in sRGB."""
    rgb = images.read_rgb(picture, name=name)
    return EncodedImage(data=images.encode_png(rgb), mime="image/png", size=(rgb.shape[1], rgb.shape[0]))
