"""Save what is whole from a damaged ledger: rows are read one by one where a page cannot be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stillme.errors import StoreDamaged
from stillme.store.opening import LEDGER
from stillme.store.saved_rows import forget_rows
from stillme.store.schema import MIGRATIONS, migrate, version_of
from stillme.store.writer_lock import writer_lock
from stillme.types import Json

_DRAFT = f".{LEDGER}.saved"
_SHOWN = 5
_WORDS = 60
"""Characters of what SQLite says of a row: it may repeat all of it."""
_ROW_BYTES = 32
"""No row of a numbered table is shorter."""
_PAGE_COUNT = slice(28, 32)
_PAGE_SIZE = slice(16, 18)
"""Where SQLite's file format has them."""
_JSON = {
    "spec": ("parameters",),
    "portrait": ("attributes",),
    "edit": ("portraits", "effective", "truth"),
    "assessment": ("effective",),
    "feature": ("dimensions", "effective"),
    "sentinel": ("answers", "chart", "effective"),
    "design": ("document",),
    "audit": ("resolved",),
}
"""Columns that hold JSON: a damaged page may still be read, as something else."""
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
    "DELETE FROM plan WHERE requests != (SELECT COUNT(*) FROM request r WHERE r.plan = plan.id)",
    "DELETE FROM design WHERE plan NOT IN (SELECT id FROM plan)",
    # The next list may get the number of one that is lost.
    "DELETE FROM request WHERE plan NOT IN (SELECT id FROM plan)",
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
    """What is wrong with a ledger's pages, and with rows that cannot be read; empty if nothing."""
    with closing(sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            rows = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
            return list(_unreadable(connection)) if rows == ["ok"] else rows
        except sqlite3.DatabaseError as error:
            return [str(error)]


def _unreadable(connection: sqlite3.Connection) -> Iterator[str]:
    """Rows on whole pages whose content is none that was written."""
    for table in _tables(connection):
        try:
            for _ in connection.execute(f"SELECT * FROM {table}"):
                pass
        except sqlite3.OperationalError as error:
            yield f"{table}: {str(error)[:_WORDS]}"
        if table in _JSON:
            (count,) = connection.execute(f"SELECT COUNT(*) FROM {table} WHERE {_broken_json(table)}").fetchone()
            if count:
                yield f"{table}: {count:,} rows hold broken JSON"


def _broken_json(table: str) -> str:
    return " OR ".join(f"({column} IS NOT NULL AND NOT json_valid({column}))" for column in _JSON[table])


def salvage(folder: Path) -> Salvaged:
    """Write a new ledger with every row that can be read and is whole; the damaged one is kept beside it."""
    ledger, draft = folder / LEDGER, folder / _DRAFT
    with writer_lock(folder, wait=0.0):
        draft.unlink(missing_ok=True)
        with _as_long_as_it_was(ledger) as source, closing(sqlite3.connect(source, isolation_level=None)) as old:
            try:
                version = version_of(old)
                names = _tables(old)
            except sqlite3.DatabaseError as error:
                raise StoreDamaged(
                    f"{ledger} cannot be saved ({error}): the page that lists its tables is lost. Use a copy."
                ) from None
            with closing(sqlite3.connect(draft, isolation_level=None)) as new:
                migrate(new, MIGRATIONS[:version])
                kept, lost = _copy(old, new, names, _bytes(ledger) // _ROW_BYTES)
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
        forget_rows(folder)
    return Salvaged(kept=kept, lost=lost, aside=aside)


@contextmanager
def _as_long_as_it_was(ledger: Path) -> Generator[Path]:
    """The ledger, or a copy with empty pages for those that were cut off: SQLite reads nothing of a shorter file."""
    with ledger.open("rb") as stream:
        header = stream.read(100)
    pages, size = (int.from_bytes(header[place], "big") for place in (_PAGE_COUNT, _PAGE_SIZE))
    length = pages * (65536 if size == 1 else size)
    # With a log the header may be older than the pages that count.
    if length <= _bytes(ledger) or _bytes(ledger) > ledger.stat().st_size:
        yield ledger
        return
    with tempfile.TemporaryDirectory(dir=ledger.parent, prefix=".stillme-repair-") as scratch:
        padded = Path(scratch) / ledger.name
        shutil.copyfile(ledger, padded)
        os.truncate(padded, length)
        yield padded


def _bytes(ledger: Path) -> int:
    """Of the ledger and its log."""
    log = ledger.with_name(f"{ledger.name}-wal")
    return ledger.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, names: Sequence[str], most: int
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
        reader = _Reader(old, table, most)
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
    existing = set(_tables(new))
    for table in existing & set(_JSON):
        new.execute(f"DELETE FROM {table} WHERE {_broken_json(table)}")
    for judge, axes in _axes(new).items():
        marks = ",".join("?" * len(axes))
        new.execute(
            "DELETE FROM assessment WHERE judge = ? AND ? > "
            f"(SELECT COUNT(*) FROM judgement j WHERE j.assessment = assessment.id AND j.axis IN ({marks}))",
            (judge, len(axes), *axes),
        )
    new.execute("DELETE FROM assessment WHERE id NOT IN (SELECT assessment FROM judgement)")
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

    def __init__(self, connection: sqlite3.Connection, table: str, most: int) -> None:
        self._connection, self._table, self._most = connection, table, most
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
        return self._most

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
