"""Record what was submitted to a provider's batch API, until its answers are in the ledger.

A ticket is written before anything is sent, so that a crash at any moment leaves a record of what may be in a batch.
Its fate is appended as events; no row is ever changed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from stillme.types import Json

Event = Literal["submitted", "collected", "abandoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Questions that were, or were about to be, submitted together."""

    id: str
    judge: str
    """The key of the judge's specification."""
    questions: Sequence[tuple[str, Json]]
    """The assessments' keys in the order of the batch, each with the image sizes that reading its answer needs."""
    expected: float | None
    """Dollars; None if unknown."""
    at: datetime
    batch: str | None = None
    """The provider's ID of the batch, once it is known."""

    def id_of(self, place: int) -> str:
        """The ID of one of its questions at the provider."""
        return f"{self.id}-{place}"


class Tickets:
    """The tickets of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, ticket: Ticket) -> None:
        """Record that the questions are about to be submitted."""
        self._connection.execute(
            "INSERT INTO ticket VALUES (?, ?, ?, ?, ?)",
            (ticket.id, ticket.judge, json.dumps(ticket.questions), ticket.expected, ticket.at.isoformat()),
        )

    def add_event(self, ticket: Ticket, event: Event, detail: str = "") -> None:
        """Record what became of a ticket; the detail of `submitted` is the batch's ID."""
        self._connection.execute(
            "INSERT INTO ticket_event (ticket, event, detail, at) VALUES (?, ?, ?, ?)",
            (ticket.id, event, detail, datetime.now(UTC).isoformat(timespec="seconds")),
        )

    def open(self, judge: str | None = None) -> list[Ticket]:
        """Tickets whose answers are neither collected nor abandoned, oldest first; of one judge, or of all."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'ticket'"
        if self._connection.execute(query).fetchone() is None:
            return []  # a ledger that is only read is not migrated
        rows = self._connection.execute(
            "SELECT t.id, t.judge, t.questions, t.expected, t.at, s.detail FROM ticket t "
            "LEFT JOIN ticket_event s ON s.ticket = t.id AND s.event = 'submitted' "
            "WHERE NOT EXISTS (SELECT 1 FROM ticket_event e WHERE e.ticket = t.id AND e.event != 'submitted') "
            "AND (? IS NULL OR t.judge = ?) ORDER BY t.at, t.id",
            (judge, judge),
        )
        return [
            Ticket(
                id=id_,
                judge=judge_key,
                questions=[(key, sizes) for key, sizes in json.loads(questions)],
                expected=expected,
                at=datetime.fromisoformat(at),
                batch=batch,
            )
            for id_, judge_key, questions, expected, at, batch in rows
        ]
