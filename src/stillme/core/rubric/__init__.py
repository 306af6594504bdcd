"""The axes, their scales and the named rates, in the paper's wording, kept as data.

With what each axis should answer to a change that is known, and what is asked of one picture.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

from stillme.core.files import packaged_toml
from stillme.core.types import Prompt

_AT_A_CUT = re.compile(r"(?P<axis>\w+)(?P<sign>>=|<=)(?P<cut>\d(?:\.\d+)?)")
"""`race_change>=3` is the share of edits with at least a 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One question about a pair, or one quantity measured on it."""

    name: str
    title: str
    question: str = ""
    scale: tuple[str, ...] = ()
    """What 1 to 5 mean (Table 14); empty for a quantity with its own unit."""
    choices: tuple[str, ...] = ()
    """What 1, 2, … name where the answer is one of several and none lies between two; empty elsewhere."""
    short: tuple[str, ...] = ()
    """The same in the wording of Table 2."""
    unit: str = "1–5"
    unchanged: float | None = None
    """The value for an unchanged person."""
    only: str = ""
    """The subcategory of prompts that the axis is limited to; empty for all."""
    requested_by: str = ""
    """The field of a prompt that asks for this very change: such an edit is no drift. Empty where none can."""

    @property
    def is_scale(self) -> bool:
        """Whether scores are 1 to 5."""
        return bool(self.scale)

    @property
    def is_asked(self) -> bool:
        """Whether judges are asked a question here; the rest is measured or counted."""
        return bool(self.question)

    def asked_of(self, prompt: Prompt) -> bool:
        """Whether judges answer the axis on edits by this prompt."""
        return not self.only or (prompt.subcategory == self.only and prompt.years is not None)

    def requested(self, prompt: Prompt) -> bool:
        """Whether the prompt asks for the change that the axis measures, so that it is no drift (§3.4)."""
        return bool(self.requested_by) and getattr(prompt, self.requested_by) is not None

    @property
    def is_nominal(self) -> bool:
        """Whether scores name one of several answers: they are equal or not, and never near."""
        return bool(self.choices)


def majority(mean_answer: float) -> float | None:
    """The answer behind a mean of several answers 1 or 2; None where they tie."""
    nearest = math.floor(mean_answer + 0.5)
    return None if abs(abs(mean_answer - nearest) - 0.5) < 1e-9 else float(nearest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The share of edits whose value on an axis is at or beyond a cut-point."""

    name: str
    title: str
    axis: str
    at_least: float | None = None
    at_most: float | None = None

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
    smallest_effects: Mapping[str, float]
    """The smallest difference that matters of each quantity, of any `rate`, and of means of a `scale`."""

    def title(self, quantity: str) -> str:
        """The display name of a mean or a rate."""
        named = self.rates.get(quantity) or self.axes.get(quantity)
        return named.title if named else quantity

    def is_nominal(self, axis: str) -> bool:
        """Whether an axis asks for one of several answers."""
        known = self.axes.get(axis)
        return known is not None and known.is_nominal


@cache
def load() -> Rubric:
    """The rubric shipped with this version of stillme."""
    data = packaged_toml("stillme.core.rubric", "rubric.toml")
    return Rubric(
        version=data["version"],
        axes={name: Axis(name=name, **_fields(Axis, entry)) for name, entry in data["axes"].items()},
        rates={name: Rate(name=name, **_fields(Rate, entry)) for name, entry in data["rates"].items()},
        flags=FlagRules(
            threshold=data["flags"]["beyond"],
            high_points=data["flags"]["high"]["apart"],
            high_axes=data["flags"]["high"]["axes"],
            medium_axes=tuple(data["flags"]["medium"]),
        ),
        smallest_effects=data["smallest_effects"],
    )


def _fields(record: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says of a record's fields."""
    said = {field.name: entry[field.name] for field in fields(record) if field.name in entry}
    return {name: tuple(cast("list[str]", value)) if isinstance(value, list) else value for name, value in said.items()}


def cuts(axis: Axis) -> tuple[Rate, ...]:
    """At least 2, 3, 4, 5 and at most 1, 2, 3, 4 of a 1–5 scale; nothing for a quantity with a unit of its own.

    Both directions, because an ensemble's 2.5 is neither at most 2 nor at least 3.
    """
    if not axis.is_scale:
        return ()
    top = len(axis.scale)
    upward = (_rate_at(axis, ">=", str(cut)) for cut in range(2, top + 1))
    downward = (_rate_at(axis, "<=", str(cut)) for cut in range(1, top))
    return (*upward, *downward)


def rate_of(quantity: str) -> Rate | None:
    """The rate behind a name: a named one of the rubric, or one at a cut."""
    known = load()
    if named := known.rates.get(quantity):
        return named
    parts = _AT_A_CUT.fullmatch(quantity)
    axis = known.axes.get(parts["axis"]) if parts else None
    return _rate_at(axis, parts["sign"], parts["cut"]) if parts and axis else None


def axis_of(quantity: str) -> str:
    """The axis that a quantity is computed from."""
    rate = rate_of(quantity)
    return rate.axis if rate else quantity


def _rate_at(axis: Axis, sign: str, cut: str) -> Rate:
    upward = sign == ">="
    return Rate(
        name=f"{axis.name}{sign}{cut}",
        title=f"{axis.title} {'≥' if upward else '≤'} {cut}",
        axis=axis.name,
        at_least=float(cut) if upward else None,
        at_most=None if upward else float(cut),
    )


RACE, GENDER, AGE = "read_race", "read_gender", "read_age"
AXES = (RACE, GENDER, AGE)
"""A category is stored as its place among its words, counted from 1; an age in years."""
TOWARD_REFERENCE, TOWARD_STEREOTYPE = "toward_reference", "toward_stereotyped_gender"
SHIFTS = {
    TOWARD_REFERENCE: "Others read as the reference group, more often than before the edit",
    TOWARD_STEREOTYPE: "Read as the stereotyped gender, more often than before the edit",
}
"""What gates and comparisons call the two pooled questions, and what they mean."""
GENDERS = ("masculine", "feminine", "androgynous")
CANNOT_TELL = "cannot tell"
"""Why a reader abstains that looked and could not say; any other reason is a refusal."""
REPEATS = 2
"""How often a control is read. An edit is read once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingText:
    """All text that a model is told about one picture."""

    version: str
    """Of the text, with its hash."""
    task: str
    guard: str
    abstention: str
    questions: Mapping[str, str]

    @property
    def instructions(self) -> str:
        """What is the same for all pictures."""
        return "\n\n".join((self.task, self.guard, self.abstention))


@cache
def reading_text() -> ReadingText:
    """The text shipped with this version of stillme."""
    text = files("stillme.core.rubric").joinpath("readings.toml").read_text("utf-8")
    data = tomllib.loads(text)
    return ReadingText(
        version=f"{data['version']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}",
        task=data["task"].strip(),
        guard=data["guard"].strip(),
        abstention=data["abstention"].strip(),
        questions=data["questions"],
    )


def words_of(axis: str, races: tuple[str, ...]) -> tuple[str, ...]:
    """The words that a category's places stand for; none for an age."""
    return {RACE: races, GENDER: GENDERS}.get(axis, ())


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
def load_limits() -> CalibrationLimits:
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
