"""Remember what was handed over to a provider's batch service, until its answers are in the ledger.

A ticket is written before anything is sent, so that a crash at any moment leaves a trace of what may be under way. What
becomes of it is added as events; nothing is ever changed.
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
    """Questions that went, or were about to go, to a provider together."""

    id: str
    judge: str
    """The key of the judge's specification."""
    questions: Sequence[tuple[str, Json]]
    """The assessments' keys in the order of the batch, each with what is needed to read its answer."""
    expected: float | None
    """Dollars; None where nobody can say."""
    at: datetime
    batch: str | None = None
    """The provider's number of the batch, once it is known."""

    def id_of(self, place: int) -> str:
        """The name of one of its questions at the provider."""
        return f"{self.id}-{place}"


class Tickets:
    """The tickets of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, ticket: Ticket) -> None:
        """Note that the questions are about to be handed over."""
        self._connection.execute(
            "INSERT INTO ticket VALUES (?, ?, ?, ?, ?)",
            (ticket.id, ticket.judge, json.dumps(ticket.questions), ticket.expected, ticket.at.isoformat()),
        )

    def note(self, ticket: Ticket, event: Event, detail: str = "") -> None:
        """Note what became of a ticket; of `submitted` the detail is the provider's number."""
        self._connection.execute(
            "INSERT INTO ticket_event (ticket, event, detail, at) VALUES (?, ?, ?, ?)",
            (ticket.id, event, detail, datetime.now(UTC).isoformat(timespec="seconds")),
        )

    def open(self, judge: str | None = None) -> list[Ticket]:
        """Tickets whose answers are neither collected nor given up, oldest first; of one judge, or of all."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'ticket'"
        if self._connection.execute(query).fetchone() is None:
            return []  # a ledger that is only read, and so not migrated
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
                judge=of,
                questions=[(key, about) for key, about in json.loads(questions)],
                expected=expected,
                at=datetime.fromisoformat(at),
                batch=batch,
            )
            for id_, of, questions, expected, at, batch in rows
        ]
