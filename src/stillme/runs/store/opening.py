"""Open a ledger for reading: while another process writes, after a crash, and on read-only media."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from stillme.core.errors import StillmeError, StoreDamaged, StoreUnwritable
from stillme.runs.store.saved_rows import require_all_rows
from stillme.runs.store.schema import require_version, version_of

LEDGER = "stillme.sqlite"
_OF_THE_MACHINE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
_PRIMARY_CODE = 0xFF
"""SQLite's further codes are these with more in the higher bits."""
_NOT_A_LEDGER = "SELECT COUNT(*) FROM sqlite_master"
_FAULTS_SHOWN = 5


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
    except sqlite3.DatabaseError as error:
        if is_fault_of_the_machine(error):
            raise StoreUnwritable(
                f"{ledger} cannot be written to ({error}). Check the disk's space and the permissions, then run the "
                "same command."
            ) from None
        raise StoreDamaged(
            f"{ledger} is damaged ({error}). Put it back from a copy; `stillme doctor {ledger.parent}` shows the "
            "damage and what else can be done."
        ) from None


def is_fault_of_the_machine(error: sqlite3.Error) -> bool:
    """Whether the disk, the folder or another process is at fault, not the content of the ledger."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return (code & _PRIMARY_CODE) in _OF_THE_MACHINE


def require_whole(ledger: Path) -> None:
    """Refuse a ledger in which SQLite's integrity check finds a fault, with the way to save what it can read."""
    with closing(sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            faults = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_FAULTS_SHOWN})")]
        except sqlite3.DatabaseError as error:
            faults = [str(error)]
    if faults != ["ok"]:
        raise StoreDamaged(
            f"{'; '.join(faults)}. Put {ledger.name} back from a copy. Without one, `sqlite3 {ledger} .recover | "
            f"sqlite3 {ledger.with_name('recovered.sqlite')}` saves the rows that SQLite can read: put that file in "
            f"the place of {ledger.name}, delete {ledger.name}-wal, and run `stillme doctor {ledger.parent}` again"
        )


def require_tables(connection: sqlite3.Connection, ledger: Path) -> None:
    """Refuse an empty file: a ledger is made with all its tables, so this one was emptied."""
    if version_of(connection) == 0:
        raise StoreDamaged(
            f"{ledger} is empty: all its rows are lost. Put it back from a copy, or delete it to start again."
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
        require_version(connection, str(ledger))
        require_tables(connection, ledger)
        require_all_rows(connection, ledger)
    except BaseException:
        connection.close()
        raise
    return connection
