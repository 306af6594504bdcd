"""What curators did, in order: an append-only log beside the pools.

Everything else (what is ticked, who chose whom, how far everybody is) is derived from the log, so that a crash loses
nothing that was written, and undoing is one more line. Plain SQLite, so that `stillme portraits finalize` needs no web.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stillme.curation.pools import Pools
from stillme.curation.sampling import Cell
from stillme.errors import StillmeError
from stillme.types import Json, digest

LOG = "curation.sqlite"

Kind = Literal[
    "open",
    "tick",
    "untick",
    "tick_all",
    "reject",
    "restore",
    "choose",
    "unchoose",
    "none",
    "undo",
    "compare",
    "settle",
    "rule",
    "invite",
]
KINDS = frozenset(get_args(Kind))
CHOOSING: frozenset[Kind] = frozenset({"tick", "untick", "tick_all", "reject", "restore", "choose", "unchoose", "none"})
"""What a curator does before seeing what others chose."""
UNDOABLE = CHOOSING | {"settle"}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pools (key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS action (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    curator TEXT NOT NULL,
    cell TEXT NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL,
    token TEXT NOT NULL UNIQUE
);
CREATE TRIGGER IF NOT EXISTS action_no_update BEFORE UPDATE ON action
BEGIN SELECT RAISE(ABORT, 'action is append-only'); END;
CREATE TRIGGER IF NOT EXISTS action_no_delete BEFORE DELETE ON action
BEGIN SELECT RAISE(ABORT, 'action is append-only'); END;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One line of the log."""

    id: int
    at: str
    """UTC, ISO 8601, milliseconds."""
    curator: str
    cell: Cell
    kind: Kind
    detail: Mapping[str, Json]


class Log:
    """The log of one folder of pools. May be used by several threads, and by several processes at once."""

    def __init__(self, pools: Pools) -> None:
        path = pools.folder / LOG
        try:
            self._connection = sqlite3.connect(path, timeout=20, check_same_thread=False, isolation_level=None)
            for pragma in ("journal_mode = WAL", "synchronous = FULL"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.executescript(_SCHEMA)
            self._claim(pools)
        except sqlite3.Error as error:
            raise StillmeError(
                f"{path} cannot be used ({error}). Check the disk space, and that the file is stillme's own."
            ) from None
        self._lock = threading.Lock()
        self._read: list[Action] = []

    def append(
        self, curator: str, cell: Cell, kind: Kind, detail: Mapping[str, Json] | None = None, *, token: str = ""
    ) -> None:
        """Write one line; on return it is on disk. The same `token` again changes nothing: a retry counts once."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (at, curator, json.dumps(cell), kind, json.dumps(detail or {}, ensure_ascii=False))
        with self._lock:
            self._connection.execute(
                "INSERT OR IGNORE INTO action (at, curator, cell, kind, detail, token) "
                "VALUES (?, ?, ?, ?, ?, coalesce(nullif(?, ''), lower(hex(randomblob(16)))))",
                (*row, token),
            )

    def actions(self) -> Sequence[Action]:
        """All lines so far."""
        with self._lock:
            last = self._read[-1].id if self._read else 0
            for row in self._connection.execute(
                "SELECT id, at, curator, cell, kind, detail FROM action WHERE id > ? ORDER BY id", (last,)
            ):
                self._read.append(_action(row))
            return tuple(self._read)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _claim(self, pools: Pools) -> None:
        """Tie the log to these candidates; an error if it belongs to others."""
        self._connection.execute("INSERT INTO pools SELECT ? WHERE NOT EXISTS (SELECT 1 FROM pools)", (pools.key,))
        (key,) = self._connection.execute("SELECT key FROM pools").fetchone()
        if key != pools.key:
            raise StillmeError(
                f"{pools.folder / LOG} holds decisions on other candidates. Move it away, or restore those candidates."
            )


def order_for(curator: str, cell: Cell, pools: Pools) -> list[str]:
    """The candidates of a cell in this curator's own random order, independent of pools and labels."""
    seed = int(digest([curator, cell, pools.key]), 16)
    ids = sorted(candidate.id for candidate in pools.cells[cell])
    return [ids[place] for place in np.random.default_rng(seed).permutation(len(ids))]


def has_log(folder: Path) -> bool:
    """Whether anybody has curated here."""
    return (folder / LOG).is_file()


def _action(row: tuple[Any, ...]) -> Action:
    number, at, curator, cell, kind, detail = row
    return Action(id=number, at=at, curator=curator, cell=tuple(json.loads(cell)), kind=kind, detail=json.loads(detail))
