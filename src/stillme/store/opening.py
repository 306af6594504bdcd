"""Open a ledger for reading: while another process writes, after a crash, and on read-only media."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path

from stillme.errors import StillmeError
from stillme.store.schema import require_known

LEDGER = "stillme.sqlite"
_NOT_A_LEDGER = "SELECT COUNT(*) FROM sqlite_master"


def open_to_read(ledger: Path) -> sqlite3.Connection:
    """A connection that changes nothing; what it reads is a whole state of the ledger."""
    if not ledger.is_file():
        raise StillmeError(f"{ledger.parent} has no run yet ({ledger.name} is missing). Start one with `stillme run`.")
    uri = f"{ledger.resolve().as_uri()}?mode=ro"
    try:
        return _checked(_connect(uri), ledger)
    except sqlite3.OperationalError:
        # SQLite's write-ahead mode needs a file beside the ledger even to read; here none can be made.
        return _checked(_without_writing(ledger, uri), ledger)
    except sqlite3.DatabaseError as error:
        raise StillmeError(f"{ledger} cannot be read ({error}). Restore it from a copy.") from None


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
