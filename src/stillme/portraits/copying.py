"""Smaller copies of portraits, as a folder that an audit can use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from stillme.core import images
from stillme.core.files import write_csv, write_whole
from stillme.core.types import Portrait
from stillme.portraits.folder import TABLE


def shrink_into(folder: Path, portraits: Sequence[Portrait], *, longest: int) -> Path:
    """Write portraits, with all that is known of them, whose longer side has at most `longest` pixels.

    A folder that was written before is left as it is: its pictures are what earlier edits were made of.
    """
    if (folder / TABLE).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)

    def copy(portrait: Portrait) -> dict[str, str]:
        file = f"{portrait.id}.png"
        picture = images.read_picture(portrait.image.path)
        picture.thumbnail((longest, longest), Image.Resampling.LANCZOS)
        write_whole(folder / file, images.encode_png(np.asarray(picture)))
        terms = {"licence": portrait.licence, "label_origin": portrait.label_origin, "block": portrait.block}
        return {"id": portrait.id, "file": file, **portrait.attributes, **terms}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(copy, portraits))
    write_csv(folder / TABLE, list(dict.fromkeys(name for row in rows for name in row)), rows)
    return folder
