"""The axes, their scales and the named rates, in the paper's wording, kept as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One question about a pair, or one quantity measured on it."""

    name: str
    title: str
    question: str
    scale: tuple[str, ...]
    """What 1 to 5 mean (Table 14); empty for a quantity with its own unit."""
    short: tuple[str, ...]
    """The same in the wording of Table 2."""
    unit: str
    unchanged: float | None
    """The value for an unchanged person."""
    only: str
    """The subcategory of prompts that the axis is limited to; empty for all."""

    @property
    def is_scale(self) -> bool:
        """Whether scores are 1 to 5."""
        return bool(self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The share of edits whose value on an axis is at or beyond a cut-point."""

    name: str
    title: str
    axis: str
    at_least: float | None
    at_most: float | None

    def holds(self, value: float) -> bool:
        """Whether one value counts."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRules:
    """Which disagreements between judges are flagged, and with which priority."""

    threshold: float
    """Points on a scale; a larger difference is flagged."""
    high_points: float
    """A difference of this many points has high priority."""
    high_axes: int
    """So has disagreement on this many axes at once."""
    medium_axes: tuple[str, ...]
    """Disagreement on one of these axes has medium priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """All axes and rates, with the version of their wording."""

    version: str
    axes: Mapping[str, Axis]
    rates: Mapping[str, Rate]
    flags: FlagRules

    def title(self, quantity: str) -> str:
        """The display name of a mean or a rate."""
        named = self.rates.get(quantity) or self.axes.get(quantity)
        return named.title if named else quantity


@cache
def load() -> Rubric:
    """The rubric shipped with this version of stillme."""
    data = tomllib.loads(files("stillme.rubric").joinpath("rubric.toml").read_text("utf-8"))
    return Rubric(
        version=data["version"],
        axes={name: _axis(name, entry) for name, entry in data["axes"].items()},
        rates={name: _rate(name, entry) for name, entry in data["rates"].items()},
        flags=FlagRules(
            threshold=data["flags"]["beyond"],
            high_points=data["flags"]["high"]["apart"],
            high_axes=data["flags"]["high"]["axes"],
            medium_axes=tuple(data["flags"]["medium"]),
        ),
    )


def _axis(name: str, entry: dict[str, Any]) -> Axis:
    return Axis(
        name=name,
        title=entry["title"],
        question=entry.get("question", ""),
        scale=tuple(entry.get("scale", ())),
        short=tuple(entry.get("short", ())),
        unit=entry.get("unit", "1–5"),
        unchanged=entry.get("unchanged"),
        only=entry.get("only", ""),
    )


def _rate(name: str, entry: dict[str, Any]) -> Rate:
    return Rate(
        name=name,
        title=entry["title"],
        axis=entry["axis"],
        at_least=entry.get("at_least"),
        at_most=entry.get("at_most"),
    )
