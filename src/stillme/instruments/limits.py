"""The thresholds that turn measurements into verdicts, kept as data in `limits.toml`."""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaceLimits(_Table):
    """When a face can be measured at all."""

    smallest: float
    rival: float
    same_drawing: float


class LightLimits(_Table):
    """When the background tells the exposure."""

    inlier: float
    kept: float
    least_background: float
    largest_stops: float
    largest_cast: float


class SkinLimits(_Table):
    """Which skin pixels count, and how much is a change of tone."""

    low: float
    high: float
    least_pixels: int
    least_band: float
    least_yellow: float
    scale: tuple[float, ...]


class ChangeLimits(_Table):
    """How much must change before something happened."""

    visible: float
    speck: int
    unchanged: float
    trivial: float
    least_side: int


class QualityLimits(_Table):
    """When a face is shown badly."""

    turned: float
    sharpness: float
    clipped: float


class IdentityLimits(_Table):
    """How far apart two pictures of one person may lie."""

    cut: float
    groups: dict[str, float]


class AgeLimits(_Table):
    """How many years are a change."""

    noise: float
    scale: tuple[float, ...]
    accuracy: tuple[float, ...]


class ScaleLimits(_Table):
    """Where one measured number passes from one answer to the next."""

    scale: tuple[float, ...]


class Limits(_Table):
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
    """Read the limits that ship with this version."""
    return Limits.model_validate(tomllib.loads(files("stillme.instruments").joinpath("limits.toml").read_text("utf-8")))


def step(value: float, cuts: Sequence[float]) -> int:
    """Place a value on a scale from 1: one more for every cut that it reaches."""
    return bisect_right(cuts, value) + 1
