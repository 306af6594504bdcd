"""Let participants in, by the parameters of their address or by an invitation link, and let them out again."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from stillme.study import schema as t
from stillme.study.assignment import LEFT, release
from stillme.study.opening import Study, note_deletion, shred
from stillme.web.sessions import new_token, token_hash

SESSION_SECONDS = 30 * 24 * 3600
SCREENED_OUT = "screened out"
PLATFORM = "platform"
"""The origin of participants who came by the study's address, not by an invitation."""
_MAX_LENGTH = 128
_ID = re.compile(rf"[\w.@+-]{{1,{_MAX_LENGTH}}}", re.ASCII)
_PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
"""What MTurk sends while somebody only looks at a task."""
_WRONG_TRY = "wrong try"
_RECOGNISE = sa.text(
    "SELECT p.id, p.state, p.origin, p.version, p.written FROM session s JOIN participant p ON p.id = s.participant "
    "WHERE s.token_hash = :token AND s.expires > :now AND p.study = :study"
)


class EntryRefused(Exception):
    """An entry that is refused; the message is shown to the participant."""


class TooLate(Exception):
    """The participant's answers have been written into the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Who a participant says to be, before there is a session."""

    origin: str
    """`PLATFORM` or `invitation`."""
    name: str
    """A platform's id or an invitation code, the same each time. Stored only as an HMAC and encrypted."""
    submission: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A participant with a session."""

    token: str
    participant: str
    state: str
    origin: str
    version: int | None
    """What they agreed to; None before."""
    written: float | None
    """When their answers were written into the run."""


def arrival_from_platform(study: Study, query: Mapping[str, str]) -> Arrival:
    """Read the parameters of the study's address."""
    recruiting = study.config.recruiting
    if recruiting is None:
        raise EntryRefused("This study takes participants by personal links only. Use the link you were given.")
    given = {name: query.get(name, "") for name in recruiting.parameters}
    if _PREVIEW in given.values():
        raise EntryRefused(f"Please accept the task on {recruiting.platform} first, then open the link again.")
    if not all(_ID.fullmatch(value) for value in given.values()):
        raise EntryRefused(f"Your link is incomplete. Please open the study from {recruiting.platform} again.")
    if recruiting.study_id and given.get(recruiting.study) != recruiting.study_id:
        raise EntryRefused(
            f"Your link belongs to another study. Please open this one from {recruiting.platform} again."
        )
    return Arrival(origin=PLATFORM, name=given[recruiting.participant], submission=given.get(recruiting.submission, ""))


def arrival_from_invitation(study: Study, connection: sa.Connection, code: str) -> Arrival:
    """Check an invitation code."""
    known = connection.execute(
        sa.select(t.invitation.c.study).where(t.invitation.c.code_hash == token_hash(code))
    ).scalar()
    if known != study.id:
        raise EntryRefused("This invitation is not known. Please check the link you were given.")
    return Arrival(origin="invitation", name=code)


def enter(study: Study, connection: sa.Connection, arrival: Arrival, known: str | None = None) -> str:
    """Begin or resume a participation; returns the session's token. `known` is whose session the browser has."""
    pseudonym = study.keys.pseudonym("participant", f"{arrival.origin}:{arrival.name}")
    now = time.time()
    connection.execute(
        sqlite.insert(t.participant)
        .on_conflict_do_nothing()
        .values(
            id=secrets.token_hex(16),
            study=study.id,
            ext_hmac=pseudonym,
            origin=arrival.origin,
            state="consent",
            excluded=None,
            entered=now,
        )
    )
    participant = connection.execute(
        sa.select(t.participant.c.id).where(t.participant.c.study == study.id, t.participant.c.ext_hmac == pseudonym)
    ).scalar_one()
    if arrival.origin == PLATFORM:
        _check_link(study, connection, arrival, participant, known)
    token = new_token()
    connection.execute(
        t.session.insert().values(token_hash=token_hash(token), participant=participant, expires=now + SESSION_SECONDS)
    )
    return token


def _check_link(study: Study, connection: sa.Connection, arrival: Arrival, participant: str, known: str | None) -> None:
    """Refuse somebody who knows a platform's id but not the submission that it came with.

    Other researchers know the id; the submission is in the participant's own link. A new submission is let in where
    the browser is the participant's, or where the one before has ended. Without submissions only the browser tells.
    """
    link = study.keys.pseudonym("link", f"{participant}:{arrival.submission}")
    links = connection.execute(sa.select(t.arrival.c.link_hmac).where(t.arrival.c.participant == participant))
    before = links.scalars().all()
    if link in before and (arrival.submission or known == participant):
        return
    left = begin_again(connection, participant) if before else False
    if before and not (left or known == participant):
        raise EntryRefused(
            "Your ID has already been used here, in another browser or with another submission. Please go on in the "
            "browser where you began. If you returned that submission, we have not heard of it yet: ask us."
        )
    once = sqlite.insert(t.arrival).on_conflict_do_nothing()
    connection.execute(once.values(participant=participant, link_hmac=link))
    connection.execute(t.identity.delete().where(t.identity.c.participant == participant))
    connection.execute(
        t.identity.insert().values(
            participant=participant,
            pid=study.keys.encrypt(arrival.name),
            submission=study.keys.encrypt(arrival.submission),
            since=time.time(),
        )
    )


