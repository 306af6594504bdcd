"""Save what is whole from a damaged ledger: rows are read one by one where a page cannot be read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stillme.errors import StoreDamaged
from stillme.store.opening import LEDGER, ROW_COUNTS
from stillme.store.schema import MIGRATIONS, migrate, version_of
from stillme.store.writer_lock import writer_lock
from stillme.types import Json

_DRAFT = f".{LEDGER}.saved"
_SHOWN = 5
_INCOMPLETE = (
    # An assessment without all of its axes would look like a judge who said nothing on the others.
    "DELETE FROM judgement WHERE assessment NOT IN (SELECT id FROM assessment)",
    (
        "DELETE FROM edit WHERE editor NOT IN (SELECT key FROM spec) OR prompt NOT IN (SELECT key FROM prompt) "
        "OR instruction NOT IN (SELECT key FROM instruction) "
        "OR EXISTS (SELECT 1 FROM json_each(portraits) p WHERE p.value NOT IN (SELECT key FROM portrait))"
    ),
    "DELETE FROM assessment WHERE judge NOT IN (SELECT key FROM spec)",
    # Work records a design again if it is not there; half a list of requests would be read as the whole.
    (
        "DELETE FROM design WHERE plan NOT IN "
        "(SELECT p.id FROM plan p WHERE p.requests = (SELECT COUNT(*) FROM request r WHERE r.plan = p.id))"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What came of a rescue."""

    kept: Mapping[str, int]
    """Rows by table."""
    lost: Mapping[str, int]
    """Rows that could not be read or are not whole."""
    aside: Path
    """Where the damaged ledger is now."""


def faults(ledger: Path) -> list[str]:
    """What SQLite finds wrong with a ledger's pages; empty if nothing."""
    with closing(sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            rows = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
        except sqlite3.DatabaseError as error:
            return [str(error)]
    return [] if rows == ["ok"] else rows


def salvage(folder: Path) -> Salvaged:
    """Write a new ledger with every row that can be read and is whole; the damaged one is kept beside it."""
    ledger, draft = folder / LEDGER, folder / _DRAFT
    with writer_lock(folder, wait=0.0):
        draft.unlink(missing_ok=True)
        with closing(sqlite3.connect(ledger, isolation_level=None)) as old:
            try:
                version = version_of(old)
                names = _tables(old)
            except sqlite3.DatabaseError as error:
                raise StoreDamaged(f"{ledger} cannot be saved ({error}): its first page is lost. Use a copy.") from None
            with closing(sqlite3.connect(draft, isolation_level=None)) as new:
                migrate(new, MIGRATIONS[:version])
                kept, lost = _copy(old, new, names)
                migrate(new)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        aside = ledger.with_name(f"{LEDGER}.damaged-{stamp}")
        for suffix in ("-wal", "-shm"):
            beside = ledger.with_name(f"{LEDGER}{suffix}")
            if beside.exists():
                beside.replace(aside.with_name(f"{aside.name}{suffix}"))
        ledger.replace(aside)
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(ledger)
        (folder / ROW_COUNTS).unlink(missing_ok=True)
    return Salvaged(kept=kept, lost=lost, aside=aside)


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, names: Sequence[str]
) -> tuple[dict[str, int], dict[str, int]]:
    kept: dict[str, int] = {}
    lost: dict[str, int] = {}
    guards = new.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        new.execute(f"DROP TRIGGER {name}")  # what is not whole is taken out again below
    new.execute("BEGIN")
    for table in _tables(new):
        if table not in names:
            continue
        reader = _Reader(old, table)
        for row in reader.rows():
            marks = ",".join("?" * len(row))
            new.execute(f"INSERT OR IGNORE INTO {table} ({reader.columns}) VALUES ({marks})", row)
        lost[table] = reader.lost
    _take_out_halves(new)
    for table in lost:
        (count,) = new.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
        kept[table] = count
    for _, sql in guards:
        new.execute(sql)
    new.execute("COMMIT")
    return kept, {table: count for table, count in lost.items() if count}


