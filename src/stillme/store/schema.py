"""The ledger's tables, as a list of migrations that is only ever added to."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from stillme.errors import StoreTooNew

MIGRATIONS: Sequence[str] = (
    """
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
        subcategory TEXT NOT NULL, years INTEGER, target TEXT, stereotype TEXT
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
    CREATE UNIQUE INDEX edit_once ON edit (key) WHERE final = 1;
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

    CREATE TRIGGER edit_is_kept BEFORE UPDATE ON edit
        BEGIN SELECT RAISE(ABORT, 'edits are append-only'); END;
    CREATE TRIGGER edit_stays BEFORE DELETE ON edit
        BEGIN SELECT RAISE(ABORT, 'edits are append-only'); END;
    CREATE TRIGGER assessment_is_kept BEFORE UPDATE ON assessment
        BEGIN SELECT RAISE(ABORT, 'assessments are append-only'); END;
    CREATE TRIGGER assessment_stays BEFORE DELETE ON assessment
        BEGIN SELECT RAISE(ABORT, 'assessments are append-only'); END;
    CREATE TRIGGER judgement_is_kept BEFORE UPDATE ON judgement
        BEGIN SELECT RAISE(ABORT, 'judgements are append-only'); END;
    CREATE TRIGGER judgement_stays BEFORE DELETE ON judgement
        BEGIN SELECT RAISE(ABORT, 'judgements are append-only'); END;
    """,
    "ALTER TABLE prompt ADD COLUMN pronoun TEXT",
    """
    -- What an extractor says of a picture. `final` rows are not asked for again.
    CREATE TABLE feature (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, final INTEGER NOT NULL, image TEXT NOT NULL, extractor TEXT NOT NULL,
        outcome TEXT NOT NULL CHECK (outcome IN ('described', 'declined', 'unusable', 'failed')),
        sentence TEXT, dimensions TEXT NOT NULL, message TEXT, raw TEXT, effective TEXT NOT NULL,
        attempts INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
    );
    CREATE UNIQUE INDEX feature_once ON feature (key) WHERE final = 1;
    CREATE INDEX feature_to_retry ON feature (key) WHERE final = 0;
    CREATE TRIGGER feature_is_kept BEFORE UPDATE ON feature
        BEGIN SELECT RAISE(ABORT, 'features are append-only'); END;
    CREATE TRIGGER feature_stays BEFORE DELETE ON feature
        BEGIN SELECT RAISE(ABORT, 'features are append-only'); END;
    """,
    """
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
    CREATE TRIGGER attempt_is_kept BEFORE UPDATE ON attempt
        BEGIN SELECT RAISE(ABORT, 'attempts are append-only'); END;
    CREATE TRIGGER attempt_stays BEFORE DELETE ON attempt
        BEGIN SELECT RAISE(ABORT, 'attempts are append-only'); END;
    CREATE TRIGGER design_is_kept BEFORE UPDATE ON design
        BEGIN SELECT RAISE(ABORT, 'designs are append-only'); END;
    CREATE TRIGGER design_stays BEFORE DELETE ON design
        BEGIN SELECT RAISE(ABORT, 'designs are append-only'); END;
    CREATE TRIGGER request_is_kept BEFORE UPDATE ON request
        BEGIN SELECT RAISE(ABORT, 'requests are append-only'); END;
    CREATE TRIGGER request_stays BEFORE DELETE ON request
        BEGIN SELECT RAISE(ABORT, 'requests are append-only'); END;
    """,
    """
    -- A failure says nothing about a portrait, so it is never final: the next run tries again. Earlier versions marked
    -- some failures as final; only that mark is changed here.
    DROP TRIGGER edit_is_kept;
    DROP TRIGGER assessment_is_kept;
    DROP TRIGGER feature_is_kept;
    UPDATE edit SET final = 0 WHERE final = 1 AND outcome = 'failed';
    UPDATE feature SET final = 0 WHERE final = 1 AND outcome = 'failed';
    UPDATE assessment SET final = 0
        WHERE final = 1 AND id IN (SELECT assessment FROM judgement WHERE outcome = 'failed');
    CREATE TRIGGER edit_is_kept BEFORE UPDATE ON edit
        BEGIN SELECT RAISE(ABORT, 'edits are append-only'); END;
    CREATE TRIGGER assessment_is_kept BEFORE UPDATE ON assessment
        BEGIN SELECT RAISE(ABORT, 'assessments are append-only'); END;
    CREATE TRIGGER feature_is_kept BEFORE UPDATE ON feature
        BEGIN SELECT RAISE(ABORT, 'features are append-only'); END;
    """,
    """
    -- Answers to pairs of known truth, hidden among a judge's questions: never part of the run's own judgements.
    CREATE TABLE sentinel (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, final INTEGER NOT NULL, judge TEXT NOT NULL,
        number INTEGER NOT NULL, pair TEXT NOT NULL, subject TEXT NOT NULL, tone TEXT NOT NULL, prompt TEXT NOT NULL,
        source TEXT NOT NULL, edited TEXT NOT NULL, answers TEXT NOT NULL, chart TEXT NOT NULL,
        answered_before INTEGER NOT NULL, error TEXT, raw TEXT, effective TEXT NOT NULL,
        attempts INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL, at TEXT NOT NULL
    );
    CREATE UNIQUE INDEX sentinel_once ON sentinel (key) WHERE final = 1;
    CREATE INDEX sentinel_to_retry ON sentinel (key) WHERE final = 0;
    CREATE TRIGGER sentinel_is_kept BEFORE UPDATE ON sentinel
        BEGIN SELECT RAISE(ABORT, 'sentinels are append-only'); END;
    CREATE TRIGGER sentinel_stays BEFORE DELETE ON sentinel
        BEGIN SELECT RAISE(ABORT, 'sentinels are append-only'); END;
    """,
    """
    -- An edit whose picture is lost may be made again. The latest final row counts, as everywhere; that there is no
    -- second one without need is up to the one writer.
    DROP INDEX edit_once;
    CREATE INDEX edit_finished ON edit (key) WHERE final = 1;
    """,
    """
    -- Where pictures are kept besides the run folder. The latest is where new ones go; all of them are read. An empty
    -- address is the run folder itself. No credentials: whoever reads has their own.
    CREATE TABLE place (id INTEGER PRIMARY KEY, address TEXT NOT NULL, at TEXT NOT NULL);
    CREATE TRIGGER place_is_kept BEFORE UPDATE ON place
        BEGIN SELECT RAISE(ABORT, 'places are append-only'); END;
    CREATE TRIGGER place_stays BEFORE DELETE ON place
        BEGIN SELECT RAISE(ABORT, 'places are append-only'); END;
    """,
)

FAILURES_ARE_NOT_FINAL = 5
"""The version from which on no failure is marked as final."""


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring a ledger up to date, one transaction per step; a crash leaves it at a whole version."""
    for version in range(version_of(connection), len(migrations)):
        connection.executescript(
            f"BEGIN IMMEDIATE; {migrations[version]}; PRAGMA user_version = {version + 1}; COMMIT;"
        )


def require_known(connection: sqlite3.Connection, path: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Refuse a ledger that a later stillme has written."""
    version = version_of(connection)
    if version > len(migrations):
        raise StoreTooNew(
            f"{path} has schema {version}, this stillme knows up to {len(migrations)}. "
            "Upgrade with `pip install -U stillme`."
        )


def version_of(connection: sqlite3.Connection) -> int:
    """How many migrations a ledger has had."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