def begin_again(connection: sa.Connection, participant: str) -> bool:
    """Let somebody whose submission ended without being finished begin anew; false for everybody else."""
    last = connection.execute(
        sa.select(t.slot.c.state, t.slot.c.reason)
        .where(t.slot.c.participant == participant)
        .order_by(sa.case((t.slot.c.state != "void", 0), else_=1), t.slot.c.ended.desc())
    ).first()
    if last is None or last.state != "void" or last.reason not in LEFT:
        return False
    # They read and agree once more: what they agreed to before ended with that submission.
    connection.execute(t.consent.delete().where(t.consent.c.participant == participant))
    connection.execute(t.session.delete().where(t.session.c.participant == participant))
    connection.execute(t.participant.update().where(t.participant.c.id == participant).values(state="consent"))
    return True


def recognise(study: Study, connection: sa.Connection, token: str | None) -> Visitor | None:
    """Whose session this is."""
    if not token or len(token) > _MAX_LENGTH:
        return None
    row = connection.execute(_RECOGNISE, {"token": token_hash(token), "now": time.time(), "study": study.id}).first()
    if row is None:
        return None
    return Visitor(
        token=token,
        participant=row.id,
        state=row.state,
        origin=row.origin,
        version=row.version,
        written=row.written,
    )


def move(connection: sa.Connection, participant: str, *, to: str, only_from: Sequence[str]) -> bool:
    """Move a participant to another state; false if they were not in one of `only_from`."""
    moved = connection.execute(
        t.participant.update()
        .where(t.participant.c.id == participant, t.participant.c.state.in_(only_from))
        .values(state=to)
    )
    return moved.rowcount == 1


def invite(study: Study, count: int) -> list[str]:
    """Make invitation codes; only their hashes are kept."""
    codes = [secrets.token_urlsafe(16) for _ in range(count)]
    with study.database.writing() as connection:
        connection.execute(
            t.invitation.insert(), [{"code_hash": token_hash(code), "study": study.id} for code in codes]
        )
        study.record(connection, "researcher", "invited", count=count)
    return codes


def release_own_slot(connection: sa.Connection, participant: str, reason: str) -> None:
    """Give up the place that a participant holds, if any."""
    held = sa.select(t.slot.c.id).where(t.slot.c.participant == participant, t.slot.c.state == "held")
    if slot := connection.execute(held).scalar():
        release(connection, slot, reason, time.time())


def screen_out(connection: sa.Connection, participant: str, tries: int) -> bool:
    """Count one wrong try at the training; true if it was one too many, and the place goes to somebody else."""
    held = sa.select(t.slot.c.id).where(t.slot.c.participant == participant, t.slot.c.state == "held")
    slot = connection.execute(held).scalar()
    if not tries or slot is None:
        return False
    now = time.time()
    connection.execute(t.event.insert().values(slot=slot, position=0, kind=_WRONG_TRY, amount=1.0, at=now))
    counted = sa.select(sa.func.count()).where(t.event.c.slot == slot, t.event.c.kind == _WRONG_TRY)
    if connection.execute(counted).scalar_one() < tries:
        return False
    release(connection, slot, SCREENED_OUT, now)
    return move(connection, participant, to=SCREENED_OUT, only_from=("training",))


def withdraw(study: Study, participant: str) -> bool:
    """Delete answers, comments, events, consent, sessions and identity; the place goes to somebody else.

    Returns whether the deleted bytes are gone from the database's files too; if not, a thread finishes that.
    """
    now = time.time()
    with study.database.writing() as connection:
        # Closing marks whose answers it is about to write.
        written = connection.execute(
            sa.select(t.participant.c.written).where(t.participant.c.id == participant)
        ).scalar()
        if written:
            raise TooLate
        slots = connection.execute(sa.select(t.slot.c.id).where(t.slot.c.participant == participant)).scalars().all()
        for slot in slots:
            release(connection, slot, "withdrawn", now)
            for table in (t.answer, t.comment, t.event, t.presentation):
                connection.execute(table.delete().where(table.c.slot == slot))
        # An empty slot carries no personal data.
        connection.execute(t.slot.delete().where(t.slot.c.id.in_(slots)))
        for table in (t.identity, t.arrival, t.session, t.consent, t.device):
            connection.execute(table.delete().where(table.c.participant == participant))
        gone = connection.execute(t.participant.delete().where(t.participant.c.id == participant))
        withdrawn = t.study.c.withdrawn + gone.rowcount
        connection.execute(t.study.update().where(t.study.c.id == study.id).values(withdrawn=withdrawn))
        note_deletion(connection, study.id)
    return shred(study.database, study.id)
