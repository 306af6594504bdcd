"""The study's tables. Constraints hold what the code must never break."""

from __future__ import annotations

from stillme.web.database import append_only

SCHEMA = f"""
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
