"""Store extractors' descriptions: one row per picture and extractor, append-only like all others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from stillme.core.types import Failed, ImageFile, Json, Spec
from stillme.mitigation.features import Declined, Described, Extraction, Features, Unusable

COLUMNS = (
    "key, final, image, extractor, outcome, sentence, dimensions, message, raw, effective, attempts, seconds, cost, at"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """An extractor's description of a picture, ready to be saved."""

    key: str
    image: ImageFile
    extractor: Spec
    extraction: Extraction
    attempts: int
    seconds: float
    cost: float

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return not isinstance(self.extraction, Failed)

    @property
    def said(self) -> str:
        """The description, to be compared with another try."""
        return said(self.extraction)


def said(extraction: Extraction) -> str:
    """What an extractor said, in a line."""
    match extraction:
        case Described(features=features):
            return features.sentence
        case Declined(reason=text) | Unusable(problem=text) | Failed(error=text):
            return f"{type(extraction).__name__.lower()} {text}"


def values_of(row: FeatureRow, extractor: str, now: str) -> tuple[Json, ...]:
    """The row as columns."""
    sentence: str | None = None
    message: str | None = None
    raw: str | None = None
    dimensions: Json = {}
    effective: Json = {}
    final = 1
    match row.extraction:
        case Described(features=features, raw=raw, effective=effective):
            outcome, sentence, dimensions = "described", features.sentence, dict(features.dimensions)
        case Declined(reason=message, raw=raw, effective=effective):
            outcome = "declined"
        case Unusable(problem=message, raw=raw, effective=effective):
            outcome = "unusable"
        case Failed(error=message):
            outcome, final = "failed", 0
        case never:
            assert_never(never)
    answer = json.dumps(dimensions, ensure_ascii=False), message, raw, json.dumps(dict(effective), ensure_ascii=False)
    work = row.attempts, row.seconds, row.cost, now
    return row.key, final, row.image.sha256, extractor, outcome, sentence, *answer, *work


def extractions_of(rows: Iterable[tuple[Json, ...]]) -> dict[str, Extraction]:
    """The latest extraction under each key, from rows of `READ`."""
    return {key: _extraction(*columns) for key, *columns in rows}


READ = "key, outcome, sentence, dimensions, message, raw, effective, cost"


def _extraction(
    outcome: str,
    sentence: str | None,
    dimensions: str,
    message: str | None,
    raw: str | None,
    effective: str,
    cost: float,
) -> Extraction:
    in_effect: dict[str, Json] = json.loads(effective)
    match outcome:
        case "described":
            features = Features(dimensions=json.loads(dimensions), sentence=sentence or "")
            return Described(features=features, raw=raw, effective=in_effect, cost=cost)
        case "declined":
            return Declined(reason=message or "", raw=raw, effective=in_effect, cost=cost)
        case "unusable":
            return Unusable(problem=message or "", raw=raw, effective=in_effect, cost=cost)
        case _:
            return Failed(error=message or "", retryable=True, cost=cost)
