"""One pair as one self-contained page: what changed in sentences, both pictures, and the places that changed."""

from __future__ import annotations

import base64
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from stillme.core import images
from stillme.core.files import policy_source, write_whole
from stillme.findings.single.check import Checked, Together
from stillme.instruments.faces.raster import Picture

_SIDE = 1024
"""Pixels: as wide as a large screen shows one picture. No page needs the camera's own size."""
_QUALITY = 85


def write_page(
    file: Path, edited: Path, source: Path, checked: Checked, *, prompt: str = "", together: Together | None = None
) -> Path:
    """Write the page whole or not at all. It has the pictures' pixels and none of their metadata or names."""
    return write_whole(file, render(edited, source, checked, prompt=prompt, together=together))


def render(edited: Path, source: Path, checked: Checked, *, prompt: str = "", together: Together | None = None) -> str:
    """The page as text."""
    from stillme.instruments import overlay
    from stillme.instruments.measurements import measure

    measured = measure(source, edited)
    style = _read("style.css") + slider("css")
    script = f'{slider("js")}slidePictures(document.querySelector(".compare"), document.querySelector(".slide"));'
    before = images.read_picture(source)
    context: dict[str, Any] = {
        "statements": checked.statements,
        "cards": [*checked.cards, *([together] if together else [])],
        "notes": checked.notes,
        "prompt": prompt,
        "before": _uri(before),
        "after": _uri(images.read_picture(edited)),
        # After shrinking: the browser reserves the place before the picture is decoded.
        "width": before.width,
        "height": before.height,
        "changed": _drawn(overlay.changed_places(measured)) if measured.change else "",
        "not_compared": measured.abstained.get("changed_area", ""),
        "looked_at": _drawn(overlay.overlay(measured)),
        "style": Markup(style),
        "script": Markup(script),
        "policy": (
            f"default-src 'none'; img-src data:; style-src {policy_source(style)}; "
            f"script-src {policy_source(script)}; base-uri 'none'; form-action 'none'"
        ),
    }
    return _environment().get_template("check.html").render(context)


def _uri(picture: Image.Image, side: int = _SIDE) -> str:
    webp = images.encode_webp(picture, width=side, quality=_QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(webp).decode('ascii')}"


def _drawn(pixels: Picture) -> str:
    return _uri(Image.fromarray(pixels), max(pixels.shape))


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("stillme.findings.single", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def slider(kind: Literal["css", "js"]) -> str:
    """One picture upon the other, for this page and the report's."""
    return _read(f"slider.{kind}")


@cache
def _read(name: str) -> str:
    return files("stillme.findings.single").joinpath("page", name).read_text("utf-8")
