"""A question to a model, and every kind of reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from stillme.core.types import Failed, ImageFile, Json


def _nothing() -> Mapping[str, Json]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is told, shown and asked."""

    system: str
    """Instructions, in the channel that images and prompts cannot reach."""
    parts: tuple[str | ImageFile, ...]
    """Text and images, in the order in which the model sees them."""
    answer: type[BaseModel]
    """The schema of the answer; an answer that violates it is `Malformed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer that matches the schema."""

    text: str
    """The raw answer."""
    value: BaseModel
    earlier: str | None = None
    """The malformed first answer, if the model had to be asked twice."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    """The settings that were really sent, and the model that really answered."""
    cost: float = 0.0
    """Of both attempts, in dollars; 0 with `effective["cost"] == "unknown"` where the price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeclined:
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
    """Two answers in a row that violate the schema: no JSON, truncated, a score out of range."""

    text: str
    problem: str
    earlier: str | None = None
    """The first answer; `text` is the second."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


Reply = Answered | ModelDeclined | Malformed | Failed
