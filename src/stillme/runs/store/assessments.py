"""Store judges' assessments: one row each time the tries of one end, and a judgement for every axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from stillme.core.types import Abstained, Assessment, Failed, Json, Rated, Rating, Spec
from stillme.runs.store.remembered import as_json

INSERT = (
    "INSERT INTO assessment (key, final, edit, judge, epoch, raw, effective, attempts, seconds, cost, at)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?)"
)
INSERT_JUDGEMENT = "INSERT INTO judgement VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentRow:
    """A judge's assessment of an edit, ready to be saved."""

    key: str
    edit: str
    """The request's key."""
    epoch: int
    judge: Spec
    assessment: Assessment
    attempts: int
    seconds: float
    cost: float

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return self.assessment.failure is None

    @property
    def said(self) -> str:
        """The scores, to be compared with another try."""
        return in_words([(axis, *rating_values(rating)[:2]) for axis, rating in self.assessment.ratings.items()])


def values_of(row: AssessmentRow, judge: str, now: str) -> tuple[Json, ...]:
    """The row as columns."""
    assessment = row.assessment
    return (
        *(row.key, int(row.final), row.edit, judge, row.epoch, assessment.raw, as_json(assessment.effective)),
        *(row.attempts, row.seconds, row.cost, now),
    )


def rating_values(rating: Rating) -> tuple[str, float | None, str | None]:
    """A judgement's outcome, score, and reason or evidence."""
    match rating:
        case Rated(score=score, evidence=evidence):
            return "rated", score, evidence or None
        case Abstained(reason=reason):
            return "abstained", None, reason
        case Failed(error=error):
            return "failed", None, error
        case never:
            assert_never(never)


def in_words(ratings: Sequence[tuple[str, str, float | None]]) -> str:
    """Axes with their outcome or score, in a line."""
    parts = (f"{axis} {outcome if score is None else score}" for axis, outcome, score in sorted(ratings))
    return ", ".join(parts)
