"""Let participants in, by the parameters of their address or by an invitation link, and let them out again."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stillme.study.assignment import LEFT, release
from stillme.study.opening import Study, note_deletion, shred
from stillme.web.app import new_token, token_hash
from stillme.web.database import Transaction

SESSION_SECONDS = 30 * 24 * 3600
SCREENED_OUT = "screened out"
PLATFORM = "platform"
"""The origin of participants who came by the study's address, not by an invitation."""
_MAX_LENGTH = 128
_ID = re.compile(rf"[\w.@+-]{{1,{_MAX_LENGTH}}}", re.ASCII)
_PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
"""What MTurk sends while a worker only looks at a task."""
_WRONG_TRY = "wrong try"


class RequestRefused(Exception):
    """A request that is refused: with which status, and what the participant reads."""

    status = 422
    title = "Not possible"
    text = ""


class EntryRefused(RequestRefused):
    """An entry that is refused, for the reason in its message."""

    status = 403
    title = "This link does not work"


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


def arrival_from_invitation(connection: Transaction, code: str) -> Arrival:
    """Check an invitation code."""
    if not connection.row("SELECT 1 FROM invitation WHERE code_hash = ?", (token_hash(code),)):
        raise EntryRefused("This invitation is not known. Please check the link you were given.")
    return Arrival(origin="invitation", name=code)


def platform_hash(study: Study, pid: str) -> str:
    """By which a platform's participant is found again."""
    return study.keys.pseudonym("participant", f"{PLATFORM}:{pid}")


def enter(study: Study, connection: Transaction, arrival: Arrival, known: str | None = None) -> str:
    """Begin or resume a participation; returns the session's token. `known` is whose session the browser has."""
    pseudonym = study.keys.pseudonym("participant", f"{arrival.origin}:{arrival.name}")
    now = time.time()
    connection.execute(
        "INSERT INTO participant (id, ext_hmac, origin, state, entered) VALUES (?, ?, ?, 'consent', ?) "
        "ON CONFLICT DO NOTHING",
        (secrets.token_hex(16), pseudonym, arrival.origin, now),
    )
    participant = connection.value("SELECT id FROM participant WHERE ext_hmac = ?", (pseudonym,))
    if arrival.origin == PLATFORM:
        _check_link(study, connection, arrival, participant, known)
    token = new_token()
    session = {"token_hash": token_hash(token), "participant": participant, "expires": now + SESSION_SECONDS}
    connection.insert("session", session)
    return token


def _check_link(study: Study, connection: Transaction, arrival: Arrival, participant: str, known: str | None) -> None:
    """Refuse a visitor who knows a platform's id but not the submission that it came with.

    Other researchers know the id; the submission is in the participant's own link. A new submission is let in where
    the browser is the participant's, or where the one before has ended. Without submissions only the browser tells.
    """
    link = study.keys.pseudonym("link", f"{participant}:{arrival.submission}")
    before = connection.column("SELECT link_hmac FROM arrival WHERE participant = ?", (participant,))
    if link in before and (arrival.submission or known == participant):
        return
    left = begin_again(connection, participant) if before else False
    if before and not (left or known == participant):
        raise EntryRefused(
            "Your ID has already been used here, in another browser or with another submission. Please go on in the "
            "browser where you began. If you returned that submission, we have not heard of it yet: ask us."
        )
    connection.execute("INSERT INTO arrival VALUES (?, ?) ON CONFLICT DO NOTHING", (participant, link))
    sealed = (participant, study.keys.encrypt(arrival.name), study.keys.encrypt(arrival.submission))
    connection.execute("INSERT OR REPLACE INTO identity VALUES (?, ?, ?)", sealed)


