"""What a reader is asked of one picture: apparent race in the audit's own words, gender presentation, apparent age."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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
