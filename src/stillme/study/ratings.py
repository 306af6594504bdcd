"""All ratings of a study as one long table, with pseudonyms instead of participants."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from stillme.study import pairs
from stillme.study import schema as t
from stillme.study.answers import CANNOT_TELL
from stillme.study.assignment import EXCLUDED
from stillme.study.opening import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Rater:
    """One participant who holds or has finished a task."""

    name: str
    """The pseudonym."""
    slot: str
    participant: str
    batch: str
    state: str
    excluded: str
    """Why the researcher excluded this rater; empty if not."""
    begun: float
    ended: float | None
    asked: int
    version: int
    written: bool
    """Whether the answers have been written into the run; they stay there."""

    @property
    def finished(self) -> bool:
        """Whether every question was answered."""
        return self.ended is not None

    @property
    def counts(self) -> bool:
        """Whether the answers count towards k."""
        return self.finished and not self.excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One answer."""

    rater: str
    slot: str
    item: str
    """The drawn item, as in items.json."""
    kind: str
    repeats: str
    position: int
    side: int
    """0 for A: where the output stood, or the first of two people."""
    output: int
    """Which of the item's outputs stood there."""
    axis: str
    value: int
    """1 to 5; of two people 1, 2 or `pairs.NEITHER`, in the order of the request; 0 for "cannot tell"."""
    at: float
    expected: tuple[int, int] | None
    shown: int | None
    """The smallest side of the item's pictures on the screen, in its own pixels."""

    @property
    def is_score(self) -> bool:
        """Whether it counts as a score: "cannot tell" and "neither of the two" do not."""
        return self.value != CANNOT_TELL and (self.axis, self.value) != (pairs.AXIS, pairs.NEITHER)


def pseudonym(study: Study, participant: str) -> str:
    """A rater's name in tables: stable within the study, unknown to Prolific."""
    return "r-" + study.keys.pseudonym("rater", participant)[:10]


def raters(study: Study, connection: sa.Connection) -> list[Rater]:
    """Everybody who holds or has finished a task; those who were excluded too."""
    rows = connection.execute(
        sa.select(t.slot, t.participant.c.excluded, t.participant.c.written)
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .join(t.participant, t.participant.c.id == t.slot.c.participant)
        .where(
            t.batch.c.study == study.id,
            t.slot.c.state.in_(("held", "done")) | (t.slot.c.reason == EXCLUDED),
        )
        .order_by(t.slot.c.begun)
    ).all()
    shown = _shown(study, connection)
    return [
        Rater(
            name=pseudonym(study, row.participant),
            slot=row.id,
            participant=row.participant,
            batch=row.batch,
            state=row.state,
            excluded=row.excluded or "",
            begun=row.begun,
            ended=None if row.state == "held" else row.ended,
            asked=sum(sides * len(study.asked(questions, row.version)) for sides, questions in shown[row.batch]),
            version=row.version or 1,
            written=row.written is not None,
        )
        for row in rows
    ]


def ratings(study: Study, connection: sa.Connection, by: Sequence[Rater]) -> list[Rating]:
    """Every answer of these raters; the training is not kept."""
    expected = _expected(study, connection)
    originals = {row.id: row.drawn for row in connection.execute(sa.select(t.item.c.id, t.item.c.drawn))}
    kept: list[Rating] = []
    for rater in by:
        rows = connection.execute(
            sa.select(t.answer, t.presentation.c.swapped, t.item)
            .join(
                t.presentation,
                (t.presentation.c.slot == t.answer.c.slot) & (t.presentation.c.position == t.answer.c.position),
            )
            .join(t.item, t.item.c.id == t.presentation.c.item)
            .where(t.answer.c.slot == rater.slot, t.answer.c.value.is_not(None))
            .order_by(t.answer.c.position, t.answer.c.side, t.answer.c.question)
        )
        for row in rows:
            axis = study.asked(row.questions, rater.version)[int(row.question)]
            if axis == pairs.AXIS:
                side, output, value = row.swapped, 0, pairs.turned(row.value) if row.swapped else row.value
            else:
                side, output, value = row.side, 1 - row.side if row.swapped else row.side, row.value
            kept.append(
                Rating(
                    rater=rater.name,
                    slot=rater.slot,
                    item=row.drawn,
                    kind=row.kind,
                    repeats=originals.get(row.repeats, ""),
                    position=row.position,
                    side=side,
                    output=output,
                    axis=axis,
                    value=value,
                    at=row.at,
                    shown=row.shown,
                    expected=expected.get((row.drawn, output, axis)),
                )
            )
    return kept


def active_seconds(connection: sa.Connection, slot: str) -> dict[int, float]:
    """Active time by position, as the page measured it."""
    rows = connection.execute(
        sa.select(t.event.c.position, sa.func.sum(t.event.c.amount))
        .where(t.event.c.slot == slot, t.event.c.kind == "active")
        .group_by(t.event.c.position)
    )
    return {row[0]: row[1] / 1000 for row in rows}


def minutes_taken(connection: sa.Connection, rater: Rater) -> float | None:
    """How long a finished rater took. By the page's own clock where the server's was set back."""
    if rater.ended is None:
        return None
    active = sum(active_seconds(connection, rater.slot).values())
    return max(rater.ended - rater.begun, active) / 60


def _shown(study: Study, connection: sa.Connection) -> Mapping[str, Sequence[tuple[int, str]]]:
    """By batch, the sides and questions of its items."""
    rows = connection.execute(
        sa.select(t.batch_item.c.batch, t.item.c.sides, t.item.c.questions)
        .join(t.item, t.item.c.id == t.batch_item.c.item)
        .where(t.item.c.study == study.id)
    )
    shown: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        shown[row.batch].append((row.sides, row.questions))
    return shown


def _expected(study: Study, connection: sa.Connection) -> dict[tuple[str, int, str], tuple[int, int]]:
    rows = connection.execute(
        sa.select(t.item.c.drawn, t.image.c.role, t.image.c.expected_json)
        .join(t.item, t.item.c.id == t.image.c.item)
        .where(t.item.c.study == study.id, t.image.c.expected_json.is_not(None))
    )
    return {
        (row.drawn, row.role - 1, axis): (low, high)
        for row in rows
        for axis, (low, high) in json.loads(row.expected_json).items()
    }
