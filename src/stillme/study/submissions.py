"""A platform's submissions and ours: what to do when a participant left, and whom to approve or reject there."""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.core.errors import StillmeError
from stillme.core.files import csv_text
from stillme.runs import participants
from stillme.runs.participants import Participants
from stillme.study.assignment import exclude, release
from stillme.study.entry import platform_hash
from stillme.study.keys import write_private
from stillme.study.opening import Study, note_deletion, shred
from stillme.study.progress import PURGED, IdsHeld, ids_held
from stillme.study.quality import pseudonym, rater_qualities, raters
from stillme.web.database import Transaction

DECISIONS = "decisions.csv"
"""In the study's folder: approvals and rejections to paste back. Holds ids, so `purge` deletes it."""
LEFT: Mapping[str, str] = {"RETURNED": "returned", "SCREENED OUT": "screened out", "REJECTED": "rejected"}
"""Statuses after which answers do not count, finished or not, and the reason kept with the place."""
PAID = ("APPROVED", "PARTIALLY APPROVED")
UNDER_WAY = ("RESERVED", "ACTIVE", "AWAITING REVIEW", "SUBMITTED")
"""Statuses that change nothing here."""
_TO_REVIEW = ("AWAITING REVIEW", "SUBMITTED", "TIMED OUT")
_COLUMNS = (
    ("Participant id", "Submission id", "Status"),
    ("WorkerId", "AssignmentId", "AssignmentStatus"),
    ("participant", "submission", "status"),
)
"""Of Prolific, of MTurk, and of any other list."""
_MISSED = 2
"""Attention checks that must be missed before a participant may be rejected: one slip is human."""
_PURGE_SECONDS = 20.0
AGE, PERSON = "Age", "Participant id"
ATTRIBUTES = (
    *("Sex", "Ethnicity simplified", "Student status", "Employment status", "Language"),
    *("Country of birth", "Country of residence", "Nationality"),
)
_WITHHELD = ("CONSENT_REVOKED", "DATA_EXPIRED")
"""What Prolific writes where it has nothing to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What came of a platform's export."""

    done: Mapping[str, int]
    """Counts by what was done."""
    decisions: Mapping[str, int]
    """How many to approve, to reject and to ask to return."""
    file: Path | None
    """The decisions, to paste back."""


def submissions(study: Study, connection: Transaction) -> list[dict[str, Any]]:
    """All participants whose identity has not been deleted."""
    rows = connection.execute(
        "SELECT i.*, p.state, s.state AS slot_state, s.begun, s.ended FROM identity i "
        "JOIN participant p ON p.id = i.participant "
        "LEFT JOIN slot s ON s.participant = p.id AND s.state <> 'void' ORDER BY p.entered"
    )
    return [
        {
            "rater": pseudonym(study, row["participant"]),
            "pid": study.keys.decrypt(row["pid"]),
            "submission": study.keys.decrypt(row["submission"]),
            "state": row["state"],
            "slot_state": row["slot_state"] or "none",
            "minutes": (row["ended"] - row["begun"]) / 60 if row["ended"] else None,
        }
        for row in rows
    ]


def apply_statuses(study: Study, file: Path) -> Applied:
    """Apply the statuses of a platform's export row by row, and write `decisions.csv` for those to be reviewed."""
    rows = rows_of_export(file)
    columns = next((known for known in _COLUMNS if rows and {known[0], known[2]} <= set(rows[0])), None)
    if columns is None:
        wanted = "; ".join(f"`{person}` and `{status}`" for person, _, status in _COLUMNS)
        raise StillmeError(f"{file} lacks the columns of an export: {wanted}. Export the submissions again.")
    person, submission, status = columns
    done: Counter[str] = Counter()
    with study.database.writing() as connection:
        for row in rows:
            done[apply_status(study, connection, row[person], row[status], row.get(submission, ""))] += 1
        del done[""]
        decided = _decisions(study, connection, [row for row in rows if _name(row[status]) in _TO_REVIEW], columns)
        study.record(connection, "researcher", "applied statuses", **done)
    if not shred(study.database):
        done["deletion still to be finished, as another program reads the database"] = 1
    if not decided:
        return Applied(done=done, decisions={}, file=None)
    counts = Counter("approve" if row["Approve"] else "reject" if row["Reject"] else "ask to return" for row in decided)
    text = csv_text(list(decided[0]), decided)
    return Applied(done=done, decisions=counts, file=write_private(study.folder / DECISIONS, text))


def _decisions(
    study: Study, connection: Transaction, rows: Sequence[Mapping[str, str]], columns: tuple[str, str, str]
) -> list[dict[str, str]]:
    """Whom to approve or reject. Only two missed attention checks cost the pay; all others did the work."""
    known = {ours["pid"]: ours["rater"] for ours in submissions(study, connection)}
    finished = {rater.name: rater for rater in raters(study, connection) if rater.finished}
    qualities = rater_qualities(study, connection)
    missed = {one.rater: one.attention for one in qualities if one.attention[1] - one.attention[0] >= _MISSED}
    decided: list[dict[str, str]] = []
    for row in rows:
        rater = finished.get(known.get(row[columns[0]], ""))
        entry = {columns[0]: row[columns[0]], columns[1]: row.get(columns[1], "")}
        approve = reject = note = ""
        if rater is None and _name(row[columns[2]]) == "TIMED OUT":
            continue
        if rater is None:
            note = "not finished here: ask to return"
        elif rater.excluded and (checks := missed.get(rater.name)):
            reject = (
                f"You missed {checks[1] - checks[0]} of {checks[1]} attention checks, which asked for a certain answer."
            )
            note = f"excluded: {rater.excluded}"
        else:
            approve, note = "x", f"excluded, but did the work: {rater.excluded}" if rater.excluded else ""
        decided.append({**entry, "Approve": approve, "Reject": reject, "Note": note})
    return decided


