"""Make what was deleted unreadable in the database's files, and keep trying while a reader holds them.

SQLite keeps old pages in its write-ahead log until a checkpoint goes through, and a checkpoint waits for readers. What
is still to be shredded is counted in the database, so that a crash forgets nothing.
"""

from __future__ import annotations

import threading
import time

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from stillme.study import schema as t
from stillme.web.database import Database

_TABLES = (
    *("answer", "comment", "event", "presentation", "slot"),
    *("identity", "arrival", "session", "consent", "device", "participant"),
)
_PATIENCE, _PAUSE = 1.0, 0.5
"""Seconds that a request waits, and seconds between attempts afterwards."""


def note_deletion(connection: sa.Connection, study: str) -> None:
    """Count a deletion, in the transaction that deletes."""
    more = sa.func.coalesce(t.study.c.unshredded, 0) + 1
    connection.execute(t.study.update().where(t.study.c.id == study).values(unshredded=more))


def shred(database: Database, study: str, patience: float = _PATIENCE) -> bool:
    """Shred what was deleted; false if a reader prevents it so far, and a thread then goes on trying."""
    until = time.monotonic() + patience
    while not _attempt(database, study):
        if time.monotonic() > until:
            threading.Thread(target=_keep_trying, args=(database, study), daemon=True).start()
            return False
        time.sleep(_PAUSE / 10)
    return True


def is_pending(connection: sa.Connection, study: str) -> bool:
    """Whether something deleted may still be read in the files."""
    return bool(connection.execute(sa.select(t.study.c.unshredded).where(t.study.c.id == study)).scalar())


def _attempt(database: Database, study: str) -> bool:
    with database.reading() as connection:
        count = connection.execute(sa.select(t.study.c.unshredded).where(t.study.c.id == study)).scalar() or 0
    if not count:
        return True
    if not database.shred(*_TABLES):
        return False
    # Not to zero: somebody may have withdrawn meanwhile.
    with database.writing() as connection:
        less = t.study.c.unshredded - count
        connection.execute(t.study.update().where(t.study.c.id == study).values(unshredded=less))
    return True


def _keep_trying(database: Database, study: str) -> None:
    while not database.is_closed:
        time.sleep(_PAUSE)
        try:
            if database.is_closed or _attempt(database, study):
                return
        except OperationalError:
            # A full disk, a database that restarts: the next attempt may succeed.
            continue
