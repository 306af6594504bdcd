"""Open a SQLite database for many clients, and keep an append-only log in it: who did what, when.

What a transaction has committed survives kill -9 and a power cut.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from stillme.core.errors import StillmeError

_BUSY_MS = 20_000
_SHRED_MS = 250
"""How long shredding waits for readers. Writers wait for it meanwhile, so it is better tried again."""


class Database:
    """A pool of connections, used through `reading` and `writing`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.is_closed = False
        # SQLite has one writer. This lock is first come, first served; SQLite's own waiting polls and starves some.
        self._writer = threading.Lock()

    @contextmanager
    def writing(self) -> Generator[sa.Connection]:
        """One transaction; on return it is on disk, after an exception it never happened."""
        with (
            self._writer,
            self.engine.connect().execution_options(immediate=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def reading(self) -> Generator[sa.Connection]:
        """One consistent view; never blocks a writer."""
        with self.engine.connect() as connection:
            yield connection

    def shred(self) -> bool:
        """Make deleted rows unrecoverable: overwritten in the file and gone from the write-ahead log.

        False if another connection still reads the old pages; try again later.
        """
        with self._writer, self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_SHRED_MS}")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_BUSY_MS}")
            return not busy

    def close(self) -> None:
        """Close every connection."""
        self.is_closed = True
        self.engine.dispose()


def open_database(file: Path) -> Database:
    """The database in `file`, made if there is none; only its owner may read it."""
    engine = sa.create_engine(f"sqlite:///{file}", poolclass=QueuePool, pool_size=10, max_overflow=40)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # SQLite gives its log and shared memory the mode of the database.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)
        with engine.connect():
            return Database(engine)
    except (OSError, OperationalError) as error:
        reason = str(error.orig if isinstance(error, OperationalError) else error).strip().partition("\n")[0]
        raise StillmeError(f"Cannot open the database {file} ({reason}). Is its folder writable?") from None


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun by `_begin`, not by the driver
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        f"busy_timeout = {_BUSY_MS}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if options.get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate") else "BEGIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the log."""

    id: int
    at: str
    """UTC, ISO 8601."""
    actor: str
    kind: str
    detail: dict[str, Any]


def event_table(metadata: sa.MetaData, name: str = "event") -> sa.Table:
    """Declare the log's table; SQLite refuses to change its rows once `keep_append_only` was called."""
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )


def keep_append_only(connection: sa.Connection, table: sa.Table) -> None:
    """Have the database itself refuse updates and deletes. May be called again."""
    for verb in ("UPDATE", "DELETE"):
        connection.exec_driver_sql(
            f"CREATE TRIGGER IF NOT EXISTS {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
            f"BEGIN SELECT RAISE(ABORT, '{table.name} is append-only'); END"
        )


def append_event(connection: sa.Connection, table: sa.Table, *, actor: str, kind: str, **detail: Any) -> None:
    """Add a line within the caller's transaction: it is kept if and only if what it records is."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    connection.execute(
        table.insert().values(at=at, actor=actor, kind=kind, detail=json.dumps(detail, ensure_ascii=False))
    )


def read_events(connection: sa.Connection, table: sa.Table, *, after: int = 0) -> Iterator[Event]:
    """All lines after an id, oldest first."""
    for row in connection.execute(sa.select(table).where(table.c.id > after).order_by(table.c.id)):
        yield Event(id=row.id, at=row.at, actor=row.actor, kind=row.kind, detail=json.loads(row.detail))
