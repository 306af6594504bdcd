"""Give each participant one task, and each item exactly k raters.

A batch has k slots that count. A slot that expires, is returned, withdrawn or excluded becomes void, and another with
the same number takes its place; answers in a void slot never count. All of this happens inside the caller's
transaction, which is the only one that writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import sqlalchemy as sa

from stillme.core.types import digest
from stillme.study import schema as t
from stillme.study.candidates import shuffled
from stillme.study.items import is_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """An item of a batch, as far as its order and sides need."""

    id: str
    kind: str
    offset: int
    """Random per item: the side of its first output, or portrait, for the batch's first slot."""
    sides: int
    questions: str = "[]"
    """As JSON."""
    repeats: str | None = None


def present(connection: sa.Connection, slot: str, batch: str, n: int) -> None:
    """Store the order and sides of a slot's items."""
    columns = [t.item.c[field.name] for field in fields(BatchItem)]
    rows = connection.execute(
        sa.select(*columns)
        .join(t.batch_item, t.batch_item.c.item == t.item.c.id)
        .where(t.batch_item.c.batch == batch)
        .order_by(t.item.c.id)
    )
    items = [BatchItem(**row) for row in rows.mappings()]
    ordered = order(items, np.random.default_rng(int(digest(slot)[:16], 16)))
    connection.execute(
        t.presentation.insert(),
        [
            {"slot": slot, "position": position, "item": item.id, "swapped": int(swapped(item, n))}
            for position, item in enumerate(ordered)
        ],
    )


def swapped(item: BatchItem, n: int) -> bool:
    """Whether the first output stands on side B, or the first of two people is person B.

    Over a batch's slots each is on each side equally often.
    """
    two = item.sides == 2 or is_pair(json.loads(item.questions))
    return two and (n + item.offset) % 2 == 1


