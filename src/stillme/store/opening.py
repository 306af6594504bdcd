"""Open a ledger for reading: while another process writes, after a crash, and on read-only media."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stillme.errors import StillmeError, StoreDamaged, StoreUnwritable
from stillme.store.schema import require_known

LEDGER = "stillme.sqlite"
LOG_NOTE = ".stillme.sqlite-open"
"""Beside the ledger from the first row of a writer to its orderly end: until then a log must be there."""
_NOT_A_LEDGER = "SELECT COUNT(*) FROM sqlite_master"


def open_to_read(ledger: Path) -> sqlite3.Connection:
    """A connection that changes nothing; what it reads is a whole state of the ledger."""
    if not ledger.is_file():
        raise StillmeError(f"{ledger.parent} has no run yet ({ledger.name} is missing). Start one with `stillme run`.")
    require_log(ledger)
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


def require_log(ledger: Path) -> None:
    """Refuse a ledger whose log was deleted after a crash: its last rows would silently be missing."""
    log = ledger.with_name(f"{ledger.name}-wal")
    note = ledger.with_name(LOG_NOTE)
    # Asked twice: a writer that ends at this moment removes the note before the log.
    if note.exists() and not log.exists() and note.exists():
        raise StoreDamaged(
            f"{log} is missing: it had the last rows of a run that did not end in an orderly way. Put it back from a "
            f"copy, or go on without those rows: `stillme doctor {ledger.parent} --repair`."
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
    except BaseException:
        connection.close()
        raise
    return connection
