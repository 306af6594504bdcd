"""Note beside the ledger which rows were saved, so that a log that is lost after a crash is noticed.

SQLite keeps the last rows in a file of its own, `-wal`, until it copies them into the ledger. Without that file the
ledger opens as if those rows had never been.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from stillme.core.errors import StoreDamaged

ROW_COUNTS = ".stillme.rows.json"
"""The numbers of the last rows that were saved, from a writer's first row to its orderly end."""
_GROWING: Mapping[str, str] = {
    "edit": "edits",
    "assessment": "judgements",
    "feature": "descriptions",
    "sentinel": "known answers",
    "attempt": "failed tries",
}
"""Tables whose rows are numbered, with the word for their rows."""


def note_rows(connection: sqlite3.Connection, folder: Path) -> None:
    """Write down what was saved: whole, as a writer may be killed at any moment."""
    draft = folder / f"{ROW_COUNTS}.draft"
    with contextlib.suppress(OSError, sqlite3.Error):  # the rows are saved; the note is not worth a failure
        draft.write_text(json.dumps(last_rows(connection)), "utf-8")
        draft.replace(folder / ROW_COUNTS)


def forget_rows(folder: Path) -> None:
    """The writer ended in an orderly way, or what is lost was given up."""
    for name in (ROW_COUNTS, f"{ROW_COUNTS}.draft"):
        (folder / name).unlink(missing_ok=True)


def require_all_rows(connection: sqlite3.Connection, ledger: Path) -> None:
    """Refuse a ledger that lacks rows which were saved: its log was deleted or cut off after a crash."""
    try:
        saved: dict[str, int] = json.loads(ledger.with_name(ROW_COUNTS).read_text("utf-8"))
    except (OSError, ValueError):
        return  # the last writer ended in an orderly way, or had saved nothing yet
    present = last_rows(connection)
    lacking = {table: count - present.get(table, 0) for table, count in saved.items() if count > present.get(table, 0)}
    if lacking:
        rows = ", ".join(f"{count:,} {_GROWING[table]}" for table, count in lacking.items())
        raise StoreDamaged(
            f"{ledger} lacks {rows} that were saved: {ledger.name}-wal was deleted or cut off after a run was killed. "
            f"Put it back from a copy, or go on without those rows: `stillme doctor {ledger.parent} --accept-loss`."
        )


def last_rows(connection: sqlite3.Connection) -> dict[str, int]:
    """By table, the number of its last row."""
    queries = {table: f"SELECT COALESCE(MAX(id), 0) FROM {table}" for table in _GROWING}
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {table: int(connection.execute(query).fetchone()[0]) for table, query in queries.items() if table in tables}
