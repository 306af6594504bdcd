"""A question to a model, and every way in which it can reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from stillme.types import Failed, ImageFile, Json


def _nothing() -> Mapping[str, Json]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is told, shown and asked."""

    system: str
    """Instructions, in the channel that pictures and prompts cannot reach."""
    parts: tuple[str | ImageFile, ...]
    """Text and pictures, in the order in which the model sees them."""
    answer: type[BaseModel]
    """The schema of the answer; what does not keep it is `Malformed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer that keeps the schema."""

    text: str
    """As it came."""
    value: BaseModel
    earlier: str | None = None
    """The malformed answer that came first, if the model had to be asked twice."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    """What was really sent and who really answered."""
    cost: float = 0.0
    """Of both tries, in dollars; 0 with `effective["cost"] == "unknown"` where nobody can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The model refused, or its provider blocked the question or the answer."""

    reason: str
    """The model's own words, or the provider's field and value."""
    kind: Literal["refusal", "blocked"]
    raw: str | None = None
    """What came instead of an answer, if anything."""
    earlier: str | None = None
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """Twice an answer that does not keep the schema: no JSON, cut off, a score out of range."""

    text: str
    problem: str
    earlier: str | None = None
    """The first answer; `text` is the second."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


Reply = Answered | Declined | Malformed | Failed
