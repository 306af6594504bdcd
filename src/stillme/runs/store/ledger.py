"""Append edits and assessments, and look up which exist."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from stillme import __version__
from stillme.core.files import whole
from stillme.core.types import Assessment, Failed, Json
from stillme.mitigation.features import Extraction
from stillme.runs.store import assessments as assessment_rows
from stillme.runs.store import edits as edit_rows
from stillme.runs.store import features as feature_rows
from stillme.runs.store import sentinels as sentinel_rows
from stillme.runs.store.assessments import AssessmentRow
from stillme.runs.store.attempts import NONDETERMINISTIC, REPEATED, UNSAVABLE, Attempt, Attempts, Stage
from stillme.runs.store.buckets import pictures_at
from stillme.runs.store.designs import Designs
from stillme.runs.store.edits import EditRow, StoredEdit
from stillme.runs.store.features import FeatureRow
from stillme.runs.store.jobs import FILE as JOBS
from stillme.runs.store.jobs import Jobs
from stillme.runs.store.leftovers import clean_up, clean_up_unfinished
from stillme.runs.store.opening import LEDGER, explained, open_to_read, require_tables
from stillme.runs.store.pictures import Pictures
from stillme.runs.store.places import HERE, PicturePlace, Places
from stillme.runs.store.remembered import Remembered, as_json
from stillme.runs.store.saved_rows import forget_rows, last_rows, note_rows, require_all_rows
from stillme.runs.store.schema import create_tables, require_version
from stillme.runs.store.sentinels import SentinelRow, StoredSentinel
from stillme.runs.store.summaries import Summaries, Table
from stillme.runs.store.writer_lock import writer_lock

IMAGES = "images"
"""The run's own folder of pictures."""
_KEYS_PER_QUERY = 500
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


