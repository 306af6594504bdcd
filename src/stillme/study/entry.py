"""Let participants in: by Prolific's parameters, by its signed token, or by an invitation link."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.assignment import LEFT
from stillme.study.opening import Study
from stillme.study.prolific.api import ADDRESS, PROLIFIC, TOKEN, ProlificApi
from stillme.study.prolific.signed_keys import key_named
from stillme.web.sessions import new_token, token_hash

SESSION_SECONDS = 30 * 24 * 3600
_MAX_LENGTH = 128
_RECOGNISE = sa.text(
    "SELECT p.id, p.state, p.origin, p.version, p.written FROM session s JOIN participant p ON p.id = s.participant "
    "WHERE s.token_hash = :token AND s.expires > :now AND p.study = :study"
)


class EntryRefused(Exception):
    """An entry that is refused; the message is shown to the participant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Who a participant says to be, before there is a session."""

    origin: str
    """`prolific` or `invitation`."""
    name: str
    """A Prolific id or an invitation code, the same each time. Stored only as an HMAC and encrypted."""
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


def arrival_from_prolific(study: Study, query: Mapping[str, str]) -> Arrival:
    """Read Prolific's entry address; signed where the study asks for that."""
    prolific = study.config.prolific
    if prolific is None:
        raise EntryRefused("This study does not take participants from Prolific. Use the link you were given.")
    parameters = _claims(study, query.get("prolific_token", "")) if prolific.token else query
    names = [parameters.get(key, "") for key in ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")]
    if not all(name and len(name) <= _MAX_LENGTH and name.isalnum() for name in names):
        raise EntryRefused("Your link is incomplete. Please open the study from Prolific again.")
    if prolific.study_id and names[1] != prolific.study_id:
        raise EntryRefused("Your link belongs to another study. Please open this one from Prolific again.")
    return Arrival(origin="prolific", name=names[0], submission=names[2])


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
    insert = _insert_or_nothing(connection, t.participant)
    connection.execute(
        insert.values(
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
    if arrival.origin == "prolific":
        _check_link(study, connection, arrival, participant, known)
    token = new_token()
    connection.execute(
        t.session.insert().values(token_hash=token_hash(token), participant=participant, expires=now + SESSION_SECONDS)
    )
    return token


def _check_link(study: Study, connection: sa.Connection, arrival: Arrival, participant: str, known: str | None) -> None:
    """Refuse somebody who knows a Prolific id but not the submission that it came with.

    Other researchers know the id; the submission is in the participant's own link. A new submission is let in where
    Prolific has signed it, where the browser is the participant's, or where the one before has ended.
    """
    link = study.keys.pseudonym("link", f"{participant}:{arrival.submission}")
    links = connection.execute(sa.select(t.arrival.c.link_hmac).where(t.arrival.c.participant == participant))
    before = links.scalars().all()
    if link in before:
        return
    left = begin_again(connection, participant) if before else False
    signed = study.config.prolific is not None and study.config.prolific.token is not None
    if before and not (left or signed or known == participant):
        raise EntryRefused(
            "Your Prolific ID has already been used here with another submission. Please go on in the browser where "
            "you began. If you returned that submission, we have not heard of it yet: try again in a few minutes, or "
            "ask us."
        )
    connection.execute(t.arrival.insert().values(participant=participant, link_hmac=link))
    connection.execute(t.identity.delete().where(t.identity.c.participant == participant))
    connection.execute(
        t.identity.insert().values(
            participant=participant,
            pid=study.keys.encrypt(arrival.name),
            submission=study.keys.encrypt(arrival.submission),
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


def _claims(study: Study, token: str) -> Mapping[str, str]:
    """What Prolific signed, after a check of signature, audience and age."""
    settings = study.config.prolific and study.config.prolific.token
    assert settings
    try:
        api = ProlificApi(os.environ.get(TOKEN, ""), os.environ.get(ADDRESS) or PROLIFIC) if settings.refresh else None
        named = str(jwt.get_unverified_header(token).get("kid"))
        key = key_named(study.folder / settings.keys, named, api)
        if key is None:
            raise KeyError(named)
        claims = jwt.decode(
            token,
            key,
            algorithms=["RS256", "ES256"],
            audience=settings.audience,
            options={"require": ["exp", "aud"]},
        )
        return {str(name): str(value) for name, value in dict(claims["prolific"]).items()}
    except (jwt.PyJWTError, KeyError, ValueError, TypeError):
        raise EntryRefused("Your link is not valid any more. Please open the study from Prolific again.") from None


def _insert_or_nothing(connection: sa.Connection, table: sa.Table) -> Any:
    from sqlalchemy.dialects import postgresql, sqlite

    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()
