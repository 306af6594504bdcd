"""Source portraits: a folder with a CSV of attributes, or the embedded synthetic set."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from stillme.core.types import Portrait
from stillme.portraits.folder import TABLE, load

__all__ = ["TABLE", "load"]


@cache
def portraits() -> tuple[Portrait, ...]:
    """Rendered portraits, CC0; within a block only the appearance preset differs."""
    return load(Path(str(files("stillme.portraits").joinpath("data"))))


@cache
def portraits_36() -> tuple[Portrait, ...]:
    """The same, and two more identities in every gender × age cell: 252 portraits of 36 identities, CC0."""
    return (*portraits(), *load(Path(str(files("stillme.portraits").joinpath("more_identities")))))


def embedded_renders() -> tuple[Path, ...]:
    """The folders of pairs rendered with one parameter changed, for calibrating judges."""
    return tuple(sorted(Path(str(files("stillme.portraits"))).glob("calibration*")))
