"""The ledger's tables. Before 1.0 a ledger of another version is refused, not migrated."""

from __future__ import annotations

import sqlite3

from stillme.core.errors import StoreOfAnotherVersion

VERSION = 2

_TABLES = """
CREATE TABLE audit (
    hash TEXT NOT NULL, resolved TEXT NOT NULL, stillme TEXT NOT NULL, at TEXT NOT NULL
);
CREATE TABLE spec (
    key TEXT PRIMARY KEY, use TEXT NOT NULL, version TEXT NOT NULL, parameters TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE portrait (
    key TEXT PRIMARY KEY, id TEXT NOT NULL, sha256 TEXT NOT NULL, attributes TEXT NOT NULL,
    label_origin TEXT NOT NULL, licence TEXT NOT NULL, block TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE prompt (
    key TEXT PRIMARY KEY, id TEXT NOT NULL, text TEXT NOT NULL, category TEXT NOT NULL,
    subcategory TEXT NOT NULL, years INTEGER, target TEXT, stereotype TEXT, pronoun TEXT
) WITHOUT ROWID;
CREATE TABLE instruction (key TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;

-- One row each time the tries of a run end. `final` rows end a request: an image or a refusal.
CREATE TABLE edit (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, final INTEGER NOT NULL,
    portraits TEXT NOT NULL, prompt TEXT NOT NULL, arm TEXT NOT NULL, instruction TEXT NOT NULL,
    editor TEXT NOT NULL, seed INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('edited', 'refused', 'failed')),
    image TEXT, message TEXT, effective TEXT NOT NULL, truth TEXT,
    attempts INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
);
CREATE INDEX edit_finished ON edit (key) WHERE final = 1;
CREATE INDEX edit_to_retry ON edit (key) WHERE final = 0;

CREATE TABLE assessment (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, final INTEGER NOT NULL,
    edit TEXT NOT NULL, judge TEXT NOT NULL, epoch INTEGER NOT NULL,
    raw TEXT, effective TEXT NOT NULL,
    attempts INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
);
CREATE UNIQUE INDEX assessment_once ON assessment (key) WHERE final = 1;
CREATE INDEX assessment_to_retry ON assessment (key) WHERE final = 0;
CREATE TABLE judgement (
    assessment INTEGER NOT NULL, axis TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('rated', 'abstained', 'failed')),
    score REAL, reason TEXT,
    PRIMARY KEY (assessment, axis)
) WITHOUT ROWID;

-- What an extractor says of a picture. `final` rows are not asked for again.
CREATE TABLE feature (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, final INTEGER NOT NULL, image TEXT NOT NULL, extractor TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('described', 'declined', 'unusable', 'failed')),
    sentence TEXT, dimensions TEXT NOT NULL, message TEXT, raw TEXT, effective TEXT NOT NULL,
    attempts INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
);
CREATE UNIQUE INDEX feature_once ON feature (key) WHERE final = 1;
CREATE INDEX feature_to_retry ON feature (key) WHERE final = 0;

-- What the run asks, so that its rows can be read without plugins or inputs. The latest design counts.
CREATE TABLE plan (id INTEGER PRIMARY KEY, hash TEXT NOT NULL, requests INTEGER NOT NULL, at TEXT NOT NULL);
CREATE TABLE design (
    id INTEGER PRIMARY KEY, hash TEXT NOT NULL, document TEXT NOT NULL, plan INTEGER NOT NULL,
    stillme TEXT NOT NULL, at TEXT NOT NULL
);
CREATE TABLE request (
    plan INTEGER NOT NULL, position INTEGER NOT NULL, editor TEXT NOT NULL, key TEXT NOT NULL,
    portraits TEXT NOT NULL, prompt TEXT NOT NULL, arm TEXT NOT NULL, instruction TEXT NOT NULL,
    seed INTEGER NOT NULL, attributes_matter INTEGER NOT NULL, content TEXT NOT NULL,
    expected_place INTEGER NOT NULL, withheld TEXT NOT NULL, waiting INTEGER NOT NULL,
    PRIMARY KEY (plan, position)
) WITHOUT ROWID;

-- Every try that failed, as it happened: the row of an edit, an assessment or a feature tells only how it ended.
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY, stage TEXT NOT NULL CHECK (stage IN ('edit', 'judge', 'describe')), key TEXT NOT NULL,
    number INTEGER NOT NULL, error TEXT NOT NULL, retryable INTEGER NOT NULL, status TEXT NOT NULL,
    seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
);
CREATE INDEX attempt_of ON attempt (key);

-- Answers to pairs of known truth, hidden among a judge's questions: never part of the run's own judgements.
CREATE TABLE control_pair (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, final INTEGER NOT NULL, judge TEXT NOT NULL,
    number INTEGER NOT NULL, pair TEXT NOT NULL, subject TEXT NOT NULL, tone TEXT NOT NULL, prompt TEXT NOT NULL,
    source TEXT NOT NULL, edited TEXT NOT NULL, answers TEXT NOT NULL, chart TEXT NOT NULL,
    answered_before INTEGER NOT NULL, error TEXT, raw TEXT, effective TEXT NOT NULL,
    attempts INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
);
CREATE UNIQUE INDEX control_pair_once ON control_pair (key) WHERE final = 1;
CREATE INDEX control_pair_to_retry ON control_pair (key) WHERE final = 0;

-- Where pictures are kept besides the run folder. The latest is where new ones go; all of them are read. An empty
-- address is the run folder itself. No credentials: every reader has their own.
CREATE TABLE place (id INTEGER PRIMARY KEY, address TEXT NOT NULL, at TEXT NOT NULL);
"""

_APPEND_ONLY = (
    "edit",
    "assessment",
    "judgement",
    "feature",
    "attempt",
    "design",
    "request",
    "control_pair",
    "place",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty ledger, in one transaction."""
    guards = "\n".join(
        f"CREATE TRIGGER {table}_refuses_{change.lower()} BEFORE {change} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, '{table} rows are append-only'); END;"
        for table in _APPEND_ONLY
        for change in ("UPDATE", "DELETE")
    )
    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {guards} PRAGMA user_version = {VERSION}; COMMIT;")


def require_version(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a ledger that another version of stillme has written; an emptied one has version 0."""
    version = version_of(connection)
    if version not in (0, VERSION):
        raise StoreOfAnotherVersion(
            f"{path} has schema {version}, and this stillme reads schema {VERSION}. Use the stillme that made the run."
        )


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a ledger's schema."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
