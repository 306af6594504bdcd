"""Open a ledger for reading: while another process writes, after a crash, and on read-only media."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stillme.errors import StillmeError, StoreDamaged, StoreUnwritable
from stillme.store.schema import require_known

LEDGER = "stillme.sqlite"
ROW_COUNTS = ".stillme.rows.json"
"""The numbers of the last rows that were saved, beside the ledger from a writer's first row to its orderly end."""
_COUNTED = ("edit", "assessment", "attempt")
_NOT_A_LEDGER = "SELECT COUNT(*) FROM sqlite_master"


def open_to_read(ledger: Path) -> sqlite3.Connection:
    """A connection that changes nothing; what it reads is a whole state of the ledger."""
    if not ledger.is_file():
        raise StillmeError(f"{ledger.parent} has no run yet ({ledger.name} is missing). Start one with `stillme run`.")
    uri = f"{ledger.resolve().as_uri()}?mode=ro"
    with explained(ledger):
        try:
            return _checked(_connect(uri), ledger)
        except sqlite3.OperationalError:
            # SQLite's write-ahead mode needs a file beside the ledger even to read; here none can be made.
            return _checked(_without_writing(ledger, uri), ledger)


@contextmanager
def explained(ledger: Path) -> Generator[None]:
    """Faults of the disk and of the file as a sentence each."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreUnwritable(
            f"{ledger} cannot be written to ({error}). Check the disk's space and the permissions, then run the same "
            "command."
        ) from None
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(
            f"{ledger} is damaged ({error}). `stillme doctor {ledger.parent}` shows what is whole, `--repair` saves it."
        ) from None


def last_rows(connection: sqlite3.Connection) -> dict[str, int]:
    """The number of the last row of every table that grows."""
    return {
        table: int(connection.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}").fetchone()[0])
        for table in _COUNTED
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    }


def require_all_rows(connection: sqlite3.Connection, ledger: Path) -> None:
    """Refuse a ledger that lacks rows which were saved: its log was deleted or cut off after a crash."""
    try:
        saved: dict[str, int] = json.loads(ledger.with_name(ROW_COUNTS).read_text("utf-8"))
    except (OSError, ValueError):
        return  # the last writer ended in an orderly way, or was killed while it wrote the numbers
    present = last_rows(connection)
    lacking = {table: count - present.get(table, 0) for table, count in saved.items() if count > present.get(table, 0)}
    if lacking:
        rows = ", ".join(f"{count:,} rows of {table}s" for table, count in lacking.items())
        raise StoreDamaged(
            f"{ledger} lacks {rows} that were saved: {ledger.name}-wal was deleted or cut off after a run was killed. "
            f"Put it back from a copy, or go on without those rows: `stillme doctor {ledger.parent} --repair`."
        )


def _without_writing(ledger: Path, uri: str) -> sqlite3.Connection:
    log = ledger.with_name(f"{ledger.name}-wal")
    if not log.is_file() or log.stat().st_size == 0:
        return _connect(f"{uri}&immutable=1")
    # The last rows are still in the log, which only a writable copy can take in.
    with tempfile.TemporaryDirectory(prefix="stillme-ledger-") as name:
        copy = Path(name) / ledger.name
        for file in (ledger, log):
            shutil.copyfile(file, copy.with_name(file.name))
        with sqlite3.connect(copy) as source:
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            source.backup(memory)
        source.close()
    return memory


def _connect(uri: str) -> sqlite3.Connection:
    # Reading only, a connection may be closed by whichever thread drops it.
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _checked(connection: sqlite3.Connection, ledger: Path) -> sqlite3.Connection:
    try:
        connection.execute(_NOT_A_LEDGER).fetchone()
        require_known(connection, str(ledger))
        require_all_rows(connection, ledger)
    except BaseException:
        connection.close()
        raise
    return connection