def order(items: Sequence[BatchItem], stream: np.random.Generator) -> list[BatchItem]:
    """A random order in which repeats come late, their originals early, and attention checks in between."""
    originals = {item.repeats for item in items if item.repeats}
    repeats = shuffled([item for item in items if item.kind == "repeat"], stream)
    attention = shuffled([item for item in items if item.kind == "attention"], stream)
    early = [item for item in items if item.id in originals]
    rest = [item for item in items if item.kind not in ("repeat", "attention") and item.id not in originals]
    size = len(rest) + len(early)
    placed = shuffled(rest, stream)
    for item in shuffled(early, stream):
        placed.insert(int(stream.integers(0, max(1, size // 3))), item)
    for index, item in enumerate(attention):
        # Spread over the task: one within each equal part.
        low, high = (len(placed) * part // len(attention) for part in (index, index + 1))
        placed.insert(int(stream.integers(max(1, low), max(2, high + 1))), item)
    for item in repeats:
        placed.insert(int(stream.integers(len(placed) - len(placed) // 5, len(placed) + 1)), item)
    return placed


RECLAIMABLE = ("expired",)
"""Reasons after which an owner who comes back gets the slot again, if nobody took it."""
LEFT = ("returned", "timed out")
"""Reasons after which somebody who comes with a new submission may begin anew."""
EXCLUDED = "excluded"
"""The reason of a finished slot that is void because its rater was excluded."""


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
    """The participant's slot is not theirs any more."""

    reason: str
    """Why it became void."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The study takes no more participants."""


Claim = Held | Full | PassedOn | Closed


def claim(connection: sa.Connection, study: str, participant: str, now: float) -> Claim:
    """The participant's own slot, or a new one from the most-filled batch that still has room."""
    version = connection.execute(
        sa.select(t.participant.c.version).where(t.participant.c.id == participant)
    ).scalar_one()
    own = _own(connection, participant)
    if own is not None:
        return own
    open_now = sa.select(t.study.c.state, t.study.c.lease_s).where(t.study.c.id == study)
    state, lease = connection.execute(open_now).one()
    if state == "closed":
        return Closed()
    before = connection.execute(
        sa.select(t.slot).where(t.slot.c.participant == participant).order_by(t.slot.c.ended.desc())
    ).first()
    if before is not None and not _began_again(connection, before):
        return _reclaim(connection, before, now + lease)
    expire(connection, study, now)
    slot = connection.execute(_next_open(study)).first()
    if slot is None:
        return Full()
    connection.execute(
        t.slot.update()
        .where(t.slot.c.id == slot.id)
        .values(
            state="held",
            participant=participant,
            epoch=slot.epoch + 1,
            lease_until=now + lease,
            begun=now,
            version=version,
        )
    )
    present(connection, slot.id, slot.batch, slot.n)
    return Held(slot=slot.id, batch=slot.batch, n=slot.n, epoch=slot.epoch + 1, done=False)


def expire(connection: sa.Connection, study: str, now: float) -> int:
    """Void every slot whose lease ran out; returns how many."""
    late = connection.execute(
        sa.select(t.slot.c.id, t.slot.c.batch, t.slot.c.n)
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .where(t.batch.c.study == study, t.slot.c.state == "held", t.slot.c.lease_until < now)
    ).all()
    for row in late:
        _void(connection, row.id, row.batch, row.n, "expired", now)
    return len(late)


def release(connection: sa.Connection, slot: str, reason: str, now: float) -> bool:
    """Void a slot that is held or done and open its place to somebody else; false if it was neither."""
    row = connection.execute(sa.select(t.slot).where(t.slot.c.id == slot)).first()
    if row is None or row.state not in ("held", "done"):
        return False
    _void(connection, row.id, row.batch, row.n, reason, now)
    return True


def end_held(connection: sa.Connection, study: str, reason: str, now: float) -> int:
    """Void every slot that is still held; returns how many."""
    held = connection.execute(
        sa.select(t.slot.c.id)
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .where(t.batch.c.study == study, t.slot.c.state == "held")
    ).scalars()
    return sum(release(connection, slot, reason, now) for slot in held.all())


def finish(connection: sa.Connection, slot: str, now: float) -> None:
    """Mark a slot as done: its answers count, unless its rater was excluded meanwhile."""
    row = connection.execute(
        sa.select(t.slot.c.batch, t.slot.c.n, t.slot.c.begun, t.participant.c.excluded)
        .join(t.participant, t.participant.c.id == t.slot.c.participant)
        .where(t.slot.c.id == slot)
    ).one()
    # The clock may have been set back since.
    ended = max(now, row.begun)
    connection.execute(t.slot.update().where(t.slot.c.id == slot).values(state="done", ended=ended))
    if row.excluded:
        _void(connection, slot, row.batch, row.n, EXCLUDED, ended)


def exclude(connection: sa.Connection, participant: str, reason: str, now: float) -> None:
    """Have a participant's answers not count. A finished place opens again at once, a held one when its task ends."""
    connection.execute(t.participant.update().where(t.participant.c.id == participant).values(excluded=reason))
    own = _own(connection, participant)
    if own is not None and own.done:
        release(connection, own.slot, EXCLUDED, now)


def include(connection: sa.Connection, participant: str) -> bool:
    """Have a participant's answers count again; false if somebody else has the place by now."""
    excluded = sa.select(t.slot).where(t.slot.c.participant == participant, t.slot.c.reason == EXCLUDED)
    slot = connection.execute(excluded).first()
    if slot is not None:
        if not _take_back_place(connection, slot):
            return False
        connection.execute(t.slot.update().where(t.slot.c.id == slot.id).values(state="done", reason=None))
    connection.execute(t.participant.update().where(t.participant.c.id == participant).values(excluded=None))
    return True


def create_slots(connection: sa.Connection, batches: Sequence[str], places: Sequence[int]) -> None:
    """Open slots with these numbers in each batch."""
    rows = [_open_slot(batch, n) for batch in batches for n in places]
    if rows:
        connection.execute(t.slot.insert(), rows)


def set_raters(connection: sa.Connection, study: str, k: int) -> int:
    """Have k slots in every batch; returns how many there are now, as a slot that was taken stays."""
    batches = connection.execute(sa.select(t.batch.c.id).where(t.batch.c.study == study)).scalars().all()
    live = t.slot.c.batch.in_(batches) & (t.slot.c.state != "void")
    before = 1 + connection.execute(sa.select(sa.func.max(t.slot.c.n)).where(live)).scalar_one()
    taken = connection.execute(sa.select(sa.func.max(t.slot.c.n)).where(live, t.slot.c.state != "open")).scalar()
    now = max(k, 0 if taken is None else taken + 1)
    connection.execute(t.slot.delete().where(live, t.slot.c.n >= now))
    create_slots(connection, batches, range(before, now))
    return now


def _own(connection: sa.Connection, participant: str) -> Held | None:
    row = connection.execute(
        sa.select(t.slot).where(t.slot.c.participant == participant, t.slot.c.state != "void")
    ).first()
    if row is None:
        return None
    return Held(slot=row.id, batch=row.batch, n=row.n, epoch=row.epoch, done=row.state == "done")


def _began_again(connection: sa.Connection, before: sa.Row[Any]) -> bool:
    """Whether they agreed anew after they had left."""
    agreed = connection.execute(sa.select(t.consent.c.at).where(t.consent.c.participant == before.participant)).scalar()
    return before.reason in LEFT and agreed is not None and agreed >= before.ended


def _reclaim(connection: sa.Connection, before: sa.Row[Any], until: float) -> Claim:
    if before.reason not in RECLAIMABLE:
        return PassedOn(before.reason or "")
    if not _take_back_place(connection, before):
        return PassedOn(before.reason or "")
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
    )


def _take_back_place(connection: sa.Connection, slot: sa.Row[Any]) -> bool:
    """Remove the slot that was opened in place of a void one; false if somebody has it."""
    spare = connection.execute(
        sa.select(t.slot.c.id).where(t.slot.c.batch == slot.batch, t.slot.c.n == slot.n, t.slot.c.state == "open")
    ).first()
    if spare is None:
        return False
    connection.execute(t.slot.delete().where(t.slot.c.id == spare.id))
    return True


def _void(connection: sa.Connection, slot: str, batch: str, n: int, reason: str, now: float) -> None:
    # A task that was finished ended then.
    ended = sa.func.coalesce(t.slot.c.ended, now)
    connection.execute(t.slot.update().where(t.slot.c.id == slot).values(state="void", reason=reason, ended=ended))
    connection.execute(t.slot.insert().values(**_open_slot(batch, n)))


def _open_slot(batch: str, n: int) -> dict[str, object]:
    return {"id": secrets.token_hex(16), "batch": batch, "n": n, "state": "open", "lease_until": 0.0, "epoch": 0}
