"""The thresholds that turn measurements into scores, kept as data in `thresholds.toml`, which explains each."""

from __future__ import annotations

import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaceThresholds(_Section):
    """When a face can be measured at all."""

    smallest: int
    rival: float
    same_drawing: float
    presence: float


class LightThresholds(_Section):
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


class SkinThresholds(_Section):
    """Which skin pixels count, and how much is a change of tone."""

    low: float
    high: float
    least_pixels: int
    least_band: float
    least_yellow: float
    part: float
    other_way: float
    scale: tuple[float, ...]


class ChangeThresholds(_Section):
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


class QualityThresholds(_Section):
    """When a face is shown too badly to be sure of it."""

    turned: float
    sharpness: float
    clipped: float


class DrawingThresholds(_Section):
    """When an edit may have drawn a face."""

    rise: float


class IdentityThresholds(_Section):
    """From where on a face has drifted, and from where on it is another person's."""

    drift: float
    stranger: float
    groups: dict[str, float]
    """The stranger's distance, by disclosed label."""


class AgeThresholds(_Section):
    """How many years are a change."""

    scale: tuple[float, ...]
    accuracy: tuple[float, ...]


class GenderThresholds(_Section):
    """When a reading of gender presentation changed."""

    middle: float
    unclear: tuple[float, float]
    scale: tuple[float, ...]


class Thresholds(_Section):
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
    return Thresholds.model_validate(data)


def step(value: float, cuts: Sequence[float]) -> int:
    """The step of a scale, from 1, that a value is on; a value at a cut counts as beyond it, seen from 0."""
    return (bisect_left if value < 0 else bisect_right)(cuts, value) + 1
