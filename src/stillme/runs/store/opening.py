"""Open a ledger for reading: while another process writes, after a crash, and on read-only media."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from stillme.core.errors import StillmeError, StoreBusy, StoreDamaged, StoreUnwritable
from stillme.runs.store.pictures import UNFINISHED
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


@contextmanager
def writer_lock(folder: Path, *, wait: float) -> Generator[None]:
    """Hold the folder's write lock, waiting up to `wait` seconds for it.

    The operating system frees the lock when its holder dies, however it dies.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".writer.lock", timeout=wait)
    holder = folder / ".writer.json"
    try:
        lock.acquire()
    except Timeout:
        raise StoreBusy(
            f"{folder} is being written by {_who(holder)}. Wait for it to finish, stop it, or give `--wait SECONDS`."
        ) from None
    try:
        holder.write_text(json.dumps(_me()), "utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _me() -> dict[str, object]:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": now}


def _who(holder: Path) -> str:
    try:
        me = json.loads(holder.read_text("utf-8"))
        return f"process {me['pid']} on {me['host']} (`{me['command']}`, since {me['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"


ROW_COUNTS = ".stillme.rows.json"
"""The numbers of the last rows that were saved, from a writer's first row to its orderly end."""
_GROWING: Mapping[str, str] = {
    "edit": "edits",
    "assessment": "judgements",
    "feature": "descriptions",
    "control_pair": "known answers",
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


_DRAFT = re.compile(r"\..+\.[0-9a-f]{12}")
"""As `files.whole` names them."""
_STALE_SECONDS = 3600.0
"""A younger draft may still be written: tables and reports need no lock."""


def clean_up_unfinished(folder: Path) -> None:
    """Remove what the run at work has not finished. Only for its one writer, before its workers begin or when they end.

    A worker that outlives its run fails when it gives its picture a name, and no run waits for it.
    """
    unfinished = folder / "images" / UNFINISHED
    with contextlib.suppress(OSError):  # gone meanwhile, or on media that cannot be written to
        for path in unfinished.iterdir():
            path.unlink(missing_ok=True)
        unfinished.rmdir()


def leftovers(folder: Path, *, deep: bool = True) -> Iterator[Path]:
    """Drafts in a run folder, also one that is written at this moment; with `deep`, also among the pictures."""
    places = [folder, folder / "tables", *(folder / "tables").glob("*/")]
    places += (folder / "images").glob("*/") if deep else ()
    for place in places:
        for path in place.iterdir() if place.is_dir() else ():
            if _DRAFT.fullmatch(path.name) and path.is_file():
                yield path


def clean_up(folder: Path, *, deep: bool = False) -> int:
    """Remove those that are no longer written; returns how many."""
    stale = [path for path in leftovers(folder, deep=deep) if _age(path) > _STALE_SECONDS]
    for path in stale:
        path.unlink(missing_ok=True)
    return len(stale)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
