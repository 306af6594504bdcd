"""Append edits and assessments, and look up which exist."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from stillme import __version__
from stillme.core.files import whole
from stillme.core.types import Failed, Json
from stillme.mitigation.features import Extraction
from stillme.runs.store.buckets import pictures_at
from stillme.runs.store.designs import Designs
from stillme.runs.store.jobs import FILE as JOBS
from stillme.runs.store.jobs import Jobs
from stillme.runs.store.opening import (
    LEDGER,
    clean_up,
    clean_up_unfinished,
    explained,
    forget_rows,
    last_rows,
    note_rows,
    open_to_read,
    require_all_rows,
    require_tables,
    writer_lock,
)
from stillme.runs.store.pictures import HERE, SUFFIXES, PicturePlace, Pictures, Places
from stillme.runs.store.rows import (
    EXTRACTION_COLUMNS,
    NONDETERMINISTIC,
    REPEATED,
    SENTINEL_COLUMNS,
    UNSAVABLE,
    AssessmentRow,
    Attempt,
    Attempts,
    ControlPairRow,
    EditRow,
    FeatureRow,
    Remembered,
    StoredControlPair,
    StoredEdit,
    Table,
    as_json,
    extraction_in_words,
    now,
    rating_values,
    scores_in_words,
    stored_control_pair,
    stored_extraction,
)
from stillme.runs.store.schema import create_tables, require_version
from stillme.runs.store.summaries import Summaries

IMAGES = "images"
"""The run's own folder of pictures."""
_KEYS_PER_QUERY = 500
_BEFORE_ITS_ROW = 60.0
"""Seconds that a picture may wait for its row; what may cost money is saved within one."""
_UNSAVABLE = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    TypeError,
    ValueError,
    OverflowError,
)
"""What a row's own content can cause; a full or broken disk is none of these."""


Row = EditRow | AssessmentRow | ControlPairRow | FeatureRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAudit:
    """A configuration that wrote rows into this run."""

    hash: str
    resolved: Mapping[str, Json]
    at: str