def _take_out_halves(new: sqlite3.Connection) -> None:
    for judge, axes in _axes(new).items():
        marks = ",".join("?" * len(axes))
        new.execute(
            "DELETE FROM assessment WHERE judge = ? AND ? > "
            f"(SELECT COUNT(*) FROM judgement j WHERE j.assessment = assessment.id AND j.axis IN ({marks}))",
            (judge, len(axes), *axes),
        )
    new.execute("DELETE FROM assessment WHERE id NOT IN (SELECT assessment FROM judgement)")
    existing = set(_tables(new))
    for statement in _INCOMPLETE:
        if statement.split()[2] in existing:
            new.execute(statement)


def _axes(new: sqlite3.Connection) -> dict[str, list[str]]:
    """By judge: the axes that every assessment of it has. From its own rows, as most of them are whole."""
    counted = new.execute(
        "SELECT a.judge, j.axis, COUNT(*) FROM assessment a JOIN judgement j ON j.assessment = a.id GROUP BY 1, 2"
    ).fetchall()
    most: dict[str, int] = {}
    for judge, _, count in counted:
        most[judge] = max(most.get(judge, 0), count)
    axes: dict[str, list[str]] = {}
    for judge, axis, count in counted:
        if count >= 0.5 * most[judge]:
            axes.setdefault(judge, []).append(axis)
    return axes


def _tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    return [name for (name,) in connection.execute(query)]


class _Reader:
    """Reads a table around what is broken."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._connection, self._table = connection, table
        described = connection.execute(f"PRAGMA table_info({table})").fetchall()
        self.columns = ", ".join(f'"{name}"' for _, name, *_ in described)
        self._key = ", ".join(name for _, name, *_, part in sorted(described, key=lambda row: row[-1]) if part)
        self._keys = [place for place, row in enumerate(described) if row[-1]]
        self.lost = 0

    def rows(self) -> Iterator[tuple[Json, ...]]:
        """Every row that can be read."""
        if self._has_rowid():
            yield from self._between(0, self._last())
        else:
            yield from self._from_both_ends()

    def _has_rowid(self) -> bool:
        query = "SELECT sql FROM sqlite_master WHERE name = ?"
        return "WITHOUT ROWID" not in self._connection.execute(query, (self._table,)).fetchone()[0]

    def _last(self) -> int:
        for source in (f"SELECT MAX(rowid) FROM {self._table}", f"SELECT COUNT(*) FROM {self._table}"):
            try:
                return int(self._connection.execute(source).fetchone()[0] or 0)
            except sqlite3.DatabaseError:
                continue
        return 1 << 24

    def _between(self, low: int, high: int) -> Iterator[tuple[Json, ...]]:
        query = f"SELECT {self.columns} FROM {self._table} NOT INDEXED WHERE rowid BETWEEN ? AND ?"
        try:
            rows = self._connection.execute(query, (low, high)).fetchall()
        except sqlite3.DatabaseError:
            if low == high:
                self.lost += 1
                return
            middle = (low + high) // 2
            yield from self._between(low, middle)
            yield from self._between(middle + 1, high)
            return
        yield from rows

    def _from_both_ends(self) -> Iterator[tuple[Json, ...]]:
        """Up to the first broken page from the front, and from the back."""
        seen: set[tuple[Json, ...]] = set()
        broken = False
        for order in ("ASC", "DESC"):
            keys = ", ".join(f"{name} {order}" for name in self._key.split(", "))
            try:
                for row in self._connection.execute(f"SELECT {self.columns} FROM {self._table} ORDER BY {keys}"):
                    key = tuple(row[place] for place in self._keys)
                    if key not in seen:
                        seen.add(key)
                        yield row
                return
            except sqlite3.DatabaseError:
                if not broken:
                    broken, self.lost = True, self.lost + 1


def as_sentence(salvaged: Salvaged) -> str:
    """For people."""
    saved = ", ".join(
        f"{salvaged.kept.get(name, 0):,} {word}" for name, word in (("edit", "edits"), ("assessment", "judgements"))
    )
    return f"{saved} saved; the damaged ledger is kept as {salvaged.aside.name}"
