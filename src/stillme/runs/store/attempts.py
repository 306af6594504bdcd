"""Record every failed attempt as it happens."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

Stage = Literal["edit", "judge", "describe"]

REPEATED = "repeated"
"""The status of work that was done although it had a result, and that gave the same one."""
NONDETERMINISTIC = "nondeterministic"
"""The same, with another result."""
UNSAVABLE = "not saved"
"""The status of a result that the ledger cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One failed attempt."""

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
    """The attempts of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Append them. A text that the ledger cannot hold is changed, rather than lose the try."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._connection.executemany(
            "INSERT INTO attempt (stage, key, number, error, retryable, status, seconds, cost, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (a.stage, a.key, a.number, _storable(a.error), int(a.retryable), a.status, a.seconds, a.cost, now)
                for a in attempts
            ],
        )

    def count(self, *statuses: str) -> dict[str, int]:
        """How many there are of each status."""
        query = "SELECT COUNT(*) FROM attempt WHERE status = ?"
        return {status: int(self._connection.execute(query, (status,)).fetchone()[0]) for status in statuses}

    def of(self, key: str) -> Iterator[Attempt]:
        """The failed attempts for one request, assessment or feature."""
        for stage, number, error, retryable, status, seconds, cost in self._connection.execute(
            "SELECT stage, number, error, retryable, status, seconds, cost FROM attempt WHERE key = ? ORDER BY id",
            (key,),
        ):
            yield Attempt(
                stage=stage,
                key=key,
                number=number,
                error=error,
                retryable=bool(retryable),
                status=status,
                seconds=seconds,
                cost=cost,
            )


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()
