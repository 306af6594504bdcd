"""Screen out whoever does not get through the training, where a study says so."""

from __future__ import annotations

import time

import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.assignment import release
from stillme.study.entry import move

STATE = "screened out"
_TRY = "wrong try"


def screen_out(connection: sa.Connection, participant: str, tries: int) -> bool:
    """Count one wrong try at the training; true if it was one too many, and the place goes to somebody else."""
    held = sa.select(t.slot.c.id).where(t.slot.c.participant == participant, t.slot.c.state == "held")
    slot = connection.execute(held).scalar()
    if not tries or slot is None:
        return False
    now = time.time()
    connection.execute(t.event.insert().values(slot=slot, position=0, kind=_TRY, amount=1.0, at=now))
    counted = sa.select(sa.func.count()).where(t.event.c.slot == slot, t.event.c.kind == _TRY)
    if connection.execute(counted).scalar_one() < tries:
        return False
    release(connection, slot, STATE, now)
    return move(connection, participant, to=STATE, only_from=("training",))
