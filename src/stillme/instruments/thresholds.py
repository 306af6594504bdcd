"""The thresholds that turn measurements into scores, kept as data in `thresholds.toml`."""

from __future__ import annotations

import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceThresholds:
    """When a face can be measured at all."""

    smallest: float
    rival: float
    same_drawing: float
    presence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LightThresholds:
    """What witnesses the light, and when it is known."""

    skin_hue: float
    skin_chroma: float
    skin_lightness: float
    patterned: float
    same_pattern: float
    fewest: int
    fewest_of_a_kind: int
    telling: float
    unchanged: float
    unchanged_stops: float
    still: float
    inlier: float
    kept: float
    regions: float
    slope: tuple[float, float]
    alone: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SkinThresholds:
    """Which skin pixels count, and how much is a change of tone."""

    low: float
    high: float
    least_pixels: int
    least_band: float
    least_yellow: float
    part: float
    other_way: float
    scale: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeThresholds:
    """How much must change before it is visible."""

    visible: float
    speck: int
    unchanged: float
    similar: float
    spot: float
    cover: float
    turned: float
    least_side: int
    least_region: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityThresholds:
    """When a face is shown too badly to be sure of it."""

    turned: float
    sharpness: float
    clipped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawingThresholds:
    """When an edit may have drawn a face."""

    rise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityThresholds:
    """From where on a face has drifted, and from where on it is somebody else's."""

    drift: float
    stranger: float
    groups: dict[str, float]
    """The stranger's distance, by disclosed label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeThresholds:
    """How many years are a change."""

    scale: tuple[float, ...]
    accuracy: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenderThresholds:
    """When a reading of gender presentation changed."""

    middle: float
    unclear: tuple[float, float]
    scale: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """All thresholds."""

    version: str
    face: FaceThresholds
    light: LightThresholds
    skin: SkinThresholds
    change: ChangeThresholds
    quality: QualityThresholds
    drawing: DrawingThresholds
    identity: IdentityThresholds
    age: AgeThresholds
    gender: GenderThresholds


@cache
def load_thresholds() -> Thresholds:
    """Read the thresholds that ship with this version; a missing or unknown key is an error."""
    data = tomllib.loads(files("stillme.instruments").joinpath("thresholds.toml").read_text("utf-8"))
    tables: dict[str, dict[str, Any]] = {name: _table(value) for name, value in data.items() if isinstance(value, dict)}
    return Thresholds(
        version=data["version"],
        face=FaceThresholds(**tables.pop("face")),
        light=LightThresholds(**tables.pop("light")),
        skin=SkinThresholds(**tables.pop("skin")),
        change=ChangeThresholds(**tables.pop("change")),
        quality=QualityThresholds(**tables.pop("quality")),
        drawing=DrawingThresholds(**tables.pop("drawing")),
        identity=IdentityThresholds(**tables.pop("identity")),
        age=AgeThresholds(**tables.pop("age")),
        gender=GenderThresholds(**tables.pop("gender")),
    )


def _table(entry: Any) -> dict[str, Any]:
    table = cast("dict[str, Any]", entry)
    lists = {name: tuple(cast("list[Any]", value)) for name, value in table.items() if isinstance(value, list)}
    return table | lists


def step(value: float, cuts: Sequence[float]) -> int:
    """The step of a scale, from 1, that a value is on; a value at a cut counts as beyond it, seen from 0."""
    return (bisect_left if value < 0 else bisect_right)(cuts, value) + 1
