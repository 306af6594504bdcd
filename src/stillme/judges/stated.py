"""What a judge states, checked, then ratings: scores of a pair, or what one picture shows.

Of one picture a model is asked with no second picture, no instruction and no label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from stillme.core import rubric
from stillme.core.protocols import Parameters
from stillme.core.rubric import AGE, AXES, CANNOT_TELL, GENDER, GENDERS, RACE, reading_text, words_of
from stillme.core.types import Abstained, Pair, Prompt, Rated, Rating
from stillme.judges.questions import Disclosure, Form
from stillme.judges.vlm import Question

NO_REASON = "no reason given"
Kind = Literal["model", "instrument", "person", "ensemble"]


class StatedScores(Parameters):
    """What a judge of the user's own answers."""

    axes: tuple[str, ...] = Field(min_length=1)
    """The axes that it answers for every pair: the rubric's, or names of your own."""
    kind: Kind = "model"
    """Only models are combined to an ensemble, unless the audit names its judges."""


class WrongScores(ValueError):
    """What is wrong with an answer."""


def ratings_of(answer: object, *, axes: Sequence[str], prompt: Prompt, who: str) -> dict[str, Rating]:
    """A rating for every axis of the answer; raises `WrongScores` if one is missing, unknown or out of range.

    An answer is a number, None or a reason to abstain, or both a score and its evidence as
    `{"score": 4, "evidence": "…"}`.
    """
    if not isinstance(answer, Mapping):
        raise WrongScores(f"{who} returned {type(answer).__qualname__}; it must return a dict of {', '.join(axes)}")
    scores = cast("Mapping[Any, Any]", answer)
    missing = [axis for axis in axes if axis not in scores and _applies(axis, prompt)]
    unknown = [str(axis) for axis in scores if axis not in axes]
    problems = [
        *([f"{who} returned no {', '.join(missing)}"] if missing else []),
        *([f"{who} returned {', '.join(unknown)}, not listed under `axes`"] if unknown else []),
        *(f"{axis} = {value!r} {why}" for axis, value in scores.items() if (why := _rejected(axis, value))),
    ]
    if problems:
        raise WrongScores("; ".join(problems))
    return {axis: _rating(value) for axis, value in scores.items()}


def _applies(axis: str, prompt: Prompt) -> bool:
    """Some axes are for one kind of prompt only, such as the accuracy of an aging edit."""
    known = rubric.load().axes.get(axis)
    return known is None or not known.only or known.only == prompt.subcategory


def _rejected(axis: str, value: object) -> str:
    """Why a value is no answer on an axis; empty if it is one."""
    if isinstance(value, Mapping):
        explained = cast("Mapping[str, object]", value)
        if "score" not in explained or not explained.keys() <= {"score", "evidence"}:
            return 'is no score; give {"score": …, "evidence": "…"}'
        return _rejected(axis, explained["score"])
    if value is None or isinstance(value, str):
        return ""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return "is no score; give a number, or None or a reason to abstain"
    known = rubric.load().axes.get(axis)
    if known and known.is_scale and not 1 <= float(value) <= len(known.scale):
        return f"is outside of 1 to {len(known.scale)}"
    return ""


def _rating(value: Any) -> Rating:
    score, evidence = value, ""
    if isinstance(value, Mapping):
        explained = cast("Mapping[str, Any]", value)
        score, evidence = explained["score"], str(explained.get("evidence") or "")
    if score is None or isinstance(score, str):
        return Abstained(reason=score or evidence or NO_REASON)
    return Rated(score=float(score), evidence=evidence)


_KEYS = {RACE: "race", GENDER: "gender", AGE: "age"}
_OLDEST = 120


@dataclass(frozen=True)
class ReadingForm(Form):
    """One picture; `races` are the words of the audit."""

    races: tuple[str, ...]
    axes = AXES

    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """The picture alone, whatever else the pair says."""
        return Question(
            system=reading_text().instructions, parts=("PICTURE:", pair.edited), answer=_answer_model(self.races)
        )

    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """Places of the words that the model chose."""
        answer = value.model_dump()
        stated = {key: None if answer[key] == "cannot_tell" else answer[key] for key in _KEYS.values()}
        return ratings_of_reading(stated, self.races, who="the model", evidence=answer["observations"])


def ratings_of_reading(answer: object, races: Sequence[str], *, who: str, evidence: str = "") -> dict[str, Rating]:
    """A rating for each of race, gender and age; None is a reader that cannot tell. Raises `WrongScores`."""
    if not isinstance(answer, Mapping) or set(cast("Mapping[str, Any]", answer)) != set(_KEYS.values()):
        raise WrongScores(f"{who} must return a dict of race, gender and age, with None for what it cannot tell")
    stated = cast("Mapping[str, Any]", answer)
    return {axis: _reading(axis, stated[key], tuple(races), who, evidence) for axis, key in _KEYS.items()}


def _reading(axis: str, value: Any, races: tuple[str, ...], who: str, evidence: str) -> Rating:
    if value is None:
        return Abstained(reason=CANNOT_TELL)
    if axis == AGE:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _OLDEST:
            raise WrongScores(f"{who} gave the age {value!r}; give years from 0 to {_OLDEST}, or None")
        return Rated(score=float(value), evidence=evidence)
    words = words_of(axis, races)
    if value not in words:
        raise WrongScores(f"{who} gave the {_KEYS[axis]} {value!r}; give one of {', '.join(words)}, or None")
    return Rated(score=float(words.index(value) + 1), evidence=evidence)


@cache
def _answer_model(races: tuple[str, ...]) -> type[BaseModel]:
    texts = reading_text().questions
    race, gender = (cast("Any", Literal[(*words, "cannot_tell")]) for words in (races, GENDERS))
    fields: dict[str, Any] = {
        "observations": (str, Field(description=texts["observations"])),
        "race": (race, Field(description=texts["race"])),
        "gender": (gender, Field(description=texts["gender"])),
        "age": (int | None, Field(ge=0, le=_OLDEST, description=texts["age"])),
    }
    return create_model("Reading", __config__=ConfigDict(extra="forbid"), **fields)
