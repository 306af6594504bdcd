"""Give each participant one task, and each item exactly k raters.

A batch has k slots that count. A slot that expires, is returned, withdrawn or excluded becomes void, and another with
the same number takes its place; answers in a void slot never count. All of this happens inside the caller's
transaction, which is the only one that writes.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stillme.core.types import digest
from stillme.study.candidates import shuffled
from stillme.study.items import Item
from stillme.web.database import Transaction


def present(connection: Transaction, slot: str, n: int, items: Iterable[Item]) -> None:
    """Store the order and sides of a slot's items."""
    offsets = dict(connection.execute("SELECT id, offset FROM item").fetchall())
    ordered = order(sorted(items, key=lambda item: item.id), np.random.default_rng(int(digest(slot)[:16], 16)))
    rows = (
        {"slot": slot, "position": position, "item": item.id, "swapped": swapped(item, offsets[item.id], n)}
        for position, item in enumerate(ordered)
    )
    connection.insert("presentation", *rows)


def swapped(item: Item, offset: int, n: int) -> bool:
    """Whether the first output stands on side B, or the first of two people is person B.

    Over a batch's slots each is on each side equally often.
    """
    return item.has_sides and (n + offset) % 2 == 1


def order(items: Sequence[Item], stream: np.random.Generator) -> list[Item]:
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


RECLAIMABLE = "expired"
"""The reason after which an owner who comes back gets the slot again, if no one else took it."""
LEFT = ("returned", "timed out")
"""Reasons after which a participant with a new submission may begin again."""
EXCLUDED = "excluded"
"""The reason of a finished slot that is void because its rater was excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A participant's own slot."""

    slot: str
    epoch: int
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlace:
    """The participant has no slot."""

    why: Literal["full", "closed", "passed on"]
    """Every slot is taken, of which one may come free later; the study has ended; or the own slot became void."""
    reason: str = ""
    """Why it became void."""


def claim(connection: Transaction, items: Iterable[Item], participant: str, now: float) -> Held | NoPlace:
    """The participant's own slot, or a new one from the most-filled batch that still has room."""
    if own := _own(connection, participant):
        return own
    state, lease = connection.execute("SELECT state, lease_s FROM study").fetchone()
    if state == "closed":
        return NoPlace(why="closed")
    before = connection.row("SELECT * FROM slot WHERE participant = ? ORDER BY ended DESC", (participant,))
    if before is not None and not _began_again(connection, before):
        return _reclaim(connection, before, now + lease)
    expire(connection, now)
    slot = connection.row(_NEXT_OPEN)
    if slot is None:
        return NoPlace(why="full")
    connection.execute(
        "UPDATE slot SET state = 'held', participant = :who, epoch = epoch + 1, lease_until = :until, begun = :now, "
        "version = (SELECT version FROM participant WHERE id = :who) WHERE id = :slot",
        {"who": participant, "until": now + lease, "now": now, "slot": slot["id"]},
    )
    present(connection, slot["id"], slot["n"], [item for item in items if item.batch == slot["batch"]])
    return Held(slot=slot["id"], epoch=slot["epoch"] + 1, done=False)


_NEXT_OPEN = """
SELECT * FROM slot WHERE state = 'open' ORDER BY
    (SELECT count(*) FROM slot other WHERE other.batch = slot.batch AND other.state IN ('held', 'done')) DESC, batch, n
"""


def expire(connection: Transaction, now: float) -> int:
    """Void every slot whose lease ran out; returns how many."""
    late = connection.column("SELECT id FROM slot WHERE state = 'held' AND lease_until < ?", (now,))
    return sum(release(connection, slot, "expired", now) for slot in late)


def end_held(connection: Transaction, reason: str, now: float) -> int:
    """Void every slot that is still held; returns how many."""
    held = connection.column("SELECT id FROM slot WHERE state = 'held'")
    return sum(release(connection, slot, reason, now) for slot in held)


