"""Pictures of a known pair in the form of the audit's own: same file format, same pixel size."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageOps

from stillme.core import images
from stillme.core.types import ImageFile
from stillme.editors.known import CHANGES, Known, KnownParameters
from stillme.runs.control_pairs.pairs import KnownPair
from stillme.runs.store.pictures import Pictures

_SAVING: dict[str, dict[str, Any]] = {
    "PNG": {"compress_level": 1},
    "JPEG": {"quality": 95, "subsampling": 0},
    "WEBP": {"quality": 95},
}
"""Formats that we write, and how; any other becomes PNG."""


def source_of(known: KnownPair, model: ImageFile, pictures: Pictures) -> ImageFile:
    """The unchanged portrait, as `model` is."""
    return _kept(images.read_picture(known.subject.image.path), model, pictures)


def edited_of(known: KnownPair, model: ImageFile, pictures: Pictures) -> ImageFile:
    """The changed portrait, as `model` is."""
    if known.render:
        return _kept(images.read_picture(known.render), model, pictures)
    changed = CHANGES[known.kind](Known(KnownParameters()), known.subject, known.amount)
    picture = images.read_picture(changed) if isinstance(changed, bytes) else Image.fromarray(changed)
    return _kept(picture, model, pictures)


def _kept(picture: Image.Image, model: ImageFile, pictures: Pictures) -> ImageFile:
    data = pictures.located(model).read()
    with Image.open(io.BytesIO(data)) as header:
        format_ = header.format if header.format in _SAVING else "PNG"
    like = images.read_picture(data)
    buffer = io.BytesIO()
    # Cut at the edges rather than squeezed: a face of another shape would be a change.
    ImageOps.fit(picture, like.size, Image.Resampling.LANCZOS).save(buffer, format_, **_SAVING[format_])
    sha256 = pictures.add(buffer.getvalue())
    return ImageFile(path=pictures.where(sha256), sha256=sha256)
