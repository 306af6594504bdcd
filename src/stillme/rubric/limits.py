"""What each axis should answer to a change that is known, and what a judge must manage there: as data."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Truth = Literal["changed", "unchanged"]


class Orientation(BaseModel):
    """Portraits of one level of an attribute change in the other direction."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attribute: str
    negative: str


class Slack(BaseModel):
    """By how much the limits of intervals may miss the limits of an axis."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sensitivity: float
    false_alarm: float


class AxisLimits(BaseModel):
    """What one axis must manage; limits.toml explains each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str = ""
    unchanged: float
    flag: float
    same: tuple[str, ...]
    changed: str
    least: float = Field(alias="from")
    signed: bool
    oriented: Orientation | None = None
    false_alarm: float
    sensitivity: float
    bias: float | None = None
    faceless: float | None = None

    def truth(self, kind: str, amount: float) -> Truth | None:
        """What is known of this axis where something changed by this much; None where nothing is."""
        if kind in self.same:
            return "unchanged"
        return "changed" if kind == self.changed and abs(amount) >= self.least else None

    def is_right(self, kind: str, amount: float, score: float) -> bool:
        """Whether an answer agrees with the truth, where it is known."""
        said_changed = abs(score - self.unchanged) > self.flag
        if self.truth(kind, amount) == "unchanged":
            return not said_changed
        # Which way is right depends on the portrait where the axis is oriented.
        right_way = not self.signed or self.oriented is not None or (score > self.unchanged) == (amount > 0)
        return said_changed and right_way


class Limits(BaseModel):
    """All of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    groups: dict[str, tuple[float, float]]
    slack: Slack
    shown: dict[str, str]
    axes: dict[str, AxisLimits]

    def group_of(self, lightness: float) -> str:
        """The skin-tone group of a portrait whose skin has this L*."""
        return next(name for name, (low, high) in self.groups.items() if low <= lightness < high)


@cache
def load() -> Limits:
    """The limits shipped with this version."""
    text = files("stillme.rubric").joinpath("limits.toml").read_text("utf-8")
    return Limits.model_validate(tomllib.loads(text))
