"""What each axis should answer to a change that is known, and what a judge must manage there: as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from stillme.core.files import packaged_toml

Truth = Literal["changed", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orientation:
    """Portraits of one level of an attribute change in the other direction."""

    attribute: str
    negative: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """By how much the limits of intervals may miss the limits of an axis."""

    sensitivity: float
    false_alarm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisLimits:
    """What one axis must manage; limits.toml explains each."""

    subject: str = ""
    unchanged: float
    flag: float
    same: tuple[str, ...]
    changed: str
    least: float
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationLimits:
    """All of them."""

    version: str
    groups: dict[str, tuple[float, float]]
    slack: Slack
    shown: dict[str, str]
    axes: dict[str, AxisLimits]

    def group_of(self, lightness: float) -> str:
        """The skin-tone group of a portrait whose skin has this L*."""
        return next(name for name, (low, high) in self.groups.items() if low <= lightness < high)


@cache
def load() -> CalibrationLimits:
    """The limits shipped with this version."""
    data = packaged_toml("stillme.core.rubric", "limits.toml")
    return CalibrationLimits(
        version=data["version"],
        groups={name: (low, high) for name, (low, high) in data["groups"].items()},
        slack=Slack(**data["slack"]),
        shown=data["shown"],
        axes={axis: _axis_limits(**entry) for axis, entry in data["axes"].items()},
    )


def _axis_limits(*, same: list[str], oriented: Mapping[str, str] | None = None, **entry: Any) -> AxisLimits:
    return AxisLimits(
        same=tuple(same),
        least=entry.pop("from"),  # a keyword of Python
        oriented=Orientation(**oriented) if oriented else None,
        **entry,
    )
