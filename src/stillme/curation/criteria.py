"""The six criteria, what instruments say of each, and why a candidate may be rejected; kept in `criteria.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

State = Literal["fine", "doubt", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number that bears on a criterion."""

    key: str
    title: str
    unit: str
    least: float
    most: float

    def shown(self, value: float) -> float:
        """The value in the unit that people read; shares are measured as parts of 1."""
        return 100 * value if self.unit == "%" else value

    def text(self, value: float) -> str:
        """`turned sideways 12°`."""
        shown = self.shown(value)
        number = f"{shown:.1f}" if abs(shown) < 10 and self.unit not in ("°", "%", "px", "") else f"{shown:.0f}"
        number = "0" if number == "-0" else number.replace("-", "−")
        gap = "" if self.unit in ("°", "") else " "
        return f"{self.title} {number}{gap}{self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One requirement of a portrait."""

    key: str
    title: str
    text: str
    """The paper's own words."""
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """All of `criteria.toml`."""

    version: str
    all: tuple[Criterion, ...]
    reasons: Mapping[str, str]
    """Why a candidate may be rejected: key → words, one per criterion first."""
    same_picture: int
    same_person: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What the instruments say of one candidate on one criterion."""

    criterion: Criterion
    state: State
    readings: tuple[tuple[str, bool], ...]
    """Each number in words, and whether it is within its limits."""

    @property
    def text(self) -> str:
        """The doubts, or all numbers where there are none."""
        doubts = [words for words, fine in self.readings if not fine]
        return "; ".join(doubts or [words for words, _ in self.readings]) or "not measured"


@cache
def load_criteria() -> Criteria:
    """Read the criteria that ship with this version."""
    data: dict[str, Any] = tomllib.loads(files("stillme.curation").joinpath("criteria.toml").read_text("utf-8"))
    criteria = tuple(
        Criterion(
            key=entry["key"],
            title=entry["title"],
            text=entry["text"],
            measures=tuple(
                Measure(
                    key=measure["key"],
                    title=measure["title"],
                    unit=measure["unit"],
                    least=measure.get("least", -math.inf),
                    most=measure.get("most", math.inf),
                )
                for measure in entry["measures"]
            ),
        )
        for entry in data["criteria"]
    )
    own = {criterion.key: f"Not: {criterion.title.lower()}" for criterion in criteria}
    return Criteria(
        version=data["version"],
        all=criteria,
        reasons=own | {entry["key"]: entry["title"] for entry in data["reasons"]},
        same_picture=data["duplicates"]["picture"],
        same_person=data["duplicates"]["person"],
    )


def hints(values: Mapping[str, float]) -> tuple[Hint, ...]:
    """What these measurements say of each criterion. Without a face only its absence is reported."""
    return tuple(_hint(criterion, values) for criterion in load_criteria().all)


def _hint(criterion: Criterion, values: Mapping[str, float]) -> Hint:
    readings = tuple(
        (measure.text(values[measure.key]), measure.least <= measure.shown(values[measure.key]) <= measure.most)
        for measure in criterion.measures
        if measure.key in values
    )
    state: State = "unknown" if not readings else "fine" if all(fine for _, fine in readings) else "doubt"
    return Hint(criterion=criterion, state=state, readings=readings)
