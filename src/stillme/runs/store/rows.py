"""The rows of a ledger: edits, assessments, descriptions, answers to control pairs, and failed tries; append-only."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, Generic, Literal, Self, TypeVar, assert_never

from stillme.core.types import (
    Abstained,
    Assessment,
    Edited,
    EditOutcome,
    Failed,
    ImageFile,
    Json,
    Portrait,
    Prompt,
    Rated,
    Rating,
    Refused,
    Request,
    Spec,
    digest,
)
from stillme.mitigation.features import Declined, Described, Extraction, Features, Unusable

T = TypeVar("T")
R = TypeVar("R")

Stage = Literal["edit", "judge", "describe"]
Table = Literal["edit", "assessment", "feature", "control_pair"]

REPEATED = "repeated"
"""The status of work that was done although it had a result, and that gave the same one."""
NONDETERMINISTIC = "nondeterministic"
"""The same, with another result."""
UNSAVABLE = "not saved"
"""The status of a result that the ledger cannot hold."""
_MOST = 10_000
"""Records known to be in the ledger; a bound, so that memory stays flat."""


def as_json(value: Json) -> str:
    """JSON as the ledger keeps it."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def now() -> str:
    """The moment that a row is saved."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[T, R]):
    """A task with its result."""

    task: T
    result: R
    attempts: int
    started: float
    """When the last attempt began, on the clock of `time.monotonic`."""
    last_seconds: float
    """Of the last attempt."""
    seconds: float
    """Of all attempts."""
    cost: float
    """Of all attempts, in dollars."""
    unpriced: bool = False
    """Whether a try was charged, or may have been, whose price is unknown."""


class Remembered:
    """What rows are about (specifications, portraits, prompts, instructions): saved at first use, then known by key."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[int, tuple[str, object]] = {}

    def forget(self) -> None:
        """A transaction was rolled back: what it saved is not there."""
        self._known.clear()

    def spec(self, spec: Spec) -> str:
        """A specification's key."""
        return self._remember("spec", spec, lambda: (spec.key, spec.use, spec.version, as_json(spec.parameters)))

    def portrait(self, portrait: Portrait) -> str:
        """A portrait's key."""
        attributes = as_json(dict(portrait.attributes))
        image, origin = portrait.image.sha256, portrait.label_origin
        values = (portrait.id, image, attributes, origin, portrait.licence, portrait.block)
        return self._remember("portrait", portrait, lambda: (digest(values), *values))

    def prompt(self, prompt: Prompt) -> str:
        """A prompt's key."""
        values = tuple(asdict(prompt).values())
        return self._remember("prompt", prompt, lambda: (digest(values), *values))

    def instruction(self, text: str) -> str:
        """An instruction's key."""
        return self._remember("instruction", text, lambda: (digest((text,)), text))

    def _remember(self, table: str, thing: object, row: Callable[[], tuple[Json, ...]]) -> str:
        """Save a record once and return its key. The object is kept alive, so that its `id` is not reused."""
        known = self._known.get(id(thing))
        if known is None:
            values = row()
            marks = ",".join("?" * len(values))
            self._connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[id(thing)] = known = values[0], thing
        return known[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What any work took, all attempts together."""

    attempts: int
    seconds: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRow(_Work):
    """A request with its outcome, ready to be saved. The picture itself is already in `Pictures`."""

    table: ClassVar[Table] = "edit"
    stage: ClassVar[Stage] = "edit"

    request: Request
    outcome: EditOutcome
    image: str | None
    """SHA-256 of the edited picture, where there is one."""

    @property
    def key(self) -> str:
        """The request's."""
        return self.request.key

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return not isinstance(self.outcome, Failed)

    def summary(self) -> str:
        """What the editor gave, to be compared with another try."""
        match self.outcome:
            case Edited():
                return self.image or "edited"
            case Refused(message=message):
                return f"refused {message}".strip()
            case Failed(error=error):
                return f"failed {error}"

    def as_failed(self, failed: Failed) -> EditRow:
        """The row of a result that the ledger cannot hold."""
        return replace(self, outcome=failed, image=None)

    def columns(self, remembered: Remembered) -> dict[str, Json]:
        """The row; what it is about is saved on the way."""
        truth: Json = None
        match self.outcome:
            case Edited(effective=effective, truth=truth):
                outcome, message = "edited", None
            case Refused(message=message, effective=effective):
                outcome = "refused"
            case Failed(error=message):
                outcome = "failed"
                # The status tells an answer in words from other failures.
                status = self.outcome.status
                effective = {**self.outcome.effective, **({"status": status} if status else {})}
            case never:
                assert_never(never)
        return {
            "portraits": as_json([remembered.portrait(portrait) for portrait in self.request.portraits]),
            "prompt": remembered.prompt(self.request.prompt),
            "arm": self.request.arm,
            "instruction": remembered.instruction(self.request.instruction),
            "editor": remembered.spec(self.request.editor),
            "seed": self.request.seed,
            "outcome": outcome,
            "image": self.image,
            "message": message,
            "effective": as_json(effective),
            "truth": as_json(truth) if truth is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEdit:
    """The latest outcome of a request."""

    id: int
    """Grows with every row."""
    outcome: str
    image: str | None
    message: str | None
    truth: Mapping[str, Json] | None
    status: str | None = None
    """Of a failure: the other side's code."""

    @property
    def final(self) -> bool:
        """Whether it needs no more work: a failure is tried again."""
        return self.outcome != "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged(_Work):
    """What a judge answered."""

    stage: ClassVar[Stage] = "judge"

    key: str
    judge: Spec
    assessment: Assessment

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return self.assessment.failure is None

    def as_failed(self, failed: Failed) -> Self:
        """The row of a result that the ledger cannot hold."""
        return replace(self, assessment=Assessment(ratings=dict.fromkeys(self.assessment.ratings, failed)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentRow(_Judged):
    """A judge's assessment of an edit, ready to be saved with a judgement for every axis."""

    table: ClassVar[Table] = "assessment"

    edit: str
    """The request's key."""
    epoch: int

    def summary(self) -> str:
        """The scores, to be compared with another try."""
        return scores_in_words([(axis, *rating_values(rating)[:2]) for axis, rating in self.assessment.ratings.items()])

    def columns(self, remembered: Remembered) -> dict[str, Json]:
        """The row without its judgements."""
        return {
            "edit": self.edit,
            "judge": remembered.spec(self.judge),
            "epoch": self.epoch,
            "raw": self.assessment.raw,
            "effective": as_json(self.assessment.effective),
        }


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


def scores_in_words(ratings: Sequence[tuple[str, str, float | None]]) -> str:
    """Axes with their outcome or score, in a line."""
    parts = (f"{axis} {outcome if score is None else score}" for axis, outcome, score in sorted(ratings))
    return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow(_Work):
    """An extractor's description of a picture, ready to be saved."""

    table: ClassVar[Table] = "feature"
    stage: ClassVar[Stage] = "describe"

    key: str
    image: ImageFile
    extractor: Spec
    extraction: Extraction

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return not isinstance(self.extraction, Failed)

    def summary(self) -> str:
        """The description, to be compared with another try."""
        return extraction_in_words(self.extraction)

    def as_failed(self, failed: Failed) -> FeatureRow:
        """The row of a result that the ledger cannot hold."""
        return replace(self, extraction=failed)

    def columns(self, remembered: Remembered) -> dict[str, Json]:
        """The row."""
        sentence: str | None = None
        message: str | None = None
        raw: str | None = None
        dimensions: Json = {}
        effective: Json = {}
        match self.extraction:
            case Described(features=features, raw=raw, effective=effective):
                sentence, dimensions = features.sentence, dict(features.dimensions)
            case Declined(reason=message, raw=raw, effective=effective):
                pass
            case Unusable(problem=message, raw=raw, effective=effective):
                pass
            case Failed(error=message):
                pass
        return {
            "image": self.image.sha256,
            "extractor": remembered.spec(self.extractor),
            "outcome": type(self.extraction).__name__.lower(),
            "sentence": sentence,
            "dimensions": json.dumps(dimensions, ensure_ascii=False),
            "message": message,
            "raw": raw,
            "effective": json.dumps(dict(effective), ensure_ascii=False),
        }


def extraction_in_words(extraction: Extraction) -> str:
    """What an extractor said, in a line."""
    match extraction:
        case Described(features=features):
            return features.sentence
        case Declined(reason=text) | Unusable(problem=text) | Failed(error=text):
            return f"{type(extraction).__name__.lower()} {text}"


EXTRACTION_COLUMNS = "outcome, sentence, dimensions, message, raw, effective, cost"


def stored_extraction(
    outcome: str,
    sentence: str | None,
    dimensions: str,
    message: str | None,
    raw: str | None,
    effective: str,
    cost: float,
) -> Extraction:
    """The extraction of a row of `EXTRACTION_COLUMNS`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPairRow(_Judged):
    """A judge's answer to a control pair, ready to be saved apart from the run's own judgements."""

    table: ClassVar[Table] = "control_pair"

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
    answers: Mapping[str, Json]
    """By axis: outcome, score, the truth where it is known, and whether the answer is right."""
    chart: Mapping[str, tuple[int, int]]
    """Each chart's level after this answer, and its limit."""
    answered_before: int
    """Real answers that came before."""

    def summary(self) -> str:
        """The answers, to be compared with another try."""
        return as_json(self.answers)

    def columns(self, remembered: Remembered) -> dict[str, Json]:
        """The row."""
        failure = self.assessment.failure
        names = ("number", "pair", "subject", "tone", "prompt", "source", "edited", "answered_before")
        return {
            **{name: getattr(self, name) for name in names},
            "judge": remembered.spec(self.judge),
            "answers": as_json(self.answers),
            "chart": as_json(self.chart),
            "error": failure.error if failure else None,
            "raw": self.assessment.raw,
            "effective": as_json(self.assessment.effective),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredControlPair:
    """An answer to a control pair, as saved."""

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


SENTINEL_COLUMNS = "number, pair, subject, tone, answers, chart, answered_before, cost, effective"


def stored_control_pair(row: Sequence[Json]) -> StoredControlPair:
    """The answer of a row of `SENTINEL_COLUMNS`."""
    number, pair, subject, tone, answers, chart, answered_before, cost, effective = row
    return StoredControlPair(
        number=number,
        pair=pair,
        subject=subject,
        tone=tone,
        answers=json.loads(answers),
        chart={name: (level, limit) for name, (level, limit) in json.loads(chart).items()},
        answered_before=answered_before,
        cost=None if json.loads(effective).get("cost") == "unknown" else cost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One failed attempt, recorded as it happens."""

    stage: Stage
    key: str
    """Of the request, the assessment or the feature."""
    number: int
    """Counted from 1 in one run."""
    error: str
    retryable: bool
    status: str = ""
    """An error code, such as an HTTP status, if there was one."""
    seconds: float = 0.0
    cost: float = 0.0


class Attempts:
    """The failed attempts of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Append them. A text that the ledger cannot hold is changed, rather than lose the try."""
        self._connection.executemany(
            "INSERT INTO attempt (stage, key, number, error, retryable, status, seconds, cost, at) "
            "VALUES (:stage, :key, :number, :error, :retryable, :status, :seconds, :cost, :at)",
            [
                {**asdict(attempt), "error": attempt.error.encode(errors="replace").decode(), "at": now()}
                for attempt in attempts
            ],
        )

    def count(self, *statuses: str) -> dict[str, int]:
        """How many there are of each status."""
        query = "SELECT COUNT(*) FROM attempt WHERE status = ?"
        return {status: int(self._connection.execute(query, (status,)).fetchone()[0]) for status in statuses}

    def of(self, key: str) -> Iterator[Attempt]:
        """The failed attempts for one request, assessment or feature."""
        names = ("stage", "key", "number", "error", "retryable", "status", "seconds", "cost")
        query = f"SELECT {', '.join(names)} FROM attempt WHERE key = ? ORDER BY id"
        for row in self._connection.execute(query, (key,)):
            values: dict[str, Json] = dict(zip(names, row, strict=True))
            values["retryable"] = bool(values["retryable"])
            yield Attempt(**values)
