"""Rows that go from one ledger to another.

Runs of one design, such as shards, are merged: append-only, by key, and with every contradiction named. Finished rows
of another run are copied under their own keys. A ledger that leaves the house is copied without raters' ids.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stillme.core.errors import StillmeError, StoreDamaged
from stillme.core.types import Json
from stillme.runs.store.exported import EDITS, JUDGEMENTS, Table, without_people
from stillme.runs.store.ledger import Store
from stillme.runs.store.opening import LEDGER
from stillme.runs.store.rows import NONDETERMINISTIC, as_json

_CHUNK = 500
_REFERENCES = ("spec", "portrait", "prompt", "instruction")
_WORK = ("feature", "edit", "assessment", "control_pair", "attempt")
_FILES = ("audit.toml", "resolved.toml")
_STAGE: Mapping[str, str] = {"feature": "describe", "edit": "edit", "assessment": "judge", "control_pair": "judge"}
_WHAT: Mapping[str, str] = {
    "feature": "outcome || ' ' || COALESCE(sentence, message, '')",
    "edit": "outcome || ' ' || COALESCE(image, message, '')",
    "assessment": (
        "(SELECT group_concat(j.axis || ' ' || COALESCE(j.score, j.outcome), ', ') FROM "
        "(SELECT * FROM judgement x WHERE x.assessment = t.id ORDER BY x.axis) j)"
    ),
    "control_pair": "answers",
}
"""What a row says, to be compared."""


@dataclass(slots=True)
class Merged:
    """What a merge did."""

    added: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    """Rows by table."""
    conflicts: list[str] = field(default_factory=lambda: list[str]())
    """The same work with another result, in a sentence each; the first run counts."""
    lost_pictures: list[str] = field(default_factory=lambda: list[str]())
    """Pictures that no run has as they were."""


def merge(folders: Sequence[Path], into: Path) -> Merged:
    """Add to `into` every row and picture that these runs have and it lacks. They must ask the same."""
    merged = Merged()
    with Store.writing(into) as target:
        for folder in folders:
            if folder.resolve() == into.resolve():
                raise StillmeError(f"{folder} cannot be merged into itself. Name another folder after --into.")
            with Store.reading(folder) as source, source.snapshot():
                _require_whole(source)
                _merge_places(target, source)
                with target.transaction():
                    _merge_design(target, source)
                    _merge_rows(target, source, merged)
                _merge_pictures(target, source, merged)
            _merge_files(into, folder)
        merged.lost_pictures = sorted(target.pictures.lacking(merged.lost_pictures))
    return merged


def _require_whole(source: Store) -> None:
    if source.designs.latest() is None:
        raise StillmeError(f"{source.folder} has no recorded design. Run it once with this stillme, then merge.")


def _merge_design(target: Store, source: Store) -> None:
    theirs, ours = source.designs.latest(), target.designs.latest()
    assert theirs is not None
    if ours is None:
        configured = source.latest_audit()
        if configured:
            target.record_audit(configured.hash, configured.resolved)
        plan = target.designs.add_plan(source.designs.requests(theirs.plan))
        target.designs.add(theirs.document["hash"], theirs.document, plan)
        return
    same = source.designs.hash_of(theirs.plan) == target.designs.hash_of(ours.plan)
    if theirs.document["hash"] != ours.document["hash"] or not same:
        raise StillmeError(
            f"{source.folder} asks something else than {target.folder}: another audit.toml, plugin version or set of "
            "portraits. Only runs of the same audit can be merged; `stillme compare` sets others side by side."
        )


def _merge_rows(target: Store, source: Store, merged: Merged) -> None:
    for table in _REFERENCES:
        for row in rows(source, f"SELECT * FROM {table}"):
            insert(target, table, row)
    for table in _WORK:
        for row in rows(source, f"SELECT * FROM {table} ORDER BY id"):
            number = row.pop("id")
            if _is_there(target, table, row):
                continue
            if row.get("final") and (before := _finished(target, table, row["key"])) is not None:
                again = _said(source, table, row["key"])
                if before != again:
                    _add_conflict(target, source, table, row, f"kept {before}, then came {again}", merged)
                    continue
                # The same result, made twice: kept once, but both were paid.
                _add_attempt(target, table, row, "repeated", "done twice, with the same result")
                continue
            place = insert(target, table, row)
            merged.added[table] = merged.added.get(table, 0) + 1
            if table == "assessment":
                for axis in rows(source, "SELECT * FROM judgement WHERE assessment = ?", [number]):
                    insert(target, "judgement", axis | {"assessment": place})


def _add_conflict(target: Store, source: Store, table: str, row: Mapping[str, Json], how: str, merged: Merged) -> None:
    merged.conflicts.append(f"{_STAGE[table]} {row['key']} of {source.folder}: {how}")
    _add_attempt(target, table, row, NONDETERMINISTIC, f"done twice, with different results: {how}")


def _add_attempt(target: Store, table: str, row: Mapping[str, Json], status: str, error: str) -> None:
    attempt = {
        "stage": _STAGE[table],
        "key": row["key"],
        "number": row["attempts"],
        "error": error,
        "retryable": 0,
        "status": status,
        "seconds": row["seconds"],
        "cost": row["cost"],
        "at": row["at"],
    }
    if not _is_there(target, "attempt", attempt):
        insert(target, "attempt", attempt)


def _is_there(target: Store, table: str, row: Mapping[str, Json]) -> bool:
    """Whether exactly this row was merged before: the same command twice adds nothing."""
    # Spelled out, because the indexes are of finished and of failed rows.
    final = f" AND final = {int(row['final'])}" if "final" in row else ""
    query = f"SELECT {', '.join(row)} FROM {table} WHERE key = ?{final}"
    return tuple(row.values()) in target.query(query, [row["key"]]).fetchall()


def _finished(store: Store, table: str, key: str) -> str | None:
    query = f"SELECT 1 FROM {table} WHERE key = ? AND final = 1"
    return _said(store, table, key) if store.query(query, [key]).fetchone() else None


def _said(store: Store, table: str, key: str) -> str:
    query = f"SELECT {_WHAT[table]} FROM {table} t WHERE key = ? AND final = 1 ORDER BY id DESC LIMIT 1"
    return str(store.query(query, [key]).fetchone()[0])


def _merge_places(target: Store, source: Store) -> None:
    """Pictures in an object store stay there. New ones go where those of the first run went."""
    oldest_first = source.places.addresses()[::-1]
    target.read_pictures_at(oldest_first, keep_at_last=target.designs.latest() is None)


def _merge_pictures(target: Store, source: Store, merged: Merged) -> None:
    merged.lost_pictures += target.pictures.take_from(source.pictures, source.pictures_named())


def _merge_files(into: Path, folder: Path) -> None:
    """What running on in the merged folder needs."""
    for name in _FILES:
        if (folder / name).is_file() and not (into / name).exists():
            shutil.copyfile(folder / name, into / name)
    jobs = folder / "jobs.jsonl"
    if jobs.is_file():
        known = (into / jobs.name).read_text("utf-8").splitlines() if (into / jobs.name).is_file() else []
        fresh = [line for line in jobs.read_text("utf-8").splitlines() if line.strip() and line not in set(known)]
        with (into / jobs.name).open("a", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in fresh)


def rows(store: Store, query: str, values: Sequence[Json] = ()) -> Iterator[dict[str, Json]]:
    """The rows of a query, by column."""
    cursor = store.query(query, values)
    names = [column[0] for column in cursor.description]
    while chunk := cursor.fetchmany(_CHUNK):
        yield from (dict(zip(names, row, strict=True)) for row in chunk)


def insert(store: Store, table: str, row: Mapping[str, Json]) -> int:
    """Add a row unless it is there; returns the number of the last one."""
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    store.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", row)
    return int(store.query("SELECT last_insert_rowid()").fetchone()[0])


def as_text(merged: Merged, into: Path) -> str:
    """For people."""
    words = {"edit": "edits", "assessment": "judgements", "feature": "descriptions", "control_pair": "known answers"}
    added = ", ".join(f"{merged.added[name]:,} {word}" for name, word in words.items() if merged.added.get(name))
    lines = [f"{into}: {added or 'nothing new'} added."]
    lines += [f"  conflict: {sentence}" for sentence in merged.conflicts[:10]]
    if len(merged.conflicts) > 10:
        lines.append(f"  and {len(merged.conflicts) - 10:,} more conflicts; `stillme export` lists all attempts")
    if merged.lost_pictures:
        lines.append(f"  {len(merged.lost_pictures):,} pictures are lost, such as {merged.lost_pictures[0]}")
    return "\n".join(lines)


Copied = Literal["edit", "assessment", "feature"]

_NAMED_BY: Mapping[Copied, Mapping[str, str]] = {
    "edit": {"portraits": "portrait", "prompt": "prompt", "instruction": "instruction", "editor": "spec"},
    "assessment": {"judge": "spec"},
    "feature": {"extractor": "spec"},
}
"""Columns that name a row of another table."""
_KEYS_PER_QUERY = 500


def copy_rows(store: Store, other: Store, table: Copied, keys: Sequence[str]) -> int:
    """Copy what `other` has finished under these keys and `store` has not; returns how many rows.

    A copy costs nothing, as the other run has paid, and says `reused` among its effective parameters.
    """
    finished = other.finished(table, keys) - store.finished(table, keys)
    copied = 0
    lost = _take_pictures(store, other, sorted(finished)) if table == "edit" else set[str]()
    with store.transaction():
        for row in _rows(other, f"SELECT * FROM {table} WHERE final = 1 AND key IN", sorted(finished)):
            if table == "edit" and row["image"] in lost:
                continue
            for column, named in _NAMED_BY[table].items():
                references = json.loads(row[column]) if column == "portraits" else [row[column]]
                for reference in _rows(other, f"SELECT * FROM {named} WHERE key IN", references):
                    insert(store, named, reference)
            number = row.pop("id")
            effective = {name: value for name, value in json.loads(row["effective"]).items() if name != "cost"}
            copy = insert(store, table, row | {"cost": 0.0, "effective": json.dumps(effective | {"reused": True})})
            if table == "assessment":
                for judgement in _rows(other, "SELECT * FROM judgement WHERE assessment IN", [number]):
                    insert(store, "judgement", judgement | {"assessment": copy})
            copied += 1
    return copied


def _take_pictures(store: Store, other: Store, keys: Sequence[str]) -> set[str]:
    """Copy the pictures of these edits; returns those that are lost."""
    images = (row["image"] for row in _rows(other, "SELECT image FROM edit WHERE final = 1 AND key IN", keys))
    return store.pictures.take_from(other.pictures, (image for image in images if image))


def _rows(store: Store, query: str, keys: Sequence[Json]) -> Iterator[dict[str, Json]]:
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        chunk = keys[start : start + _KEYS_PER_QUERY]
        yield from rows(store, f"{query} ({','.join('?' * len(chunk))})", chunk)


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
