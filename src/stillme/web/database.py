"""SQLite for many clients. What a transaction has committed survives kill -9 and a power cut."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stillme.core.errors import StillmeError

_BUSY_MS = 20_000
_SHRED_MS = 250
"""How long shredding waits for readers. Writers wait for it meanwhile, so it is better tried again."""

Values = Mapping[str, Any] | Sequence[Any]


class Transaction(sqlite3.Connection):
    """A connection to SQLite within `reading` or `writing`; its rows have names."""

    def row(self, sql: str, values: Values = ()) -> sqlite3.Row | None:
        """The first row."""
        return self.execute(sql, values).fetchone()

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without a row."""
        row = self.row(sql, values)
        return row[0] if row else None

    def column(self, sql: str, values: Values = ()) -> list[Any]:
        """The first column of every row."""
        return [row[0] for row in self.execute(sql, values)]

    def insert(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Add rows that all have the same columns."""
        if rows:
            names = ", ".join(rows[0])
            places = ", ".join(f":{name}" for name in rows[0])
            self.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)


class Database:
    """One connection that writes and as many as needed that read, used through `reading` and `writing`."""

    def __init__(self, file: Path, schema: str) -> None:
        self._file = file
        self.is_closed = False
        # SQLite has one writer. This lock is first come, first served; SQLite's own waiting polls and starves some.
        self._lock = threading.Lock()
        self._idle: list[Transaction] = []
        self.writer = self._connect()
        self.writer.executescript(schema)

    @contextmanager
    def writing(self) -> Generator[Transaction]:
        """One transaction; on return it is on disk, after an exception it never happened."""
        with self._lock:
            self.writer.execute("BEGIN IMMEDIATE")
            try:
                yield self.writer
                self.writer.commit()
            except BaseException:
                self.writer.rollback()
                raise

    @contextmanager
    def reading(self) -> Generator[Transaction]:
        """One consistent view; never blocks a writer."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.rollback()
            self._idle.append(connection)

    def shred(self) -> bool:
        """Make deleted rows unrecoverable: overwritten in the file and gone from the write-ahead log.

        False if another connection still reads the old pages; try again later.
        """
        with self._lock:
            self.writer.execute(f"PRAGMA busy_timeout = {_SHRED_MS}")
            busy = self.writer.value("PRAGMA wal_checkpoint(TRUNCATE)")
            self.writer.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            return not busy

    def close(self) -> None:
        """Close every connection."""
        self.is_closed = True
        with self._lock:
            for connection in (*self._idle, self.writer):
                connection.close()

    def _connect(self) -> Transaction:
        connection = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None, factory=Transaction)
        connection.row_factory = sqlite3.Row
        # Waiting comes first: changing the journal needs the file for a moment.
        for pragma in (
            f"busy_timeout = {_BUSY_MS}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection


def open_database(file: Path, schema: str) -> Database:
    """The database in `file`, made if there is none; only its owner may read it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # SQLite gives its log and shared memory the mode of the database.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)
        return Database(file, schema)
    except (OSError, sqlite3.Error) as error:
        raise StillmeError(
            f"Cannot open the database {file} ({error}). Check that it is stillme's own, that its folder is writable "
            "and that the disk has space."
        ) from None


def append_only(table: str) -> str:
    """The part of a schema that has the database itself refuse to change or delete rows of a table."""
    return "".join(
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;\n"
        for verb in ("UPDATE", "DELETE")
    )
