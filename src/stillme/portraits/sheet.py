"""A contact sheet of a set of portraits, with the card that says what its labels are and are not."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markdown_it import MarkdownIt
from markupsafe import Markup
from PIL import Image, ImageDraw, ImageFont

from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.core.files import whole, write_whole
from stillme.core.types import Portrait
from stillme.portraits.folder import TABLE

CARD = "CARD.md"
"""The dataset card beside a set's CSV, where it has one."""

_TILE = 160
_GAP = 8
_CAPTION = 18
_COLUMNS = 8


def write_sheet(portraits: Sequence[Portrait], file: Path) -> Path:
    """Write the contact sheet as `.png`, or as `.html` with the set's card."""
    match file.suffix.lower():
        case ".png":
            with whole(file) as draft:
                _draw(portraits).save(draft, "PNG")
        case ".html":
            write_whole(file, _page(portraits))
        case other:
            raise StillmeError(f"A contact sheet cannot be {other or 'without a suffix'!r}; name a .png or .html file.")
    return file


def rows_of(portraits: Sequence[Portrait]) -> list[list[Portrait]]:
    """Matched portraits share a row; otherwise rows are filled one after the other."""
    blocks: dict[str, list[Portrait]] = {}
    for portrait in portraits:
        blocks.setdefault(portrait.block, []).append(portrait)
    if len(blocks) > 1 and "" not in blocks:
        return [sorted(block, key=lambda portrait: portrait.id) for block in blocks.values()]
    return [list(portraits[start : start + _COLUMNS]) for start in range(0, len(portraits), _COLUMNS)]


def _draw(portraits: Sequence[Portrait]) -> Image.Image:
    rows = rows_of(portraits)
    width = _GAP + max(len(row) for row in rows) * (_TILE + _GAP)
    sheet = Image.new("RGB", (width, _GAP + len(rows) * (_TILE + _CAPTION + _GAP)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=12)
    for down, row in enumerate(rows):
        for across, portrait in enumerate(row):
            left, top = _GAP + across * (_TILE + _GAP), _GAP + down * (_TILE + _CAPTION + _GAP)
            tile = Image.fromarray(images.read_rgb(portrait.image.path))
            tile.thumbnail((_TILE, _TILE))
            sheet.paste(tile, (left, top))
            pen.text((left, top + _TILE + 2), portrait.id, fill="black", font=font)
    return sheet


def _page(portraits: Sequence[Portrait]) -> str:
    environment = Environment(loader=PackageLoader("stillme.portraits", "."), autoescape=True)
    # The card is part of the package or of the user's own folder; HTML inside it is shown, not run.
    card = MarkdownIt("commonmark", {"html": False}).enable("table").render(_card(portraits[-1]))
    return environment.get_template("sheet.html").render(
        rows=[[(portrait, _thumbnail(portrait)) for portrait in row] for row in rows_of(portraits)],
        origins=sorted({portrait.label_origin for portrait in portraits}),
        licences=sorted({portrait.licence for portrait in portraits}),
        count=len(portraits),
        card=Markup(card),
    )


def _card(portrait: Portrait) -> str:
    """The card of the folder that a portrait is in; empty where it has none."""
    homes = [folder for folder in portrait.image.path.parents if (folder / TABLE).is_file()]
    return (homes[0] / CARD).read_text("utf-8") if homes and (homes[0] / CARD).is_file() else ""


def _thumbnail(portrait: Portrait) -> str:
    small = images.encode_webp(images.read_picture(portrait.image.path), width=_TILE)
    return f"data:image/webp;base64,{base64.b64encode(small).decode()}"
