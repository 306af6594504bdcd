"""Withdraw: delete everything of one participant, keep only that somebody withdrew."""

from __future__ import annotations

import time

import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.assignment import release
from stillme.study.opening import Study


def withdraw(study: Study, participant: str) -> None:
    """Delete answers, events, consent, sessions and identity; the place goes to somebody else."""
    now = time.time()
    with study.database.writing() as connection:
        slots = connection.execute(sa.select(t.slot.c.id).where(t.slot.c.participant == participant)).scalars().all()
        for slot in slots:
            release(connection, slot, "withdrawn", now)
            for table in (t.answer, t.event, t.presentation):
                connection.execute(table.delete().where(table.c.slot == slot))
        # A void slot with nobody and nothing in it says nothing about anybody.
        connection.execute(t.slot.delete().where(t.slot.c.id.in_(slots)))
        for table in (t.identity, t.session, t.consent):
            connection.execute(table.delete().where(table.c.participant == participant))
        connection.execute(t.participant.delete().where(t.participant.c.id == participant))
        connection.execute(t.study.update().where(t.study.c.id == study.id).values(withdrawn=t.study.c.withdrawn + 1))
    study.database.shred("answer", "event", "presentation", "slot", "identity", "session", "consent", "participant")


def purge_identity(connection: sa.Connection, participant: str) -> None:
    """Forget who a participant is, after payment."""
    connection.execute(t.identity.delete().where(t.identity.c.participant == participant))
