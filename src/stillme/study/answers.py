"""Keep every answer: acknowledged only after it is on disk, and never overwritten by an older one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from stillme.core import rubric
from stillme.core.types import digest
from stillme.study import schema as t
from stillme.study.assignment import Held, finish
from stillme.study.checks import is_right
from stillme.study.config import Config
from stillme.study.entry import move
from stillme.study.items import EXAMPLE, Expected, anchors, format_of, is_pair, turned_back
from stillme.study.opening import Study

CANNOT_TELL = 0
AT_THE_END = -1
"""The position of a comment on the whole task."""
COMMENT_LENGTH = 2000
_CACHED_SLOTS = 5000


class Seen(BaseModel):
    """What was on the screen when the answer was given."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    pictures: int = Field(ge=0, le=10)
    """How many of the item's pictures had been decoded."""
    decoded: int = Field(ge=0, lt=100_000)
    """Their smallest side in the file, in pixels."""
    shown: int = Field(ge=0, lt=100_000)
    """Their smallest side on the screen, in CSS pixels without zoom."""


class SubmittedAnswer(BaseModel):
    """One click. `value` is 1 to 5, 0 for "cannot tell", or null when the answer was removed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    seq: int = Field(ge=1, lt=2**53)
    """Counts up in the participant's browser: of two answers to one question the higher number wins."""
    item: int = Field(ge=0, lt=10_000)
    side: int = Field(ge=0, le=1)
    question: int = Field(ge=0, lt=20)
    value: int | None = Field(ge=0, le=5)
    seen: Seen | None = None
    """Needed for every value."""
    corrects: bool = False
    """Given in the review of one's own answers: what was answered before is kept beside it."""


class SubmittedComment(BaseModel):
    """What a rater wrote about an item; empty to remove it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    seq: int = Field(ge=1, lt=2**53)
    item: int = Field(ge=0, lt=10_000)
    text: str = Field(max_length=COMMENT_LENGTH, pattern=r"^[^\x00]*$")


class Moment(BaseModel):
    """Something that happened on the page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    item: int = Field(ge=0, lt=10_000)
    kind: Literal["shown", "active", "hidden", "visible", "zoomed", "review"]
    amount: float = Field(default=0, ge=0, le=3_600_000)
    """Milliseconds for `active`."""


class SaveRequest(BaseModel):
    """What the browser sends: answers and moments of one slot."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epoch: int = Field(ge=0, lt=2**31)
    answers: list[SubmittedAnswer] = Field(default=[], max_length=100)
    comments: list[SubmittedComment] = Field(default=[], max_length=10)
    moments: list[Moment] = Field(default=[], max_length=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedItem:
    """One position of a slot: which item, and on which side its outputs stand."""

    item: str
    kind: str
    prompt: str
    questions: tuple[str, ...]
    sides: int
    swapped: bool
    pictures: int


class StalePage(Exception):
    """The slot is no longer this participant's, or a later page of theirs holds it."""


class NotSeen(Exception):
    """An answer to an item whose pictures were not all on the screen."""


class NotAsked(Exception):
    """An answer to something that was not asked."""


def presented_items(study: Study, connection: sa.Connection, slot: str) -> tuple[PresentedItem, ...]:
    """The items of a slot in their order, with the questions of its version."""
    rows = connection.execute(
        sa.select(t.presentation.c.swapped, t.item, t.slot.c.version)
        .join(t.item, t.item.c.id == t.presentation.c.item)
        .join(t.slot, t.slot.c.id == t.presentation.c.slot)
        .where(t.presentation.c.slot == slot)
        .order_by(t.presentation.c.position)
    )
    return tuple(
        PresentedItem(
            item=row.id,
            kind=row.kind,
            prompt=row.prompt,
            questions=study.asked(row.questions, row.version),
            sides=row.sides,
            swapped=bool(row.swapped),
            pictures=pictures_of(row.questions, row.sides),
        )
        for row in rows
    )


def pictures_of(questions: str, sides: int) -> int:
    """How many pictures an item with these questions (as JSON) shows."""
    return sides + (2 if is_pair(json.loads(questions)) else 1)


