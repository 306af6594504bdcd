"""Store edits: one row each time the tries of a request end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from stillme.core.types import Edited, EditOutcome, Failed, Json, Refused, Request
from stillme.runs.store.remembered import Remembered, as_json

INSERT = (
    "INSERT INTO edit (key, final, portraits, prompt, arm, instruction, editor, seed, outcome, image, message,"
    " effective, truth, attempts, seconds, cost, at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRow:
    """A request with its outcome, ready to be saved. The picture itself is already in `Pictures`."""

    request: Request
    outcome: EditOutcome
    image: str | None
    """SHA-256 of the edited picture, where there is one."""
    attempts: int
    seconds: float
    cost: float

    @property
    def key(self) -> str:
        """The request's."""
        return self.request.key

    @property
    def final(self) -> bool:
        """Whether it needs no more work."""
        return not isinstance(self.outcome, Failed)

    @property
    def said(self) -> str:
        """What the editor gave, to be compared with another try."""
        match self.outcome:
            case Edited():
                return self.image or "edited"
            case Refused(message=message):
                return f"refused {message}".strip()
            case Failed(error=error):
                return f"failed {error}"


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


def values_of(row: EditRow, remembered: Remembered, now: str) -> tuple[Json, ...]:
    """The row as columns; what it is about is saved on the way."""
    request = row.request
    portraits = [remembered.portrait(portrait) for portrait in request.portraits]
    match row.outcome:
        case Edited(effective=effective, truth=truth):
            outcome, final, message = "edited", 1, None
        case Refused(message=message, effective=effective):
            outcome, final, truth = "refused", 1, None
        case Failed(error=message):
            outcome, final, truth = "failed", 0, None
            # The status tells an answer in words from other failures.
            effective = {**row.outcome.effective, **({"status": status} if (status := row.outcome.status) else {})}
        case never:
            assert_never(never)
    return (
        request.key,
        final,
        as_json(portraits),
        remembered.prompt(request.prompt),
        request.arm,
        remembered.instruction(request.instruction),
        remembered.spec(request.editor),
        request.seed,
        outcome,
        row.image,
        message,
        as_json(effective),
        as_json(truth) if truth is not None else None,
        row.attempts,
        row.seconds,
        row.cost,
        now,
    )