def begin_again(connection: Transaction, participant: str) -> bool:
    """Let a participant whose submission ended without being finished begin again; false for others."""
    last = connection.row(
        "SELECT state, reason FROM slot WHERE participant = ? ORDER BY state = 'void', ended DESC", (participant,)
    )
    if last is None or last["state"] != "void" or last["reason"] not in LEFT:
        return False
    # They read and agree once more: what they agreed to before ended with that submission.
    connection.execute("DELETE FROM consent WHERE participant = ?", (participant,))
    connection.execute("DELETE FROM session WHERE participant = ?", (participant,))
    connection.execute("UPDATE participant SET state = 'consent' WHERE id = ?", (participant,))
    return True


def recognise(connection: Transaction, token: str | None) -> Visitor | None:
    """Whose session this is."""
    if not token or len(token) > _MAX_LENGTH:
        return None
    row = connection.row(
        "SELECT p.id AS participant, p.state, p.origin, p.version, p.written FROM session s "
        "JOIN participant p ON p.id = s.participant WHERE s.token_hash = ? AND s.expires > ?",
        (token_hash(token), time.time()),
    )
    return Visitor(token=token, **row) if row else None


def move(connection: Transaction, participant: str, *, to: str, only_from: Sequence[str]) -> bool:
    """Move a participant to another state; false if they were not in one of `only_from`."""
    states = ", ".join("?" * len(only_from))
    moved = f"UPDATE participant SET state = ? WHERE id = ? AND state IN ({states})"
    return connection.execute(moved, (to, participant, *only_from)).rowcount == 1


def invite(study: Study, count: int) -> list[str]:
    """Make invitation codes; only their hashes are kept."""
    codes = [secrets.token_urlsafe(16) for _ in range(count)]
    with study.database.writing() as connection:
        connection.insert("invitation", *({"code_hash": token_hash(code)} for code in codes))
        study.record(connection, "researcher", "invited", count=count)
    return codes


def release_own_slot(connection: Transaction, participant: str, reason: str) -> None:
    """Give up the place that a participant holds, if any."""
    if slot := connection.value(_HELD, (participant,)):
        release(connection, slot, reason, time.time())


def screen_out(connection: Transaction, participant: str, tries: int) -> bool:
    """Count one wrong try at the training; true if it was one too many, and the place goes to another."""
    slot = connection.value(_HELD, (participant,))
    if not tries or slot is None:
        return False
    now = time.time()
    connection.insert("event", {"slot": slot, "position": 0, "kind": _WRONG_TRY, "amount": 1.0, "at": now})
    counted = "SELECT count(*) FROM event WHERE slot = ? AND kind = ?"
    if connection.value(counted, (slot, _WRONG_TRY)) < tries:
        return False
    release(connection, slot, SCREENED_OUT, now)
    return move(connection, participant, to=SCREENED_OUT, only_from=("training",))


_HELD = "SELECT id FROM slot WHERE participant = ? AND state = 'held'"


def withdraw(study: Study, participant: str) -> bool:
    """Delete answers, comments, events, consent, sessions and identity; the place goes to another.

    Returns whether the deleted bytes are gone from the database's files too; if not, a thread finishes that.
    """
    with study.database.writing() as connection:
        # Closing marks whose answers it is about to write.
        if connection.value("SELECT written FROM participant WHERE id = ?", (participant,)):
            raise TooLate
        for slot in connection.column("SELECT id FROM slot WHERE participant = ?", (participant,)):
            release(connection, slot, "withdrawn", time.time())
            for table in ("answer", "comment", "event", "presentation"):
                connection.execute(f"DELETE FROM {table} WHERE slot = ?", (slot,))
        # The void slots too; the open ones that took their places carry no personal data.
        for table in ("slot", "identity", "arrival", "session", "consent", "device"):
            connection.execute(f"DELETE FROM {table} WHERE participant = ?", (participant,))
        gone = connection.execute("DELETE FROM participant WHERE id = ?", (participant,)).rowcount
        connection.execute("UPDATE study SET withdrawn = withdrawn + ?", (gone,))
        note_deletion(connection)
    return shred(study.database)