def _name(status: str) -> str:
    return " ".join(status.upper().replace("-", " ").replace("_", " ").split())


def apply_status(study: Study, connection: Transaction, pid: str, status: str, submission: str = "") -> str:
    """Apply one submission's status; returns what was done in a few words, empty for nothing.

    Leaving frees the place, finished or not; being paid deletes the identity. The status of an earlier
    submission changes nothing for a participant who came again with another.
    """
    who = connection.row("SELECT id, written FROM participant WHERE ext_hmac = ?", (platform_hash(study, pid),))
    if who is None:
        return "unknown here"
    current = connection.value("SELECT submission FROM identity WHERE participant = ?", (who["id"],))
    if submission and current is not None and study.keys.decrypt(current) not in ("", submission):
        return "an earlier submission: nothing was done"
    name = _name(status)
    if name in PAID:
        gone = connection.execute("DELETE FROM identity WHERE participant = ?", (who["id"],)).rowcount
        if gone:
            note_deletion(connection)
        return "ids deleted" if gone else ""
    if name in UNDER_WAY:
        return ""
    if name != "TIMED OUT" and name not in LEFT:
        return f"with the status {status!r}, which is not known: nothing was done"
    slot = connection.row("SELECT id, state FROM slot WHERE participant = ? AND state <> 'void'", (who["id"],))
    if slot is None:
        return ""
    if name == "TIMED OUT":
        # The platform's clock ended; a participant who finished here has done the work.
        if slot["state"] == "done":
            return "timed out there but finished here: kept, please pay them"
        release(connection, slot["id"], "timed out", time.time())
        return "places freed"
    if who["written"]:
        return f"{LEFT[name]} after their answers were added to the run: kept there"
    if name == "REJECTED" and slot["state"] == "done":
        exclude(connection, who["id"], "rejected on the platform", time.time())
        return "excluded, places freed"
    release(connection, slot["id"], LEFT[name], time.time())
    return "places freed"


def purge(study: Study) -> IdsHeld:
    """Delete every id, and the keyed hashes by which a participant could be found again; returns what was held.

    Refused while a participant could take part twice without them, or could not withdraw any more as promised.
    """
    if study.is_open:
        raise StillmeError("The study is open, and ids keep anyone from taking part twice. Close it first.")
    if last := study.withdraw_until:
        raise StillmeError(
            f"Participants may withdraw until the end of {last}, which needs their link. Purge after that."
        )
    held = ids_held(study)
    with study.database.writing() as connection:
        for table in ("identity", "arrival", "session", "invitation"):
            connection.execute(f"DELETE FROM {table}")
        connection.execute("UPDATE participant SET ext_hmac = ? || lower(hex(randomblob(16)))", (PURGED,))
        study.record(connection, "researcher", "purged ids", ids=held.ids, hashes=held.hashes)
        note_deletion(connection)
    (study.folder / DECISIONS).unlink(missing_ok=True)
    if not shred(study.database, patience=_PURGE_SECONDS):
        raise StillmeError(
            "The ids are deleted, but another program reads the database and keeps old pages in its log. Stop it and "
            "run this again."
        )
    return held


def describe(study: Study, file: Path, run: Path) -> Participants:
    """Add counts of the raters who count to the run, from Prolific's demographic export; no small ones."""
    rows = rows_of_export(file)
    if not rows or PERSON not in rows[0] or not {AGE, *ATTRIBUTES} & rows[0].keys():
        raise StillmeError(
            f"{file} lacks the column `{PERSON}`, or any of {', '.join((AGE, *ATTRIBUTES))}. Name a demographic "
            "export from Prolific."
        )
    with study.database.reading() as connection:
        hashes = dict(connection.execute("SELECT id, ext_hmac FROM participant").fetchall())
        counted = {hashes[rater.participant] for rater in raters(study, connection) if rater.counts}
    ours: list[Mapping[str, Any]] = [
        {name: "" if value in _WITHHELD else value for name, value in row.items()}
        for row in rows
        if platform_hash(study, row[PERSON]) in counted
    ]
    attributes = [name for name in ATTRIBUTES if name in rows[0]]
    summary = participants.summarised(study.id, ours, attributes, AGE)
    participants.add(run, summary)
    return summary


def rows_of_export(file: Path) -> list[dict[str, str]]:
    """A CSV as a platform exports it."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, restkey="", restval="")
            return [{name: value for name, value in row.items() if name} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StillmeError(f"{file} cannot be read as CSV ({error}). Export it from the platform again.") from None
