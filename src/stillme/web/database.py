"""Open a database for many clients: SQLite in one file, or PostgreSQL for many workers.

What a transaction has committed survives kill -9 and a power cut.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError
from sqlalchemy.pool import QueuePool

from stillme.errors import StillmeError

_BUSY_MS = 20_000
_SHRED_MS = 250
"""How long shredding waits for readers. Writers wait for it meanwhile, so it is better tried again."""


class Database:
    """A pool of connections, used through `reading` and `writing`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.is_closed = False
        # SQLite has one writer. This lock is first come, first served; SQLite's own waiting polls and starves some.
        self._writer = threading.Lock() if self.is_sqlite else nullcontext()

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
        """One consistent view; never blocks a writer of SQLite."""
        with self.engine.connect() as connection:
            yield connection

    def shred(self, *tables: str) -> bool:
        """Make deleted rows unrecoverable: overwritten in the file and gone from SQLite's write-ahead log.

        False if another connection still reads the old pages; try again later.
        """
        with self._writer, self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if self.is_sqlite:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {_SHRED_MS}")
                busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {_BUSY_MS}")
                return not busy
            connection.exec_driver_sql(f"SET lock_timeout = {_SHRED_MS}")
            try:
                for table in tables:
                    connection.exec_driver_sql(f"VACUUM FULL {table}")
            except OperationalError:
                return False
            finally:
                connection.exec_driver_sql("RESET lock_timeout")
            return True

    def close(self) -> None:
        """Close every connection."""
        self.is_closed = True
        self.engine.dispose()


def open_database(where: Path | str) -> Database:
    """A path for SQLite, or `postgresql://user@host/name`."""
    if isinstance(where, Path):
        where.parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(f"sqlite:///{where}", poolclass=QueuePool, pool_size=10, max_overflow=40)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin)
    else:
        engine = _postgresql(where)
    try:
        with engine.connect():
            return Database(engine)
    except OperationalError as error:
        reason = str(error.orig).strip().partition("\n")[0]
        hint = "Is its folder writable?" if isinstance(where, Path) else "Check the address, and that the server runs."
        raise StillmeError(f"Cannot open the database {_shown(where)} ({reason}). {hint}") from None


def _postgresql(url: str) -> sa.Engine:
    try:
        address = sa.make_url(url)
        if address.get_backend_name() not in ("postgresql", "postgres"):
            raise StillmeError(f"The database {_shown(url)} is not PostgreSQL; write postgresql://user@host/name.")
        return sa.create_engine(
            address.set(drivername="postgresql+psycopg"), pool_size=10, max_overflow=30, pool_pre_ping=True
        )
    except (ArgumentError, NoSuchModuleError):
        raise StillmeError(f"{url!r} is not a database address; write postgresql://user@host/name.") from None


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


def _shown(where: Path | str) -> str:
    if isinstance(where, Path):
        return str(where)
    try:
        return sa.make_url(where).render_as_string(hide_password=True)
    except ArgumentError:
        # An address that cannot be parsed may hold a password anywhere.
        return "that was given"