class Answers:
    """Writes answers. What a slot is asked never changes, so it is cached."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._items: dict[str, tuple[PresentedItem, ...]] = {}

    def save(self, participant: str, saving: SaveRequest) -> None:
        """Keep answers and moments in one transaction; on return they are on disk."""
        now = time.time()
        with self._study.database.writing() as connection:
            slot, version = self._own_slot(connection, participant, saving.epoch, now)
            shown = self.shown(connection, slot)
            self._check(shown, saving, can_abstain=self._study.config_of(version).can_abstain)
            moments = [(moment.item, moment.kind, moment.amount) for moment in saving.moments]
            if saving.answers:
                moments += self._store(connection, slot, saving.answers, now)
            for comment in saving.comments:
                self._keep_comment(connection, slot, comment.item, comment.text, comment.seq)
            if moments:
                rows = [
                    {"slot": slot, "position": position, "kind": kind, "amount": amount, "at": now}
                    for position, kind, amount in moments
                ]
                connection.execute(_ADD_EVENTS, rows)

    def complete(self, participant: str, epoch: int) -> list[int]:
        """End the task, unless positions still lack an answer: those are returned."""
        with self._study.database.writing() as connection:
            slot, _ = self._own_slot(connection, participant, epoch, time.time())
            missing = _missing(connection, slot, self.shown(connection, slot))
            if not missing:
                finish(connection, slot, time.time())
                move(connection, participant, to="debrief", only_from=("rating",))
            return missing

    def comment_at_the_end(self, participant: str, text: str) -> None:
        """Keep what a participant says about the whole task."""
        with self._study.database.writing() as connection:
            if slot := _last_slot(connection, participant):
                self._keep_comment(connection, slot, AT_THE_END, text[:COMMENT_LENGTH], time.time_ns() // 1000)

    def last_words(self, participant: str) -> str:
        """What a participant said about the whole task."""
        with self._study.database.reading() as connection:
            here = (t.comment.c.slot == _last_slot(connection, participant)) & (t.comment.c.position == AT_THE_END)
            return connection.execute(sa.select(t.comment.c.text).where(here)).scalar() or ""

    def _keep_comment(self, connection: sa.Connection, slot: str, position: int, text: str, seq: int) -> None:
        own = connection.execute(
            sa.select(t.identity.c.pid, t.identity.c.submission)
            .join(t.slot, t.slot.c.participant == t.identity.c.participant)
            .where(t.slot.c.id == slot)
        ).first()
        for known in filter(None, map(self._study.keys.decrypt, own or ())):
            # Comments are exported, and ids never are.
            text = re.sub(re.escape(known), "[id]", text, flags=re.IGNORECASE)
        where = {"slot": slot, "position": position}
        connection.execute(_COMMENT, {**where, "text": text.strip(), "seq": seq, "at": time.time()})

    def shown(self, connection: sa.Connection, slot: str) -> tuple[PresentedItem, ...]:
        """The items of a slot, cached."""
        if slot not in self._items:
            if len(self._items) > _CACHED_SLOTS:
                self._items.clear()
            self._items[slot] = presented_items(self._study, connection, slot)
        return self._items[slot]

    def _own_slot(self, connection: sa.Connection, participant: str, epoch: int, now: float) -> tuple[str, int | None]:
        """The participant's slot, locked, with its lease renewed, and its version."""
        until = now + 60 * self._study.config.lease_minutes
        row = connection.execute(_RENEW, {"participant": participant, "epoch": epoch, "until": until}).first()
        if row is None:
            raise StalePage
        return row[0], row[1]

    def _check(self, shown: Sequence[PresentedItem], saving: SaveRequest, *, can_abstain: bool) -> None:
        for answer in saving.answers:
            if answer.item >= len(shown):
                raise NotAsked
            item = shown[answer.item]
            if answer.side >= item.sides or answer.question >= len(item.questions):
                raise NotAsked
            if (answer.value or 0) > len(anchors(item.questions[answer.question])):
                raise NotAsked
            if answer.value == CANNOT_TELL and not can_abstain:
                raise NotAsked
            if answer.value is not None and not self._was_seen(item, answer.seen):
                raise NotSeen
        if any(comment.item >= len(shown) for comment in saving.comments):
            raise NotAsked
        if any(moment.item >= len(shown) for moment in saving.moments):
            raise NotAsked

    def _was_seen(self, item: PresentedItem, seen: Seen | None) -> bool:
        side = format_of(self._study.pictures).side
        return seen is not None and (seen.pictures, seen.decoded) == (item.pictures, side) and seen.shown > 0

    def _store(
        self, connection: sa.Connection, slot: str, answers: Sequence[SubmittedAnswer], now: float
    ) -> list[tuple[int, str, float]]:
        """Write the answers that are newer than the stored ones; returns which of those were revised."""
        revised: list[tuple[int, str, float]] = []
        for answer in sorted(answers, key=lambda answer: answer.seq):
            where = {"slot": slot, "position": answer.item, "side": answer.side, "question": answer.question}
            before = connection.execute(_CURRENT, where).first()
            if before is not None:
                if answer.seq <= before[0]:
                    continue
                if before[1] != answer.value:
                    revised.append((answer.item, "revised", 0.0))
            seen = answer.seen.model_dump() if answer.seen else dict.fromkeys(Seen.model_fields)
            given = {"value": answer.value, "seq": answer.seq, "at": now, "corrects": answer.corrects}
            connection.execute(_STORE, {**where, **seen, **given})
        return revised


