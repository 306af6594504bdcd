"""The limits, as data."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field


class AxisLimits(BaseModel):
    """What one axis must manage; limits.toml explains each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unchanged: float
    flag: float
    same: tuple[str, ...]
    changed: str
    least: float = Field(alias="from")
    signed: bool
    false_alarm: float
    sensitivity: float
    bias: float | None = None
    faceless: float | None = None


class Limits(BaseModel):
    """All of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    groups: dict[str, tuple[float, float]]
    axes: dict[str, AxisLimits]

    def group_of(self, lightness: float) -> str:
        """The skin-tone group of a portrait whose skin has this L*."""
        return next(name for name, (low, high) in self.groups.items() if low <= lightness < high)


@cache
def load() -> Limits:
    """The limits shipped with this version."""
    text = files("stillme.calibration").joinpath("limits.toml").read_text("utf-8")
    return Limits.model_validate(tomllib.loads(text))
