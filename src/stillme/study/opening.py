"""Open a study: its settings, secrets and database, filled from items.json the first time."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from stillme.core.errors import StillmeError
from stillme.study import config as configs
from stillme.study import items, keys
from stillme.study.assignment import create_slots, set_raters
from stillme.study.config import StudyConfig
from stillme.study.items import FOLDER, Drawn, Item
from stillme.study.keys import Keys
from stillme.web.database import Database, Transaction, append_only, open_database

DATABASE = "study.sqlite"
_PATIENCE, _PAUSE = 1.0, 0.5
"""Seconds that a request waits, and seconds between attempts afterwards."""


# Constraints hold what the code must never break.
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS study (
    id TEXT PRIMARY KEY,
    k INTEGER NOT NULL,
    lease_s REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
    withdrawn INTEGER NOT NULL DEFAULT 0,
    unshredded INTEGER NOT NULL DEFAULT 0  -- deletions that may still be read in the database's files
);
CREATE TABLE IF NOT EXISTS version (number INTEGER PRIMARY KEY, config_json TEXT NOT NULL, at REAL NOT NULL);

-- What an item shows, asks and expects is in items.json; editors, arms and groups are nowhere in this database.
CREATE TABLE IF NOT EXISTS item (
    id TEXT PRIMARY KEY,
    offset INTEGER NOT NULL  -- the side of its first output, or person, for the first slot of its batch
);
CREATE TABLE IF NOT EXISTS picture (
    id TEXT PRIMARY KEY,  -- random, as browsers see it
    item TEXT NOT NULL REFERENCES item,
    place INTEGER NOT NULL,  -- among the item's files
    UNIQUE (item, place)
);

CREATE TABLE IF NOT EXISTS participant (
    id TEXT PRIMARY KEY,
    ext_hmac TEXT NOT NULL UNIQUE,
    origin TEXT NOT NULL,
    state TEXT NOT NULL,
    excluded TEXT,
    entered REAL NOT NULL,
    version INTEGER,  -- the version agreed to; empty before
    written REAL  -- when the answers were written into the run; from then on they cannot be withdrawn
);
CREATE TABLE IF NOT EXISTS identity (
    participant TEXT PRIMARY KEY REFERENCES participant,
    pid BLOB NOT NULL,
    submission BLOB NOT NULL
);
-- Hashes of the links that a participant came by, the second factor beside the id; kept after payment.
CREATE TABLE IF NOT EXISTS arrival (
    participant TEXT NOT NULL REFERENCES participant,
    link_hmac TEXT NOT NULL,
    PRIMARY KEY (participant, link_hmac)
);
CREATE TABLE IF NOT EXISTS session (
    token_hash TEXT PRIMARY KEY,
    participant TEXT NOT NULL REFERENCES participant,
    expires REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS session_participant ON session (participant);
CREATE TABLE IF NOT EXISTS admin_session (token_hash TEXT PRIMARY KEY, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS invitation (code_hash TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS consent (
    participant TEXT PRIMARY KEY REFERENCES participant,
    text_hash TEXT NOT NULL,
    decision TEXT NOT NULL CHECK (decision IN ('agreed', 'declined')),
    at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS device (
    participant TEXT PRIMARY KEY REFERENCES participant,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    ratio REAL NOT NULL,  -- screen pixels for one of the page
    full_brightness INTEGER NOT NULL,  -- this and the next as the participant said
    no_colour_filter INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS slot (
    id TEXT PRIMARY KEY,
    batch INTEGER NOT NULL,
    n INTEGER NOT NULL CHECK (n >= 0),
    state TEXT NOT NULL CHECK (state IN ('open', 'held', 'done', 'void')),
    participant TEXT REFERENCES participant,
    lease_until REAL NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    begun REAL,
    ended REAL,
    reason TEXT,
    version INTEGER,
    CHECK ((state = 'open') = (participant IS NULL) OR state = 'void')
);
CREATE UNIQUE INDEX IF NOT EXISTS slot_once ON slot (batch, n) WHERE state <> 'void';
CREATE UNIQUE INDEX IF NOT EXISTS slot_one_each ON slot (participant) WHERE state <> 'void';
CREATE TABLE IF NOT EXISTS presentation (
    slot TEXT NOT NULL REFERENCES slot,
    position INTEGER NOT NULL,
    item TEXT NOT NULL REFERENCES item,
    swapped INTEGER NOT NULL,
    PRIMARY KEY (slot, position),
    UNIQUE (slot, item)
);
CREATE TABLE IF NOT EXISTS answer (
    slot TEXT NOT NULL,
    position INTEGER NOT NULL,
    side INTEGER NOT NULL,
    question INTEGER NOT NULL,
    value INTEGER CHECK (value BETWEEN 0 AND 5),
    first INTEGER,  -- what was answered before it was corrected in the review; empty if it was not
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    -- What was on the screen: how many pictures had been decoded, their smallest side in the file and on the screen.
    pictures INTEGER,
    decoded INTEGER,
    shown INTEGER,
    PRIMARY KEY (slot, position, side, question),
    FOREIGN KEY (slot, position) REFERENCES presentation
);
CREATE TABLE IF NOT EXISTS comment (
    slot TEXT NOT NULL REFERENCES slot,
    position INTEGER NOT NULL,  -- -1 for what was said at the end
    text TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (slot, position)
);
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY,
    slot TEXT NOT NULL REFERENCES slot,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    amount REAL NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS event_slot ON event (slot);
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,  -- UTC, ISO 8601
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL
);
{append_only("audit")}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study with its settings, secrets and open database."""

    folder: Path
    config: StudyConfig
    keys: Keys
    drawn: Drawn
    database: Database
    versions: Mapping[int, StudyConfig]
    """What people agreed to and were asked, by version."""
    picture_ids: Mapping[str, tuple[str, ...]]
    """By item, the random ids of its files."""

    @property
    def id(self) -> str:
        """The study's id in the run."""
        return self.drawn.study

    @property
    def version(self) -> int:
        """Of participants who agree from now on."""
        return max(self.versions)

    @property
    def pictures(self) -> Path:
        """Where the blinded pictures are."""
        return self.folder / FOLDER

    @property
    def is_open(self) -> bool:
        """Whether it still takes answers."""
        with self.database.reading() as connection:
            return connection.value("SELECT state FROM study") == "open"

    @property
    def withdraw_until(self) -> date | None:
        """The last day to withdraw that any participant was promised, if it is not over."""
        last = max((day for config in self.versions.values() if (day := config.consent.withdraw_until)), default=None)
        return last if last and datetime.now(UTC).date() <= last else None

    def config_of(self, version: int | None) -> StudyConfig:
        """What a participant of that version is shown; without one, what the next participant will be."""
        return self.versions[version or self.version].with_settings_of(self.config)

    @property
    def questions(self) -> tuple[str, ...]:
        """Everything that any version asks."""
        return tuple(dict.fromkeys(name for config in self.versions.values() for name in config.questions))

    def asked(self, item: Item, version: int | None) -> tuple[str, ...]:
        """Which of an item's questions a version asks."""
        known = self.versions[version or self.version].questions
        return tuple(name for name in item.questions if name in known)

    def record(self, connection: Transaction, actor: str, kind: str, **detail: Any) -> None:
        """Add a line to the audit log; it is kept if and only if the transaction of what it records is."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "actor": actor, "kind": kind, "detail": json.dumps(detail, ensure_ascii=False)}
        connection.insert("audit", line)


def read_log(connection: Transaction, kind: str = "") -> list[dict[str, Any]]:
    """The lines of the audit log, oldest first: all, or those of one kind."""
    lines = connection.execute("SELECT * FROM audit WHERE ? IN ('', kind) ORDER BY id", (kind,))
    return [{**line, "detail": json.loads(line["detail"])} for line in lines]


def note_deletion(connection: Transaction) -> None:
    """Count a deletion, in the transaction that deletes."""
    connection.execute("UPDATE study SET unshredded = unshredded + 1")


def shred(database: Database, patience: float = _PATIENCE) -> bool:
    """Shred what was deleted; false if a reader prevents it so far, and a thread then goes on trying."""
    until = time.monotonic() + patience
    while not _attempt(database):
        if time.monotonic() > until:
            threading.Thread(target=_keep_trying, args=(database,), daemon=True).start()
            return False
        time.sleep(_PAUSE / 10)
    return True


def _attempt(database: Database) -> bool:
    with database.reading() as connection:
        count = connection.value("SELECT unshredded FROM study")
    if not count:
        return True
    if not database.shred():
        return False
    # Not to zero: another participant may have withdrawn meanwhile.
    with database.writing() as connection:
        connection.execute("UPDATE study SET unshredded = unshredded - ?", (count,))
    return True


def _keep_trying(database: Database) -> None:
    while not database.is_closed:
        time.sleep(_PAUSE)
        try:
            if database.is_closed or _attempt(database):
                return
        except sqlite3.Error:
            # A full disk, or the database was closed: the next attempt may succeed.
            continue


@contextmanager
def open_study(folder: Path, database: Path | None = None, *, renew: bool = False) -> Generator[Study]:
    """The study in `folder`, with its database inside it unless `database` names another file.

    With `renew`, a study.toml with other texts or questions becomes a new version, for people who have not begun.
    """
    drawn, secret_keys = items.read(folder), keys.load(folder)
    opened = open_database(database or folder / DATABASE, _SCHEMA)
    try:
        with opened.writing() as connection:
            study = _prepared(connection, opened, folder, drawn, secret_keys, renew)
        # What a crash kept from being shredded.
        shred(opened, patience=0)
        yield study
    finally:
        opened.close()


def _prepared(
    connection: Transaction, database: Database, folder: Path, drawn: Drawn, secret_keys: Keys, renew: bool
) -> Study:
    known = connection.value("SELECT id FROM study")
    if known not in (None, drawn.study):
        raise StillmeError(f"{folder / DATABASE} belongs to other items than {folder / items.FILE}. Restore a backup.")
    rows = connection.execute("SELECT number, config_json FROM version ORDER BY number")
    versions = {row["number"]: StudyConfig.model_validate_json(row["config_json"]) for row in rows}
    current = None
    try:
        config = current = configs.load(folder)
    except StillmeError:
        # Progress and exports need only what was recorded.
        if renew or not versions:
            raise
        config = versions[max(versions)]
    if known is None:
        _fill(connection, drawn, config)
    if not versions or (renew and versions[max(versions)].hash != config.hash):
        versions[len(versions) + 1] = config
        version = {"number": len(versions), "config_json": config.model_dump_json(), "at": time.time()}
        connection.insert("version", version)
    if renew and known is not None:
        settings = (60 * config.lease_minutes, set_raters(connection, drawn.batches, config.raters))
        connection.execute("UPDATE study SET lease_s = ?, k = ?", settings)
    picture_ids = {
        item.id: tuple(connection.column("SELECT id FROM picture WHERE item = ? ORDER BY place", (item.id,)))
        for item in drawn.items
    }
    study = Study(
        folder=folder,
        config=config,
        keys=secret_keys,
        drawn=drawn,
        database=database,
        versions=versions,
        picture_ids=picture_ids,
    )
    if current:
        _record_rules(study, connection)
    return study


RULES = "exclusion rules"
"""The log's word for what study.toml says about whom to exclude."""


