"""Prolific's submissions and ours: whom to pay, and what to do when Prolific reports that somebody left."""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from stillme.errors import StillmeError
from stillme.study import schema as t
from stillme.study import shredding
from stillme.study.assignment import exclude, release
from stillme.study.opening import Study
from stillme.study.ratings import pseudonym
from stillme.study.withdrawal import purge_identity

LEFT: Mapping[str, str] = {"RETURNED": "returned", "SCREENED OUT": "screened out", "REJECTED": "rejected"}
"""Statuses after which answers do not count, finished or not, and the reason kept with the place."""
PAID = ("APPROVED", "PARTIALLY APPROVED")
UNDER_WAY = ("RESERVED", "ACTIVE", "AWAITING REVIEW")
"""Statuses that change nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One participant of Prolific, while their identity is still kept."""

    rater: str
    pid: str
    submission: str
    state: str
    slot_state: str
    minutes: float | None


def submissions(study: Study, connection: sa.Connection) -> list[Submission]:
    """Everybody whose identity has not been purged."""
    live = t.slot.alias()
    rows = connection.execute(
        sa.select(t.identity, t.participant.c.state, live.c.state.label("slot_state"), live.c.begun, live.c.ended)
        .join(t.participant, t.participant.c.id == t.identity.c.participant)
        .outerjoin(live, (live.c.participant == t.participant.c.id) & (live.c.state != "void"))
        .where(t.participant.c.study == study.id)
        .order_by(t.participant.c.entered)
    )
    return [
        Submission(
            rater=pseudonym(study, row.participant),
            pid=study.keys.decrypt(row.pid),
            submission=study.keys.decrypt(row.submission),
            state=row.state,
            slot_state=row.slot_state or "none",
            minutes=(row.ended - row.begun) / 60 if row.ended and row.begun else None,
        )
        for row in rows
    ]


def apply_statuses(study: Study, file: Path) -> Mapping[str, int]:
    """Apply the statuses of Prolific's export (CSV with `Participant id` and `Status`), row by row; returns counts."""
    rows = rows_of_export(file)
    if not rows or not {"Participant id", "Status"} <= set(rows[0]):
        raise StillmeError(f"{file} lacks the columns `Participant id` and `Status`. Name an export from Prolific.")
    done: Counter[str] = Counter()
    with study.database.writing() as connection:
        for row in rows:
            submission = row.get("Submission id", "")
            done[apply_status(study, connection, row["Participant id"], row["Status"], submission)] += 1
        del done[""]
        study.record(connection, "researcher", "applied statuses", **done)
    if not shredding.shred(study.database, study.id):
        done["deletion still to be finished, as another program reads the database"] = 1
    return done


def apply_status(study: Study, connection: sa.Connection, pid: str, status: str, submission: str = "") -> str:
    """Apply one submission's status; returns what was done in a few words, empty for nothing.

    Whoever left frees the place, finished or not; the identity of whoever was paid is deleted. The status of an earlier
    submission changes nothing for somebody who came again with another.
    """
    who = connection.execute(
        sa.select(t.participant.c.id, t.participant.c.written).where(
            t.participant.c.study == study.id,
            t.participant.c.ext_hmac == study.keys.pseudonym("participant", f"prolific:{pid}"),
        )
    ).first()
    if who is None:
        return "unknown here"
    current = connection.execute(sa.select(t.identity.c.submission).where(t.identity.c.participant == who.id)).scalar()
    if submission and current is not None and study.keys.decrypt(current) != submission:
        return "an earlier submission: nothing was done"
    name = " ".join(status.upper().replace("-", " ").replace("_", " ").split())
    if name in PAID:
        return "identities purged" if purge_identity(study, connection, who.id) else ""
    if name in UNDER_WAY:
        return ""
    if name != "TIMED OUT" and name not in LEFT:
        return f"with the status {status!r}, which is not known: nothing was done"
    slot = connection.execute(
        sa.select(t.slot.c.id, t.slot.c.state).where(t.slot.c.participant == who.id, t.slot.c.state != "void")
    ).first()
    if slot is None:
        return ""
    if name == "TIMED OUT":
        # Prolific's clock ended; somebody who finished here has done the work.
        if slot.state == "done":
            return "timed out on Prolific but finished here: kept, please pay them"
        release(connection, slot.id, "timed out", time.time())
        return "places freed"
    if who.written:
        return f"{LEFT[name]} after their answers were added to the run: kept there"
    if name == "REJECTED" and slot.state == "done":
        exclude(connection, who.id, "rejected on Prolific", time.time())
        return "excluded, places freed"
    release(connection, slot.id, LEFT[name], time.time())
    return "places freed"


def rows_of_export(file: Path) -> list[dict[str, str]]:
    """A CSV as Prolific exports it."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, restkey="", restval="")
            return [{name: value for name, value in row.items() if name} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StillmeError(f"{file} cannot be read as CSV ({error}). Export it from Prolific again.") from None
