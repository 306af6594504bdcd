"""Store what a run asks: its design, and every request with its key."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from stillme import __version__
from stillme.audit.design import CountedRequest, RecordedRequest
from stillme.core.types import Arm, Json
from stillme.runs.store.rows import as_json, now

_COLUMNS = (
    *("editor", "key", "portraits", "prompt", "arm", "instruction", "seed", "attributes_matter", "content"),
    *("expected_place", "withheld", "waiting"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDesign:
    """The latest design of a run, not yet parsed."""

    document: Json
    plan: int
    """The id of its requests."""
    requests: int
    stillme: str
    """The version that recorded it."""
    at: str


class Designs:
    """The designs of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def latest(self) -> StoredDesign | None:
        """What the run asks; None before the design is recorded."""
        row = self._connection.execute(
            "SELECT d.document, d.plan, p.requests, d.stillme, d.at FROM design d JOIN plan p ON p.id = d.plan "
            "ORDER BY d.id DESC LIMIT 1"
        ).fetchone()
        if row is None:
            return None
        document, plan, requests, stillme, at = row
        return StoredDesign(document=json.loads(document), plan=plan, requests=requests, stillme=stillme, at=at)

    def hash_of(self, plan: int) -> str:
        """What names the requests of a plan."""
        return str(self._connection.execute("SELECT hash FROM plan WHERE id = ?", (plan,)).fetchone()[0])

    def plan_of(self, hash_: str) -> int | None:
        """The recorded plan of exactly these requests, if there is one."""
        row = self._connection.execute(
            "SELECT id FROM plan WHERE hash = ? ORDER BY id DESC LIMIT 1", (hash_,)
        ).fetchone()
        return row[0] if row else None

    def add_plan(self, requests: Iterable[RecordedRequest]) -> int:
        """Save every request in its order, streaming; part of the caller's transaction."""
        (plan,) = self._connection.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM plan").fetchone()
        hashing, count = hashlib.sha256(), 0
        marks = ",".join("?" * (len(_COLUMNS) + 2))
        for count, request in enumerate(requests, start=1):
            hashing.update(_identity(request))
            self._connection.execute(f"INSERT INTO request VALUES ({marks})", (plan, count - 1, *_values(request)))
        self._connection.execute("INSERT INTO plan VALUES (?, ?, ?, ?)", (plan, hashing.hexdigest(), count, now()))
        return int(plan)

    def add(self, hash_: str, document: Json, plan: int) -> None:
        """Record that this is what the run asks from now on."""
        self._connection.execute(
            "INSERT INTO design (hash, document, plan, stillme, at) VALUES (?, ?, ?, ?, ?)",
            (hash_, as_json(document), plan, __version__, now()),
        )

    def requests(self, plan: int, editor: str | None = None) -> Iterator[RecordedRequest]:
        """The requests of a plan in their order; of one editor, or of all."""
        rows = self._connection.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM request WHERE plan = ? AND (? IS NULL OR editor = ?) ORDER BY position",
            (plan, editor, editor),
        )
        return map(_request, rows)

    def request(self, plan: int, position: int) -> RecordedRequest:
        """One request of a plan, by its place in the order, counted from 0."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM request WHERE plan = ? AND position = ?"
        return _request(self._connection.execute(query, (plan, position)).fetchone())

    def asked(self, plan: int) -> Iterator[CountedRequest]:
        """The same requests, as much of them as counting needs."""
        query = "SELECT editor, key, withheld = '' OR waiting FROM request WHERE plan = ? ORDER BY position"
        return map(CountedRequest._make, self._connection.execute(query, (plan,)))

    def portraits(self, plan: int, editors: AbstractSet[str], arms: AbstractSet[Arm]) -> set[str]:
        """The portraits that these editors are given in these arms."""
        chosen = (json.dumps(sorted(editors)), json.dumps(sorted(arms)))
        rows = self._connection.execute(
            "SELECT DISTINCT portraits FROM request WHERE plan = ? AND editor IN (SELECT value FROM json_each(?)) "
            "AND arm IN (SELECT value FROM json_each(?))",
            (plan, *chosen),
        )
        return {name for (portraits,) in rows for name in json.loads(portraits)}


def plan_hash(requests: Iterable[RecordedRequest]) -> str:
    """Names a list of requests: the same requests in the same order have the same hash."""
    hashing = hashlib.sha256()
    for request in requests:
        hashing.update(_identity(request))
    return hashing.hexdigest()


def _identity(request: RecordedRequest) -> bytes:
    # Its key covers all that can change its outcome.
    parts = (request.editor, request.key, str(request.expected_place), request.withheld, str(request.waiting))
    return ("\x1f".join(parts) + "\n").encode()


def _values(request: RecordedRequest) -> tuple[Json, ...]:
    return (
        *(request.editor, request.key, json.dumps(request.portraits), request.prompt, str(request.arm)),
        *(request.instruction, request.seed, int(request.attributes_matter), request.content),
        *(request.expected_place, request.withheld, int(request.waiting)),
    )


def _request(row: tuple[Json, ...]) -> RecordedRequest:
    columns = dict(zip(_COLUMNS, row, strict=True))
    columns |= {
        "portraits": tuple(json.loads(columns["portraits"])),
        "arm": Arm(columns["arm"]),
        "attributes_matter": bool(columns["attributes_matter"]),
        "waiting": bool(columns["waiting"]),
    }
    return RecordedRequest(**columns)