# Plain SQL: every click runs these, and building the statements took longer than running them.
_RENEW = sa.text(
    "UPDATE slot SET lease_until = :until WHERE participant = :participant AND state = 'held' AND epoch = :epoch "
    "RETURNING id, version"
)
_REVIEWED = sa.text("SELECT 1 FROM event WHERE slot = :slot AND kind = 'review'")
_CURRENT = sa.text(
    "SELECT seq, value FROM answer "
    "WHERE slot = :slot AND position = :position AND side = :side AND question = :question"
)
_STORE = sa.text(
    "INSERT INTO answer (slot, position, side, question, value, seq, at, pictures, decoded, shown) "
    "VALUES (:slot, :position, :side, :question, :value, :seq, :at, :pictures, :decoded, :shown) "
    "ON CONFLICT (slot, position, side, question) DO UPDATE SET value = excluded.value, seq = excluded.seq, "
    "at = excluded.at, pictures = excluded.pictures, decoded = excluded.decoded, shown = excluded.shown, "
    "first = CASE WHEN :corrects THEN COALESCE(answer.first, answer.value) ELSE answer.first END "
    "WHERE excluded.seq > answer.seq"
)
_COMMENT = sa.text(
    "INSERT INTO comment (slot, position, text, seq, at) VALUES (:slot, :position, :text, :seq, :at) "
    "ON CONFLICT (slot, position) DO UPDATE SET text = excluded.text, seq = excluded.seq, at = excluded.at "
    "WHERE excluded.seq > comment.seq"
)
_ADD_EVENTS = sa.text(
    "INSERT INTO event (slot, position, kind, amount, at) VALUES (:slot, :position, :kind, :amount, :at)"
)


def _last_slot(connection: sa.Connection, participant: str) -> str | None:
    slots = sa.select(t.slot.c.id).where(t.slot.c.participant == participant)
    return connection.execute(slots.order_by(t.slot.c.begun.desc())).scalar()


def _missing(connection: sa.Connection, slot: str, shown: Sequence[PresentedItem]) -> list[int]:
    counted = connection.execute(
        sa.select(t.answer.c.position, sa.func.count())
        .where(t.answer.c.slot == slot, t.answer.c.value.is_not(None))
        .group_by(t.answer.c.position)
    )
    answered: Mapping[int, int] = {row[0]: row[1] for row in counted}
    return [
        position for position, item in enumerate(shown) if answered.get(position, 0) < item.sides * len(item.questions)
    ]


def rating_data(
    study: Study, connection: sa.Connection, config: Config, held: Held, shown: Sequence[PresentedItem]
) -> dict[str, Any]:
    """The rating page's data: items in the participant's own order, and what is answered already."""
    pictures = _pictures(connection, [item.item for item in shown])
    answers = connection.execute(sa.select(t.answer).where(t.answer.c.slot == held.slot)).all()
    comments = connection.execute(sa.select(t.comment).where(t.comment.c.slot == held.slot)).all()
    return {
        "queue": digest(["queue", held.slot]),
        "epoch": held.epoch,
        "reviewing": connection.execute(_REVIEWED, {"slot": held.slot}).first() is not None,
        "seq": max((row.seq for row in (*answers, *comments)), default=0),
        "picture": asdict(format_of(study.pictures)),
        "questions": _questions(config),
        "abstain": config.can_abstain,
        "items": [_item_data(item, pictures[item.item]) for item in shown],
        "answers": [[row.position, row.side, row.question, row.value] for row in answers],
        "comments": [[row.position, row.text] for row in comments],
    }


