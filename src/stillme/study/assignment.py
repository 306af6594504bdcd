"""Give each participant one task, and each item exactly k raters.

A batch has k slots that count. A slot that expires, is returned or withdrawn becomes void, and another with the same
number takes its place; answers in a void slot never count. All of this happens inside the caller's
transaction: `BEGIN IMMEDIATE` on SQLite, row locks on PostgreSQL.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.presenting import present

RECLAIMABLE = ("expired",)
"""Reasons after which an owner who comes back gets the slot again, if nobody took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A participant's own slot."""

    slot: str
    batch: str
    n: int
    epoch: int
    done: bool


@dataclass(frozen=True, slots=True)
class Full:
    """Every slot is taken; one may come free later."""


@dataclass(frozen=True, slots=True)
class PassedOn:
    """The participant's slot ran out and somebody else has it now."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The study takes no more participants."""


Claim = Held | Full | PassedOn | Closed


def claim(connection: sa.Connection, study: str, participant: str, now: float) -> Claim:
    """The participant's own slot, or a new one from the most-filled batch that still has room."""
    # Two claims of one participant at once wait for each other here; others do not.
    connection.execute(
        sa.select(t.participant.c.id).where(t.participant.c.id == participant).with_for_update()
    ).scalar_one()
    own = _own(connection, participant)
    if own is not None:
        return own
    state, lease = connection.execute(sa.select(t.study.c.state, t.study.c.lease_s).where(t.study.c.id == study)).one()
    if state == "closed":
        return Closed()
    before = connection.execute(
        sa.select(t.slot).where(t.slot.c.participant == participant).order_by(t.slot.c.ended.desc())
    ).first()
    if before is not None:
        return _reclaim(connection, before, now + lease)
    expire(connection, study, now)
    slot = connection.execute(_next_open(study)).first()
    if slot is None:
        return Full()
    _hold(connection, slot.id, participant, slot.epoch + 1, now, now + lease)
    present(connection, slot.id, slot.batch, slot.n)
    return Held(slot=slot.id, batch=slot.batch, n=slot.n, epoch=slot.epoch + 1, done=False)


def expire(connection: sa.Connection, study: str, now: float) -> int:
    """Void every slot whose lease ran out; returns how many."""
    late = connection.execute(
        sa.select(t.slot.c.id, t.slot.c.batch, t.slot.c.n)
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .where(t.batch.c.study == study, t.slot.c.state == "held", t.slot.c.lease_until < now)
        .with_for_update(of=t.slot, skip_locked=True)
    ).all()
    for row in late:
        _void(connection, row.id, row.batch, row.n, "expired", now)
    return len(late)


def release(connection: sa.Connection, slot: str, reason: str, now: float) -> bool:
    """Void a slot that is held or done and open its place to somebody else; false if it was neither."""
    row = connection.execute(sa.select(t.slot).where(t.slot.c.id == slot).with_for_update()).first()
    if row is None or row.state not in ("held", "done"):
        return False
    _void(connection, row.id, row.batch, row.n, reason, now)
    return True


def finish(connection: sa.Connection, slot: str, now: float) -> None:
    """Mark a slot as done: its answers count."""
    connection.execute(t.slot.update().where(t.slot.c.id == slot).values(state="done", ended=now))


def create_slots(connection: sa.Connection, batches: Sequence[str], k: int) -> None:
    """The k slots of each batch."""
    rows = [_open_slot(batch, n) for batch in batches for n in range(k)]
    connection.execute(t.slot.insert(), rows)


def _own(connection: sa.Connection, participant: str) -> Held | None:
    row = connection.execute(
        sa.select(t.slot).where(t.slot.c.participant == participant, t.slot.c.state != "void")
    ).first()
    if row is None:
        return None
    return Held(slot=row.id, batch=row.batch, n=row.n, epoch=row.epoch, done=row.state == "done")


def _reclaim(connection: sa.Connection, before: sa.Row[Any], until: float) -> Claim:
    if before.reason not in RECLAIMABLE:
        return PassedOn()
    spare = connection.execute(
        sa.select(t.slot.c.id)
        .where(t.slot.c.batch == before.batch, t.slot.c.n == before.n, t.slot.c.state == "open")
        .with_for_update(skip_locked=True)
    ).first()
    if spare is None:
        return PassedOn()
    connection.execute(t.slot.delete().where(t.slot.c.id == spare.id))
    # A new epoch, so that a page left open in another tab notices.
    epoch = before.epoch + 1
    connection.execute(
        t.slot.update()
        .where(t.slot.c.id == before.id)
        .values(state="held", epoch=epoch, lease_until=until, ended=None, reason=None)
    )
    return Held(slot=before.id, batch=before.batch, n=before.n, epoch=epoch, done=False)


def _next_open(study: str) -> sa.Select[Any, Any, Any, Any]:
    other = t.slot.alias()
    filled = (
        sa.select(sa.func.count())
        .where(other.c.batch == t.slot.c.batch, other.c.state.in_(("held", "done")))
        .scalar_subquery()
    )
    return (
        sa.select(t.slot.c.id, t.slot.c.batch, t.slot.c.n, t.slot.c.epoch)
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .where(t.batch.c.study == study, t.slot.c.state == "open")
        .order_by(filled.desc(), t.slot.c.batch, t.slot.c.n)
        .limit(1)
        .with_for_update(of=t.slot, skip_locked=True)
    )


def _hold(connection: sa.Connection, slot: str, participant: str, epoch: int, now: float, until: float) -> None:
    connection.execute(
        t.slot.update()
        .where(t.slot.c.id == slot)
        .values(state="held", participant=participant, epoch=epoch, lease_until=until, begun=now)
    )


def _void(connection: sa.Connection, slot: str, batch: str, n: int, reason: str, now: float) -> None:
    connection.execute(t.slot.update().where(t.slot.c.id == slot).values(state="void", reason=reason, ended=now))
    connection.execute(t.slot.insert().values(**_open_slot(batch, n)))


def _open_slot(batch: str, n: int) -> dict[str, object]:
    return {"id": secrets.token_hex(16), "batch": batch, "n": n, "state": "open", "lease_until": 0.0, "epoch": 0}