class Store(Summaries):
    """One run folder. Open it with `Store.writing` or `Store.reading`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.folder = folder
        self.places = Places(connection)
        self.designs = Designs(connection)
        self.attempts = Attempts(connection)
        self.jobs = Jobs(folder / JOBS)
        self._remembered = Remembered(connection)

    @cached_property
    def pictures(self) -> Pictures:
        """The run's pictures, wherever the ledger says they are."""
        return pictures_at(PicturePlace(self.folder / IMAGES, self.places.addresses()))

    def keep_pictures_at(self, address: str) -> None:
        """Keep new pictures there from now on, if that works; those of before stay where they are."""
        addresses = (address, *(other for other in self.places.addresses() if other != address))
        pictures = pictures_at(PicturePlace(self.folder / IMAGES, () if addresses == (HERE,) else addresses))
        pictures.prepare()
        self.places.move_to(address)
        self.pictures = pictures

    def read_pictures_at(self, addresses: Sequence[str], *, keep_at_last: bool) -> None:
        """Look for pictures there, too; with `keep_at_last`, new ones go to the last of these."""
        for address in addresses if keep_at_last else ():
            self.places.move_to(address)
        self.places.also_read(addresses)
        self.__dict__.pop("pictures", None)

    @classmethod
    @contextmanager
    def writing(cls, folder: Path, *, wait: float = 0.0) -> Generator[Store]:
        """Open for appending, as the only writer; creates the ledger if there is none."""
        folder.mkdir(parents=True, exist_ok=True)
        ledger = folder / LEDGER
        with writer_lock(folder, wait=wait):
            clean_up(folder)
            clean_up_unfinished(folder)
            if not ledger.exists():
                _create(ledger)
            connection = sqlite3.connect(ledger, isolation_level=None)
            try:
                with explained(ledger):
                    _prepare(connection, ledger)
                    require_all_rows(connection, ledger)
                    yield cls(folder, connection)
            finally:
                connection.close()
                clean_up_unfinished(folder)
            forget_rows(folder)

    @classmethod
    @contextmanager
    def reading(cls, folder: Path) -> Generator[Store]:
        """Open for reading; never blocked by a writer, and never blocking one."""
        store = cls.opened(folder)
        try:
            yield store
        finally:
            store.close()

    @classmethod
    def opened(cls, folder: Path) -> Store:
        """Open for reading, for as long as the caller wants. Also works on media that cannot be written to."""
        return cls(folder, open_to_read(folder / LEDGER))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def state(self) -> dict[str, Json]:
        """What changes with every row, and with another ledger in this one's place."""
        stat = (self.folder / LEDGER).stat()
        (design,) = self._connection.execute("SELECT COALESCE(MAX(id), 0) FROM design").fetchone()
        rows = last_rows(self._connection)
        return {
            "file": [stat.st_ino, stat.st_size, stat.st_mtime_ns],
            "rows": rows | {"design": design},
            "last": self._named(rows),
        }

    def continues(self, state: Mapping[str, Json]) -> bool:
        """Whether this is the ledger that had that state, and rows were only added: none is ever changed."""
        same_file = (self.folder / LEDGER).stat().st_ino == state["file"][0]
        return same_file and self._named(state["rows"]) == state["last"]

    def _named(self, rows: Mapping[str, int]) -> list[list[str] | None]:
        """Key and moment of the rows with these numbers, by table; a ledger in this one's place has others."""
        found = (
            self._connection.execute(f"SELECT key, at FROM {table} WHERE id = ?", (rows[table],)).fetchone()
            for table in ("edit", "assessment", "feature", "control_pair")
        )
        return [list(row) if row else None for row in found]

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether a run was ever started in `folder`."""
        return (folder / LEDGER).is_file()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Everything added inside is saved, or nothing."""
        with explained(self.folder / LEDGER):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
                note_rows(self._connection, self.folder)
            except BaseException:
                self._remembered.forget()
                if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Reads inside see one state of the ledger, whatever is written meanwhile."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    # -- configurations -------------------------------------------------------------------------------------------

    def record_audit(self, hash_: str, resolved: Mapping[str, Json]) -> None:
        """Record that the following rows belong to this configuration."""
        latest = self.latest_audit()
        if latest is None or latest.hash != hash_:
            self._connection.execute(
                "INSERT INTO audit VALUES (?, ?, ?, ?)", (hash_, as_json(resolved), __version__, now())
            )

    def latest_audit(self) -> StoredAudit | None:
        """The configuration of the last run."""
        row = self._connection.execute("SELECT hash, resolved, at FROM audit ORDER BY rowid DESC LIMIT 1").fetchone()
        return StoredAudit(hash=row[0], resolved=json.loads(row[1]), at=row[2]) if row else None

    def add_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Append tries that failed, in one transaction: what they cost was spent."""
        with self.transaction():
            self.attempts.add(attempts)

    # -- rows -----------------------------------------------------------------------------------------------------

    def add(self, rows: Sequence[Row]) -> None:
        """Append in one transaction: after a crash all of them are there or none.

        Every row that can be saved is saved. One that the ledger cannot hold becomes a failure that says why. Work that
        was done twice is kept once: the second is noted with its cost among the attempts, as nondeterminism where it
        says something else.
        """
        keys: dict[Table, list[str]] = {}
        for row in rows:
            keys.setdefault(row.table, []).append(row.key)
        with self.transaction():
            standing = {table: self.finished(table, of_table) for table, of_table in keys.items()}
            for row in rows:
                if row.final and row.key in standing[row.table]:
                    if self._supersedes(row):
                        self._insert(row)
                    else:
                        self.attempts.add([self._repeated(row)])
                    continue
                try:
                    self._insert(row)
                except _UNSAVABLE as error:
                    self._add_unsavable(row, error)
                else:
                    if row.final:
                        standing[row.table].add(row.key)

    def finished(self, table: Table, keys: Sequence[str]) -> set[str]:
        """Which of these need no more work."""
        query = f"SELECT key FROM {table} WHERE final = 1 AND key IN ({{marks}})"
        return {key for (key,) in self._by_keys(query, keys)}

    def failed(self, table: Table, keys: Sequence[str]) -> set[str]:
        """Which of these have failed, whether or not they succeeded later."""
        query = f"SELECT key FROM {table} WHERE final = 0 AND key IN ({{marks}})"
        return {key for (key,) in self._by_keys(query, keys)}

    def edits(self, keys: Sequence[str]) -> dict[str, StoredEdit]:
        """The latest outcome of each of these requests; those never tried are absent."""
        edits: dict[str, StoredEdit] = {}
        # Failures first, so that a later final row for the same key replaces them.
        for final in (0, 1):
            query = (
                "SELECT key, id, outcome, image, message, truth, json_extract(effective, '$.status') FROM edit "
                f"WHERE final = {final} AND key IN ({{marks}}) ORDER BY id"
            )
            for key, number, outcome, image, message, truth, status in self._by_keys(query, keys):
                edits[key] = StoredEdit(
                    id=number,
                    outcome=outcome,
                    image=image,
                    message=message,
                    truth=json.loads(truth) if truth else None,
                    status=status,
                )
        return edits

    def edits_without_picture(self, keys: Sequence[str]) -> set[str]:
        """Which of these requests have an edit whose picture is gone, also after a look at copies on this machine."""
        images = {key: edit.image for key, edit in self.edits(keys).items() if edit.image}
        gone = self.pictures.gone(images.values())
        gone -= self.pictures.put_back(gone)
        return {key for key, image in images.items() if image in gone}

    def pictures_without_row(self, portraits: Collection[str]) -> int:
        """Pictures in the run folder whose rows the ledger has lost: newer than its last row, or older than itself.

        What a killed run had saved before its row came a moment after the last row. A place elsewhere is shared.
        """
        configurations, written = list(self.configurations()), self.written()
        if self.pictures.place.is_elsewhere or not configurations:
            return 0
        named = {*portraits, *self.pictures_named()}
        began = _seconds(configurations[0]["at"])
        last = _seconds(written[1]) + _BEFORE_ITS_ROW if written else math.inf
        pictures = (path for path in self.pictures.folder.glob("??/*") if path.suffix in SUFFIXES)  # none set aside
        files = (path for path in pictures if path.stem not in named)
        return sum(not began <= path.stat().st_mtime <= last for path in files)

    def judgements(self, keys: Sequence[str]) -> Iterator[tuple[str, str, str, float | None]]:
        """`(assessment key, axis, outcome, score)` of the latest assessment under each key."""
        latest: dict[str, int] = {}
        for final in (0, 1):
            query = f"SELECT key, id FROM assessment WHERE final = {final} AND key IN ({{marks}}) ORDER BY id"
            latest.update(self._by_keys(query, keys))
        query = (
            "SELECT a.key, j.axis, j.outcome, j.score FROM assessment a JOIN judgement j ON j.assessment = a.id "
            "WHERE a.id IN ({marks}) ORDER BY a.id"
        )
        yield from self._by_keys(query, list(latest.values()))

    def control_pairs(self, judge: str) -> list[StoredControlPair]:
        """What a judge's specification answered to pairs of known truth, in the order of saving."""
        query = f"SELECT {SENTINEL_COLUMNS} FROM control_pair WHERE judge = ? AND final = 1 ORDER BY id"
        return [stored_control_pair(row) for row in self._connection.execute(query, (judge,))]

    def features(self, keys: Sequence[str]) -> dict[str, Extraction]:
        """The latest outcome of each extraction; those never tried are absent."""
        extractions: dict[str, Extraction] = {}
        # Failures first, so that a later final row for the same key replaces them.
        for final in (0, 1):
            chosen = f"final = {final} AND key IN ({{marks}}) ORDER BY id"
            query = f"SELECT key, {EXTRACTION_COLUMNS} FROM feature WHERE {chosen}"
            extractions |= {key: stored_extraction(*columns) for key, *columns in self._by_keys(query, keys)}
        return extractions

    def execute(self, sql: str, values: Mapping[str, Json] | Sequence[Json] = ()) -> None:
        """Add rows with SQL; for rooms of the store only."""
        self._connection.execute(sql, values)

    def query(self, sql: str, values: Sequence[Json] = ()) -> sqlite3.Cursor:
        """Read with SQL."""
        return self._connection.execute(sql, values)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _insert(self, row: Row) -> None:
        work = {"attempts": row.attempts, "seconds": row.seconds, "cost": row.cost, "at": now()}
        values = {"key": row.key, "final": int(row.final), **row.columns(self._remembered), **work}
        statement = f"INSERT INTO {row.table} ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)})"
        number = self._connection.execute(statement, values).lastrowid
        if isinstance(row, AssessmentRow):
            ratings = row.assessment.ratings.items()
            self._connection.executemany(
                "INSERT INTO judgement VALUES (?, ?, ?, ?, ?)",
                [(number, axis, *rating_values(rating)) for axis, rating in ratings],
            )

    def _add_unsavable(self, row: Row, error: Exception) -> None:
        reason = f"the result cannot be saved ({type(error).__name__}: {error})".encode(errors="replace").decode()
        cost = 0.0
        try:
            self._insert(row.as_failed(Failed(error=reason, retryable=False)))
        except _UNSAVABLE:
            cost = row.cost  # not even the request can be written down: only the try remains
        attempt = Attempt(stage=row.stage, key=row.key, number=row.attempts, error=reason, retryable=False, cost=cost)
        self.attempts.add([replace(attempt, status=UNSAVABLE)])

    def _supersedes(self, row: Row) -> bool:
        """Whether a second result replaces the first: an edit whose picture is gone was made again, differently."""
        if not isinstance(row, EditRow):
            return False
        stored = self.edits([row.key])[row.key]
        return bool(stored.image) and stored.image != row.image and bool(self.pictures.gone([stored.image or ""]))

    def _repeated(self, row: Row) -> Attempt:
        before, again = self._summary(row.table, row.key), row.summary()
        if before == again:
            status, error = REPEATED, "done twice, with the same result"
        else:
            status, error = NONDETERMINISTIC, f"done twice, with different results: kept {before}, then came {again}"
        return Attempt(
            stage=row.stage,
            key=row.key,
            number=row.attempts,
            error=error,
            retryable=False,
            status=status,
            cost=row.cost,
        )

    def _summary(self, table: Table, key: str) -> str:
        """What a finished row says, in the words of a row's `summary`."""
        if table == "edit":
            stored = self.edits([key])[key]
            return stored.image or f"{stored.outcome} {stored.message or ''}".strip()
        if table == "assessment":
            said = [(axis, outcome, score) for _, axis, outcome, score in self.judgements([key])]
            return scores_in_words(said)
        if table == "feature":
            return extraction_in_words(self.features([key])[key])
        query = "SELECT answers FROM control_pair WHERE key = ? AND final = 1"
        return str(self._connection.execute(query, (key,)).fetchone()[0])

    def _by_keys(self, query: str, keys: Sequence[str | int]) -> Iterator[tuple[Json, ...]]:
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            chunk = keys[start : start + _KEYS_PER_QUERY]
            yield from self._connection.execute(query.format(marks=",".join("?" * len(chunk))), chunk)


def _create(ledger: Path) -> None:
    """Make a ledger that has all its tables from the moment when others can see it."""
    with explained(ledger), whole(ledger) as draft, closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # a killed run leaves at most the draft
        create_tables(connection)


def _prepare(connection: sqlite3.Connection, ledger: Path) -> None:
    """Make a ledger ready for rows."""
    require_version(connection, str(ledger))
    require_tables(connection, ledger)
    connection.execute("PRAGMA journal_mode = WAL")
    # Rows are paid for: they must survive a power cut, not only a crash of ours.
    connection.execute("PRAGMA synchronous = FULL")


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
