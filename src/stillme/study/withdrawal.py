"""Withdraw: delete everything of one participant, keep only that somebody withdrew."""

from __future__ import annotations

import time

import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study import shredding
from stillme.study.assignment import release
from stillme.study.opening import Study


class TooLate(Exception):
    """The participant's answers have been written into the run."""


def withdraw(study: Study, participant: str) -> bool:
    """Delete answers, comments, events, consent, sessions and identity; the place goes to somebody else.

    Returns whether the deleted bytes are gone from the database's files too; if not, a thread finishes that.
    """
    now = time.time()
    with study.database.writing() as connection:
        # Locked: closing marks whose answers it is about to write.
        written = connection.execute(
            sa.select(t.participant.c.written).where(t.participant.c.id == participant).with_for_update()
        ).scalar()
        if written:
            raise TooLate
        slots = connection.execute(sa.select(t.slot.c.id).where(t.slot.c.participant == participant)).scalars().all()
        for slot in slots:
            release(connection, slot, "withdrawn", now)
            for table in (t.answer, t.comment, t.event, t.presentation):
                connection.execute(table.delete().where(table.c.slot == slot))
        # A void slot with nobody and nothing in it says nothing about anybody.
        connection.execute(t.slot.delete().where(t.slot.c.id.in_(slots)))
        for table in (t.identity, t.arrival, t.session, t.consent, t.device):
            connection.execute(table.delete().where(table.c.participant == participant))
        gone = connection.execute(t.participant.delete().where(t.participant.c.id == participant))
        withdrawn = t.study.c.withdrawn + gone.rowcount
        connection.execute(t.study.update().where(t.study.c.id == study.id).values(withdrawn=withdrawn))
        shredding.note_deletion(connection, study.id)
    return shredding.shred(study.database, study.id)


def purge_identity(study: Study, connection: sa.Connection, participant: str) -> bool:
    """Forget who a participant is, after payment; false if that was done before."""
    gone = connection.execute(t.identity.delete().where(t.identity.c.participant == participant))
    if gone.rowcount:
        shredding.note_deletion(connection, study.id)
    return gone.rowcount == 1
