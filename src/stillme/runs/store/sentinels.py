"""Store answers to pairs of known truth: apart from the run's own judgements, append-only like all rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from stillme.core.types import Assessment, Json, Spec

_COLUMNS = (
    "key, final, judge, number, pair, subject, tone, prompt, source, edited, answers, chart, answered_before, error,"
    " raw, effective, attempts, seconds, cost, at"
)
INSERT = f"INSERT INTO sentinel ({_COLUMNS}) VALUES ({','.join('?' * len(_COLUMNS.split(',')))})"
READ = "number, pair, subject, tone, answers, chart, answered_before, cost, effective"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelRow:
    """A judge's answer to a pair of known truth, ready to be saved."""

    key: str
    judge: Spec
    number: int
    pair: str
    """The change: kind and amount, as in `skin+8`."""
    subject: str
    tone: str
    """The skin-tone group of the subject."""
    prompt: str
    """The id of the instruction that was shown with it."""
    source: str
    """SHA-256 of the pictures."""
    edited: str
    assessment: Assessment
    answers: Mapping[str, Json]
    """By axis: outcome, score, the truth where it is known, and whether the answer is right."""
    chart: Mapping[str, tuple[int, int]]
    """Each chart's level after this answer, and its limit."""
    answered_before: int
    """Real answers that came before."""
    attempts: int
    seconds: float
    cost: float

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return self.assessment.failure is None

    @property
    def said(self) -> str:
        """The answers, to be compared with another try."""
        return _json(self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSentinel:
    """An answer to a pair of known truth, as saved."""

    number: int
    pair: str
    subject: str
    tone: str
    answers: Mapping[str, Json]
    chart: Mapping[str, tuple[int, int]]
    answered_before: int
    cost: float | None
    """None if the price is unknown."""

    @property
    def alarms(self) -> list[str]:
        """The charts that are at their limit or above it."""
        return [name for name, (level, limit) in self.chart.items() if level >= limit]


def values_of(row: SentinelRow, judge: str, now: str) -> tuple[Json, ...]:
    """The row as columns."""
    assessment = row.assessment
    failure = assessment.failure
    return (
        *(row.key, int(failure is None), judge, row.number, row.pair, row.subject, row.tone, row.prompt),
        *(row.source, row.edited, _json(row.answers), _json(row.chart), row.answered_before),
        *(failure.error if failure else None, assessment.raw, _json(assessment.effective)),
        *(row.attempts, row.seconds, row.cost, now),
    )


def stored(
    number: int,
    pair: str,
    subject: str,
    tone: str,
    answers: str,
    chart: str,
    answered_before: int,
    cost: float,
    effective: str,
) -> StoredSentinel:
    """The row of `READ`."""
    unknown = json.loads(effective).get("cost") == "unknown"
    return StoredSentinel(
        number=number,
        pair=pair,
        subject=subject,
        tone=tone,
        answers=json.loads(answers),
        chart={name: (level, limit) for name, (level, limit) in json.loads(chart).items()},
        answered_before=answered_before,
        cost=None if unknown else cost,
    )


def _json(value: Mapping[str, Json]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
