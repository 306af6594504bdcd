"""The thresholds that turn measurements into verdicts, kept as data in `limits.toml`."""

from __future__ import annotations

import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceLimits:
    """When a face can be measured at all."""

    smallest: float
    rival: float
    same_drawing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LightLimits:
    """When the background tells the exposure."""

    inlier: float
    stayed: float
    kept: float
    least_background: float
    largest_stops: float
    largest_cast: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SkinLimits:
    """Which skin pixels count, and how much is a change of tone."""

    low: float
    high: float
    least_pixels: int
    least_band: float
    least_yellow: float
    scale: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLimits:
    """How much must change before something happened."""

    visible: float
    speck: int
    unchanged: float
    trivial: float
    least_side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLimits:
    """When a face is shown badly."""

    turned: float
    sharpness: float
    clipped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityLimits:
    """How far apart two pictures of one person may lie."""

    cut: float
    groups: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeLimits:
    """How many years are a change."""

    noise: float
    scale: tuple[float, ...]
    accuracy: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLimits:
    """Where one measured number passes from one answer to the next."""

    scale: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All thresholds."""

    version: str
    face: FaceLimits
    light: LightLimits
    skin: SkinLimits
    change: ChangeLimits
    quality: QualityLimits
    identity: IdentityLimits
    age: AgeLimits
    gender: ScaleLimits
    race: ScaleLimits


@cache
def load() -> Limits:
    """Read the limits that ship with this version; a key too many or too few is an error."""
    data = tomllib.loads(files("stillme.instruments").joinpath("limits.toml").read_text("utf-8"))
    tables: dict[str, dict[str, Any]] = {name: _table(value) for name, value in data.items() if isinstance(value, dict)}
    return Limits(
        version=data["version"],
        face=FaceLimits(**tables.pop("face")),
        light=LightLimits(**tables.pop("light")),
        skin=SkinLimits(**tables.pop("skin")),
        change=ChangeLimits(**tables.pop("change")),
        quality=QualityLimits(**tables.pop("quality")),
        identity=IdentityLimits(**tables.pop("identity")),
        age=AgeLimits(**tables.pop("age")),
        gender=ScaleLimits(**tables.pop("gender")),
        race=ScaleLimits(**tables.pop("race")),
    )


def _table(entry: Any) -> dict[str, Any]:
    table = cast("dict[str, Any]", entry)
    lists = {name: tuple(cast("list[Any]", value)) for name, value in table.items() if isinstance(value, list)}
    return table | lists


def step(value: float, cuts: Sequence[float]) -> int:
    """Place a value on a scale from 1: reaching a cut, away from 0, is passing it."""
    return (bisect_left if value < 0 else bisect_right)(cuts, value) + 1
