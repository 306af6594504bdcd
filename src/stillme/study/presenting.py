"""Decide, once and before anything is shown, the order of a participant's items and the side of each output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.pairs import is_pair
from stillme.study.sampling import shuffled
from stillme.types import digest


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
