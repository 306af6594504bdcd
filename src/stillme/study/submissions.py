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
from stillme.study.assignment import release
from stillme.study.opening import Study
from stillme.study.ratings import pseudonym
from stillme.study.withdrawal import purge_identity

LEFT: Mapping[str, str] = {"RETURNED": "returned", "TIMED-OUT": "timed out", "SCREENED OUT": "screened out"}
"""Prolific's statuses that free a place, and the reason kept with it."""
PAID = ("APPROVED",)
KNOWN = (*LEFT, *PAID, "ACTIVE", "AWAITING REVIEW", "REJECTED")


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
    """Apply the statuses of Prolific's export (CSV with `Participant id` and `Status`); returns counts.

    Returned, timed-out and screened-out participants free their place; the identity of paid ones is deleted.
    """
    statuses = _read(file)
    done: Counter[str] = Counter()
    now = time.time()
    with study.database.writing() as connection:
        for pid, status in statuses.items():
            ext_hmac = study.keys.pseudonym("participant", f"prolific:{pid}")
            who = connection.execute(
                sa.select(t.participant.c.id).where(
                    t.participant.c.study == study.id, t.participant.c.ext_hmac == ext_hmac
                )
            ).scalar()
            if who is None:
                done["unknown here"] += 1
            elif status in LEFT:
                done["places freed"] += _free(connection, who, LEFT[status], now)
            elif status in PAID:
                purge_identity(connection, who)
                done["identities purged"] += 1
            elif status == "REJECTED":
                excluded = t.participant.update().where(t.participant.c.id == who)
                connection.execute(excluded.values(excluded="rejected on Prolific"))
                done["excluded"] += 1
        study.record(connection, "researcher", "applied statuses", **done)
    study.database.shred("identity")
    return done


def _free(connection: sa.Connection, participant: str, reason: str, now: float) -> int:
    held = sa.select(t.slot.c.id).where(t.slot.c.participant == participant, t.slot.c.state == "held")
    slots = connection.execute(held).scalars().all()
    return sum(release(connection, slot, reason, now) for slot in slots)


def rows_of_export(file: Path) -> list[dict[str, str]]:
    """A CSV as Prolific exports it."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, restkey="", restval="")
            return [{name: value for name, value in row.items() if name} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StillmeError(f"{file} cannot be read as CSV ({error}). Export it from Prolific again.") from None


def _read(file: Path) -> dict[str, str]:
    rows = rows_of_export(file)
    if not rows or not {"Participant id", "Status"} <= set(rows[0]):
        raise StillmeError(f"{file} lacks the columns `Participant id` and `Status`. Name an export from Prolific.")
    statuses = {row["Participant id"]: (row["Status"] or "").strip().upper() for row in rows}
    for status in statuses.values():
        if status not in KNOWN:
            raise StillmeError(f"{file} has the status {status!r}; known are {', '.join(KNOWN)}.")
    return statuses