_Row = TypeVar("_Row", EditRow, AssessmentRow, SentinelRow, FeatureRow)


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
        return {
            "file": [stat.st_ino, stat.st_size, stat.st_mtime_ns],
            "rows": last_rows(self._connection) | {"design": design},
        }

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
                "INSERT INTO audit VALUES (?, ?, ?, ?)", (hash_, as_json(resolved), __version__, _now())
            )

    def latest_audit(self) -> StoredAudit | None:
        """The configuration of the last run."""
        row = self._connection.execute("SELECT hash, resolved, at FROM audit ORDER BY rowid DESC LIMIT 1").fetchone()
        return StoredAudit(hash=row[0], resolved=json.loads(row[1]), at=row[2]) if row else None

    def add_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Append tries that failed, in one transaction: what they cost was spent."""
        with self.transaction():
            self.attempts.add(attempts)

    # -- edits ----------------------------------------------------------------------------------------------------

    def add_edits(self, rows: Sequence[EditRow]) -> None:
        """Append in one transaction: after a crash all of them are there or none. See `_append`."""
        now = _now()

        def insert(row: EditRow) -> None:
            self._connection.execute(edit_rows.INSERT, edit_rows.values_of(row, self._remembered, now))

        def as_failed(row: EditRow, failed: Failed) -> EditRow:
            return replace(row, outcome=failed, image=None)

        self._append("edit", "edit", rows, insert, as_failed)

    def finished_edits(self, keys: Sequence[str]) -> set[str]:
        """Which of these requests need no more work."""
        return self._finished("edit", keys)

    def failed_edits(self, keys: Sequence[str]) -> set[str]:
        """Which of these requests have failed, whether or not they succeeded later."""
        return self._failed("edit", keys)

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

    # -- judgements -----------------------------------------------------------------------------------------------

    def add_assessments(self, rows: Sequence[AssessmentRow]) -> None:
        """Append in one transaction, with a judgement row for every axis. See `_append`."""
        now = _now()

        def insert(row: AssessmentRow) -> None:
            values = assessment_rows.values_of(row, self._remembered.spec(row.judge), now)
            number = self._connection.execute(assessment_rows.INSERT, values).lastrowid
            ratings = row.assessment.ratings.items()
            self._connection.executemany(
                assessment_rows.INSERT_JUDGEMENT,
                [(number, axis, *assessment_rows.rating_values(rating)) for axis, rating in ratings],
            )

        def as_failed(row: AssessmentRow, failed: Failed) -> AssessmentRow:
            return replace(row, assessment=Assessment(ratings=dict.fromkeys(row.assessment.ratings, failed)))

        self._append("judge", "assessment", rows, insert, as_failed)

    def finished_assessments(self, keys: Sequence[str]) -> set[str]:
        """Which of these assessments need no more work."""
        return self._finished("assessment", keys)

    def failed_assessments(self, keys: Sequence[str]) -> set[str]:
        """Which of these assessments have failed, whether or not they succeeded later."""
        return self._failed("assessment", keys)

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

    # -- pairs of known truth -------------------------------------------------------------------------------------

    def add_sentinels(self, rows: Sequence[SentinelRow]) -> None:
        """Append in one transaction. See `_append`."""
        now = _now()

        def insert(row: SentinelRow) -> None:
            values = sentinel_rows.values_of(row, self._remembered.spec(row.judge), now)
            self._connection.execute(sentinel_rows.INSERT, values)

        def as_failed(row: SentinelRow, failed: Failed) -> SentinelRow:
            return replace(row, assessment=Assessment(ratings=dict.fromkeys(row.assessment.ratings, failed)))

        self._append("judge", "sentinel", rows, insert, as_failed)

    def finished_sentinels(self, keys: Sequence[str]) -> set[str]:
        """Which of these need no more work."""
        return self._finished("sentinel", keys)

    def failed_sentinels(self, keys: Sequence[str]) -> set[str]:
        """Which of these have failed, whether or not they succeeded later."""
        return self._failed("sentinel", keys)

    def sentinels(self, judge: str) -> list[StoredSentinel]:
        """What a judge's specification answered to pairs of known truth, in the order of saving."""
        query = f"SELECT {sentinel_rows.READ} FROM sentinel WHERE judge = ? AND final = 1 ORDER BY id"
        return [sentinel_rows.stored(*columns) for columns in self._connection.execute(query, (judge,))]

    # -- features -------------------------------------------------------------------------------------------------

    def add_features(self, rows: Sequence[FeatureRow]) -> None:
        """Append in one transaction. See `_append`."""
        now = _now()
        columns = feature_rows.COLUMNS
        statement = f"INSERT INTO feature ({columns}) VALUES ({','.join('?' * len(columns.split(',')))})"

        def insert(row: FeatureRow) -> None:
            self._connection.execute(statement, feature_rows.values_of(row, self._remembered.spec(row.extractor), now))

        def as_failed(row: FeatureRow, failed: Failed) -> FeatureRow:
            return replace(row, extraction=failed)

        self._append("describe", "feature", rows, insert, as_failed)

    def finished_features(self, keys: Sequence[str]) -> set[str]:
        """Which of these extractions need no more work."""
        return self._finished("feature", keys)

    def failed_features(self, keys: Sequence[str]) -> set[str]:
        """Which of these extractions have failed, whether or not they succeeded later."""
        return self._failed("feature", keys)

    def features(self, keys: Sequence[str]) -> dict[str, Extraction]:
        """The latest outcome of each extraction; those never tried are absent."""
        extractions: dict[str, Extraction] = {}
        # Failures first, so that a later final row for the same key replaces them.
        for final in (0, 1):
            query = f"SELECT {feature_rows.READ} FROM feature WHERE final = {final} AND key IN ({{marks}}) ORDER BY id"
            extractions |= feature_rows.extractions_of(self._by_keys(query, keys))
        return extractions

    def execute(self, sql: str, values: Mapping[str, Json] | Sequence[Json] = ()) -> None:
        """Add rows with SQL; for rooms of the store only."""
        self._connection.execute(sql, values)

    def query(self, sql: str, values: Sequence[Json] = ()) -> sqlite3.Cursor:
        """Read with SQL."""
        return self._connection.execute(sql, values)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _append(
        self,
        stage: Stage,
        table: Table,
        rows: Sequence[_Row],
        insert: Callable[[_Row], None],
        as_failed: Callable[[_Row, Failed], _Row],
    ) -> None:
        """Save every row that can be saved, each for itself.

        A row that the ledger cannot hold becomes a failure that says why. Work that was done twice is kept once: the
        second is noted with its cost among the attempts, as nondeterminism where it says something else.
        """
        with self.transaction():
            standing = self._finished(table, [row.key for row in rows])
            for row in rows:
                if row.final and row.key in standing:
                    if self._supersedes(row):
                        insert(row)
                    else:
                        self.attempts.add([self._repeated(stage, table, row)])
                    continue
                try:
                    insert(row)
                except _UNSAVABLE as error:
                    self._add_unsavable(stage, row, error, insert, as_failed)
                else:
                    if row.final:
                        standing.add(row.key)

    def _add_unsavable(
        self,
        stage: Stage,
        row: _Row,
        error: Exception,
        insert: Callable[[_Row], None],
        as_failed: Callable[[_Row, Failed], _Row],
    ) -> None:
        reason = f"the result cannot be saved ({type(error).__name__}: {error})".encode(errors="replace").decode()
        cost = 0.0
        try:
            insert(as_failed(row, Failed(error=reason, retryable=False)))
        except _UNSAVABLE:
            cost = row.cost  # not even the request can be written down: only the try remains
        attempt = Attempt(stage=stage, key=row.key, number=row.attempts, error=reason, retryable=False, cost=cost)
        self.attempts.add([replace(attempt, status=UNSAVABLE)])

    def _supersedes(self, row: _Row) -> bool:
        """Whether a second result replaces the first: an edit whose picture is gone was made again, differently."""
        if not isinstance(row, EditRow):
            return False
        stored = self.edits([row.key])[row.key]
        return bool(stored.image) and stored.image != row.image and bool(self.pictures.gone([stored.image or ""]))

    def _repeated(self, stage: Stage, table: Table, row: _Row) -> Attempt:
        before, again = self._said(table, row.key), row.said
        if before == again:
            status, error = REPEATED, "done twice, with the same result"
        else:
            status, error = NONDETERMINISTIC, f"done twice, with different results: kept {before}, then came {again}"
        return Attempt(
            stage=stage, key=row.key, number=row.attempts, error=error, retryable=False, status=status, cost=row.cost
        )

    def _said(self, table: Table, key: str) -> str:
        """What a finished row says, in the words of `said`."""
        if table == "edit":
            stored = self.edits([key])[key]
            return stored.image or f"{stored.outcome} {stored.message or ''}".strip()
        if table == "assessment":
            said = [(axis, outcome, score) for _, axis, outcome, score in self.judgements([key])]
            return assessment_rows.in_words(said)
        if table == "feature":
            return feature_rows.said(self.features([key])[key])
        query = "SELECT answers FROM sentinel WHERE key = ? AND final = 1"
        return str(self._connection.execute(query, (key,)).fetchone()[0])

    def _finished(self, table: Table, keys: Sequence[str]) -> set[str]:
        query = f"SELECT key FROM {table} WHERE final = 1 AND key IN ({{marks}})"
        return {key for (key,) in self._by_keys(query, keys)}

    def _failed(self, table: Table, keys: Sequence[str]) -> set[str]:
        query = f"SELECT key FROM {table} WHERE final = 0 AND key IN ({{marks}})"
        return {key for (key,) in self._by_keys(query, keys)}

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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