def release(connection: Transaction, slot: str, reason: str, now: float) -> bool:
    """Void a slot that is held or done and open its place to another participant; false if it was neither."""
    # A task that was finished ended then.
    voided = connection.row(
        "UPDATE slot SET state = 'void', reason = ?, ended = coalesce(ended, ?) "
        "WHERE id = ? AND state IN ('held', 'done') RETURNING batch, n",
        (reason, now, slot),
    )
    if voided is None:
        return False
    create_slots(connection, [voided["batch"]], [voided["n"]])
    return True


def finish(connection: Transaction, slot: str, now: float) -> None:
    """Mark a slot as done: its answers count, unless its rater was excluded meanwhile."""
    # The clock may have been set back since it began.
    connection.execute("UPDATE slot SET state = 'done', ended = max(?, begun) WHERE id = ?", (now, slot))
    who = "SELECT excluded FROM participant JOIN slot ON participant.id = slot.participant WHERE slot.id = ?"
    if connection.value(who, (slot,)):
        release(connection, slot, EXCLUDED, now)


def exclude(connection: Transaction, participant: str, reason: str, now: float) -> None:
    """Have a participant's answers not count. A finished place opens again at once, a held one when its task ends."""
    connection.execute("UPDATE participant SET excluded = ? WHERE id = ?", (reason, participant))
    own = _own(connection, participant)
    if own is not None and own.done:
        release(connection, own.slot, EXCLUDED, now)


def include(connection: Transaction, participant: str) -> bool:
    """Have a participant's answers count again; false if another participant has the place by now."""
    slot = connection.row("SELECT * FROM slot WHERE participant = ? AND reason = ?", (participant, EXCLUDED))
    if slot is not None:
        if not _take_back_place(connection, slot):
            return False
        connection.execute("UPDATE slot SET state = 'done', reason = NULL WHERE id = ?", (slot["id"],))
    connection.execute("UPDATE participant SET excluded = NULL WHERE id = ?", (participant,))
    return True


def create_slots(connection: Transaction, batches: Iterable[int], places: Sequence[int]) -> None:
    """Open slots with these numbers in each batch."""
    rows = ({"id": secrets.token_hex(16), "batch": batch, "n": n, "state": "open"} for batch in batches for n in places)
    connection.insert("slot", *rows)


def set_raters(connection: Transaction, batches: int, k: int) -> int:
    """Have k slots in every batch; returns how many there are now, as a slot that was taken stays."""
    before, taken = connection.execute(
        "SELECT max(n) + 1, coalesce(max(n) FILTER (WHERE state <> 'open') + 1, 0) FROM slot WHERE state <> 'void'"
    ).fetchone()
    now = max(k, taken)
    connection.execute("DELETE FROM slot WHERE state = 'open' AND n >= ?", (now,))
    create_slots(connection, range(batches), range(before, now))
    return now


def _own(connection: Transaction, participant: str) -> Held | None:
    row = connection.row("SELECT * FROM slot WHERE participant = ? AND state <> 'void'", (participant,))
    return Held(slot=row["id"], epoch=row["epoch"], done=row["state"] == "done") if row else None


def _began_again(connection: Transaction, before: sqlite3.Row) -> bool:
    """Whether they agreed again after they had left."""
    agreed = connection.value("SELECT at FROM consent WHERE participant = ?", (before["participant"],))
    return before["reason"] in LEFT and agreed is not None and agreed >= before["ended"]


def _reclaim(connection: Transaction, before: sqlite3.Row, until: float) -> Held | NoPlace:
    if before["reason"] != RECLAIMABLE or not _take_back_place(connection, before):
        return NoPlace(why="passed on", reason=before["reason"] or "")
    # A new epoch, so that a page left open in another tab notices.
    epoch = before["epoch"] + 1
    connection.execute(
        "UPDATE slot SET state = 'held', epoch = ?, lease_until = ?, ended = NULL, reason = NULL WHERE id = ?",
        (epoch, until, before["id"]),
    )
    return Held(slot=before["id"], epoch=epoch, done=False)


def _take_back_place(connection: Transaction, slot: sqlite3.Row) -> bool:
    """Remove the slot that was opened in place of a void one; false if it is taken."""
    place = (slot["batch"], slot["n"])
    return connection.execute("DELETE FROM slot WHERE batch = ? AND n = ? AND state = 'open'", place).rowcount == 1
