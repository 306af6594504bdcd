"""Ask what one picture shows: no second picture, no instruction, no label. The answer becomes ratings by place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from stillme.core.rubric import AGE, AXES, CANNOT_TELL, GENDER, GENDERS, RACE, reading_text, words_of
from stillme.core.types import Abstained, Pair, Rated, Rating
from stillme.judges.questions import Disclosure, Form
from stillme.judges.stated_scores import WrongScores
from stillme.judges.vlm import Question

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
    return {axis: _rating(axis, stated[key], tuple(races), who, evidence) for axis, key in _KEYS.items()}


def _rating(axis: str, value: Any, races: tuple[str, ...], who: str, evidence: str) -> Rating:
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
