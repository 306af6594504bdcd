"""Images as requests and replies carry them: encoded bytes, data URIs, base64."""

from __future__ import annotations

import base64
import binascii
import io
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stillme.core import images
from stillme.editors.hosted.faults import unexpected_answer

_SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedImage:
    """An encoded image in a format that every provider reads."""

    data: bytes
    mime: str
    size: tuple[int, int]

    @property
    def file_name(self) -> str:
        """A name for upload forms that does not identify the portrait."""
        return f"image.{self.mime.removeprefix('image/')}"

    @property
    def base64(self) -> str:
        """The image in base64."""
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

    from stillme.core.images.colour_profiles import conversion_of

    data = path.read_bytes()
    # `read_rgb` says what is wrong with a file that cannot be opened.
    with suppress(OSError, ValueError, SyntaxError), Image.open(io.BytesIO(data)) as picture:
        mime = _SENT_AS_IS.get(picture.format or "")
        if mime and picture.getexif().get(_ORIENTATION, 1) == 1 and conversion_of(picture).is_identity:
            return EncodedImage(data=data, mime=mime, size=picture.size)
    rgb = images.read_rgb(data, name=str(path))
    return EncodedImage(data=images.encode_png(rgb), mime="image/png", size=(rgb.shape[1], rgb.shape[0]))


def from_base64(text: object) -> bytes:
    """The bytes of a base64 field."""
    if not isinstance(text, str) or not text:
        raise unexpected_answer("no picture in base64", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise unexpected_answer(f"invalid base64 ({error})", text[:80]) from None
