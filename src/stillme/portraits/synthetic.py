"""The embedded set: rendered people who do not exist, CC0, with every parameter published."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from stillme.portraits.folder import load
from stillme.types import Portrait


@cache
def portraits() -> tuple[Portrait, ...]:
    """Rendered portraits, CC0; within a block only the appearance preset differs."""
    return load(Path(str(files("stillme.portraits").joinpath("data"))))


def embedded_renders() -> Path:
    """The folder of pairs rendered with one parameter changed, for calibrating judges."""
    return Path(str(files("stillme.portraits").joinpath("calibration")))
