"""Portraits on their way out, and pictures on their way back."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from stillme import images
from stillme.editors.hosted.faults import of_answer
from stillme.errors import UnreadableImage

_SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded picture that every provider reads."""

    data: bytes
    mime: str
    size: tuple[int, int]

    @property
    def file_name(self) -> str:
        """A name for upload forms. It tells nothing about the portrait."""
        return f"image.{self.mime.removeprefix('image/')}"

    @property
    def data_uri(self) -> str:
        """The picture as a URL that contains it."""
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode()}"


def outgoing(path: Path) -> Picture:
    """The file as it is where every provider reads it alike, else as PNG.

    A picture that only its EXIF entry turns upright is turned before it is sent: judges see it upright, and not every
    provider looks.
    """
    data = path.read_bytes()
    try:
        with Image.open(io.BytesIO(data)) as picture:
            mime = _SENT_AS_IS.get(picture.format or "")
            if mime and picture.getexif().get(_ORIENTATION, 1) == 1:
                return Picture(data=data, mime=mime, size=picture.size)
    except OSError as error:
        raise UnreadableImage(f"{path} cannot be read as a picture ({error}).") from None
    rgb = images.read_rgb(data, name=str(path))
    return Picture(data=images.encode_png(rgb), mime="image/png", size=(rgb.shape[1], rgb.shape[0]))


def from_base64(text: object) -> bytes:
    """The bytes of a base64 field."""
    if not isinstance(text, str) or not text:
        raise of_answer("no picture in base64", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise of_answer(f"undecodable base64 ({error})", text[:80]) from None


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height from the file's head; whether the rest decodes is checked with every editor's pictures."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            return picture.size
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError):
        raise of_answer("no picture", data[:120]) from None
