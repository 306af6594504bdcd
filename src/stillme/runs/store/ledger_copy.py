"""A ledger that leaves the house: a copy without raters' ids, and the check that one from elsewhere is a ledger."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from stillme.core.errors import StoreDamaged
from stillme.core.types import Json
from stillme.runs.store.exported import EDITS, JUDGEMENTS, Table, without_people
from stillme.runs.store.ledger import Store
from stillme.runs.store.opening import LEDGER
from stillme.runs.store.rows import as_json

_ANSWERS = (
    *(("edit", "effective"), ("assessment", "effective"), ("assessment", "raw")),
    *(("feature", "effective"), ("feature", "raw"), ("control_pair", "effective"), ("control_pair", "raw")),
)
"""Columns that may hold what a provider or a study said of a person."""
_COUNTED = {
    EDITS.name: "SELECT COUNT(*) FROM edit",
    JUDGEMENTS.name: "SELECT COUNT(*) FROM judgement",
}


def copy_ledger(store: Store, folder: Path, design: Json) -> None:
    """Write a copy of the ledger, as it is at this moment, into `folder`, with `design` as what the run asks.

    The same rows give the same bytes.
    """
    with tempfile.TemporaryDirectory(prefix="stillme-ledger-") as scratch:
        draft = Path(scratch) / LEDGER
        store.query("VACUUM INTO ?", (str(draft),))
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")
            copy.execute("BEGIN")
            guards = copy.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
            ).fetchall()
            for name, _ in guards:
                copy.execute(f"DROP TRIGGER {name}")
            _forget_people(copy)
            _add_design(copy, as_json(design))
            for _, sql in guards:
                copy.execute(sql)
            copy.execute("COMMIT")
            # Again, as a page that is free still holds what was in it.
            copy.execute("VACUUM INTO ?", (str(folder / LEDGER),))


def _forget_people(copy: sqlite3.Connection) -> None:
    for table, column in _ANSWERS:
        for number, text in copy.execute(f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall():
            if (cleaned := without_people(text)) != text:
                copy.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (cleaned, number))
    # Where pictures are kept is no one else's business: those of a bundle are in it.
    copy.execute("DELETE FROM place")


def _add_design(copy: sqlite3.Connection, document: str) -> None:
    """The same design with its judges' calibration, if that is not part of it yet."""
    copy.execute(
        "INSERT INTO design (hash, document, plan, stillme, at) "
        "SELECT hash, ?, plan, stillme, at FROM (SELECT * FROM design ORDER BY id DESC LIMIT 1) WHERE document != ?",
        (document, document),
    )


def require_ledger(file: Path) -> None:
    """Refuse a file from elsewhere that is damaged, or has tables, views or triggers which stillme does not make."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            found = set(_parts(connection))
            damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise StoreDamaged(f"{file.name} is not a database of stillme ({error})") from None
    if other := sorted(found ^ _own_parts()):
        raise StoreDamaged(f"{file.name} does not have the tables of this stillme: {other[0][1]}")
    if damage != "ok":
        raise StoreDamaged(f"{file.name} is damaged: {damage}")


def _own_parts() -> set[tuple[str, ...]]:
    with tempfile.TemporaryDirectory(prefix="stillme-ledger-") as name, Store.writing(Path(name)) as store:
        return set(store.query("SELECT type, name, tbl_name, COALESCE(sql, '') FROM sqlite_master"))


def _parts(connection: sqlite3.Connection) -> Iterator[tuple[str, ...]]:
    yield from connection.execute("SELECT type, name, tbl_name, COALESCE(sql, '') FROM sqlite_master")


def row_count(store: Store, table: Table) -> int:
    """How many rows an exported table must have. It has fewer if a row names a portrait or judge that is gone."""
    return int(store.query(_COUNTED[table.name]).fetchone()[0])