def training_items(study: Study, connection: sa.Connection, version: int | None) -> list[PresentedItem]:
    """The practice items, the same for everybody of a version."""
    rows = connection.execute(
        sa.select(t.item).where(t.item.c.study == study.id, t.item.c.kind == "training").order_by(t.item.c.drawn)
    )
    return [_training_item(study, row, version) for row in rows if row.drawn != EXAMPLE]


def example_pictures(study: Study, connection: sa.Connection) -> list[str]:
    """The pictures of the guide's example; none in studies that were drawn without one."""
    row = connection.execute(
        sa.select(t.item.c.id).where(t.item.c.study == study.id, t.item.c.drawn == EXAMPLE)
    ).scalar()
    return _pictures(connection, [row])[row] if row else []


def _training_item(study: Study, row: sa.Row[Any], version: int | None) -> PresentedItem:
    return PresentedItem(
        item=row.id,
        kind=row.kind,
        prompt=row.prompt,
        questions=study.asked(row.questions, version),
        sides=row.sides,
        swapped=False,
        pictures=pictures_of(row.questions, row.sides),
    )


def training_data(study: Study, connection: sa.Connection, version: int | None) -> dict[str, Any]:
    """The training page's data."""
    config = study.config_of(version)
    shown = training_items(study, connection, version)
    pictures = _pictures(connection, [item.item for item in shown])
    return {
        "questions": _questions(config),
        "abstain": config.can_abstain,
        "items": [_item_data(item, pictures[item.item]) for item in shown],
        "picture": asdict(format_of(study.pictures)),
        "answers": [],
    }


def feedback(
    connection: sa.Connection, item: PresentedItem, answers: Sequence[Sequence[int | None]]
) -> list[list[str]]:
    """For each side and question an empty text if the answer is right, else a hint."""
    return [
        [
            _hint(question, expected) if is_right(expected, question, value) is False or value is None else ""
            for question, value in zip(item.questions, given, strict=True)
        ]
        for expected, given in zip(expectations(connection, item), answers, strict=True)
    ]


def expectations(connection: sa.Connection, item: PresentedItem) -> list[Expected]:
    """The right answers by side as shown; empty where none is known."""
    rows = connection.execute(
        sa.select(t.image.c.expected_json)
        .where(t.image.c.item == item.item, t.image.c.role > 0)
        .order_by(t.image.c.role)
    ).scalars()
    expected: list[Expected] = [json.loads(text) if text else {} for text in rows]
    if item.swapped and is_pair(item.questions):
        return [{name: (turned_back(low), turned_back(high)) for name, (low, high) in expected[0].items()}]
    return expected[::-1] if item.swapped else expected


def _hint(question: str, expected: Expected) -> str:
    if question not in expected:
        return "Please answer this question."
    low, high = expected[question]
    right = " or ".join(f"{value} ({anchors(question)[value - 1]})" for value in sorted({low, high}))
    return f"Look again: here we would answer {right}."


def _questions(config: Config) -> dict[str, Mapping[str, Any]]:
    """The rubric's wording, exactly as the models get it."""
    axes = rubric.load().axes
    return {
        name: {"title": axes[name].title, "question": axes[name].question, "scale": list(anchors(name))}
        for name in config.questions
    }


def _item_data(item: PresentedItem, pictures: Sequence[str]) -> dict[str, Any]:
    sources, outputs = list(pictures[: -item.sides]), list(pictures[-item.sides :])
    if item.swapped:
        (sources if is_pair(item.questions) else outputs).reverse()
    return {
        "prompt": item.prompt,
        "pictures": [*sources, *outputs],
        "sources": len(sources),
        "questions": list(item.questions),
    }


def _pictures(connection: sa.Connection, items: Sequence[str]) -> dict[str, list[str]]:
    rows = connection.execute(
        sa.select(t.image.c.item, t.image.c.id)
        .where(t.image.c.item.in_(items))
        # People in the order of the request, then the outputs.
        .order_by(t.image.c.role > 0, sa.func.abs(t.image.c.role))
    )
    pictures: dict[str, list[str]] = {}
    for row in rows:
        pictures.setdefault(row.item, []).append(row.id)
    return pictures