def _record_rules(study: Study, connection: Transaction) -> None:
    """Keep since when study.toml excludes whom, so that a rule made after the answers can be told from one before."""
    known = [line["detail"]["rules"] for line in read_log(connection, RULES)]
    if (known[-1] if known else []) != study.config.checks.exclude:
        study.record(connection, "researcher", RULES, rules=list(study.config.checks.exclude))


def rules_came_first(connection: Transaction) -> bool:
    """Whether the exclusion rules were recorded before the first answer."""
    last = [line["at"] for line in read_log(connection, RULES)][-1:]
    first = connection.value("SELECT min(at) FROM answer")
    return bool(last) and (first is None or datetime.fromisoformat(last[0]).timestamp() <= first)


def _fill(connection: Transaction, drawn: Drawn, config: StudyConfig) -> None:
    study = {"id": drawn.study, "k": config.raters, "lease_s": 60 * config.lease_minutes, "state": "open"}
    connection.insert("study", study)
    offsets = _offsets(drawn)
    connection.insert("item", *({"id": item.id, "offset": offsets[item.id]} for item in drawn.items))
    # Random: a browser must not learn the number or the kind of items from what a picture is called.
    pictures = (
        {"id": secrets.token_hex(16), "item": item.id, "place": place}
        for item in drawn.items
        for place in range(len(item.files))
    )
    connection.insert("picture", *pictures)
    create_slots(connection, range(drawn.batches), range(config.raters))


def _offsets(drawn: Drawn) -> dict[str, int]:
    """The side of each item's first output for a task's first rater: random, and of each kind half on either side.

    Coins alone would put all of a short task on one side now and then, and its raters would look biased.
    """
    alike: dict[tuple[int, str], list[str]] = {}
    for item in drawn.items:
        alike.setdefault((item.batch, item.kind), []).append(item.id)
    offsets: dict[str, int] = {}
    for ids in alike.values():
        secrets.SystemRandom().shuffle(ids)
        first = secrets.randbelow(2)
        offsets.update({name: (first + place) % 2 for place, name in enumerate(ids)})
    return offsets
