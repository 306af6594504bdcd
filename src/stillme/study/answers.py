"""Keep every answer: acknowledged only after it is on disk, and never overwritten by an older one."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stillme.core import rubric
from stillme.core.types import digest
from stillme.study.assignment import Held, finish
from stillme.study.config import StudyConfig
from stillme.study.entry import RequestRefused, move
from stillme.study.items import EXAMPLE, Expected, Item, anchors, format_of, turned_back
from stillme.study.opening import Study
from stillme.web.database import Transaction

CANNOT_TELL = 0
AT_THE_END = -1
"""The position of a comment on the whole task."""
COMMENT_LENGTH = 2000


class SentByPage(BaseModel):
    """What the page's script may send, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Seen(SentByPage):
    """What was on the screen when the answer was given."""

    pictures: int = Field(ge=0, le=10)
    """How many of the item's pictures had been decoded."""
    decoded: int = Field(ge=0, lt=100_000)
    """Their smallest side in the file, in pixels."""
    shown: int = Field(ge=0, lt=100_000)
    """Their smallest side on the screen, in CSS pixels without zoom."""


class SubmittedAnswer(SentByPage):
    """One click. `value` is 1 to 5, 0 for "cannot tell", or null when the answer was removed."""

    seq: int = Field(ge=1, lt=2**53)
    """Counts up in the participant's browser: of two answers to one question the higher number wins."""
    item: int = Field(ge=0, lt=10_000)
    side: int = Field(ge=0, le=1)
    question: int = Field(ge=0, lt=20)
    value: int | None = Field(ge=0, le=5)
    seen: Seen | None = None
    """Needed for every value."""
    corrects: bool = False
    """Given in the review before the end: what was answered before is kept beside it."""


class SubmittedComment(SentByPage):
    """What a rater wrote about an item; empty to remove it."""

    seq: int = Field(ge=1, lt=2**53)
    item: int = Field(ge=0, lt=10_000)
    text: str = Field(max_length=COMMENT_LENGTH, pattern=r"^[^\x00]*$")


class Moment(SentByPage):
    """Something that happened on the page."""

    item: int = Field(ge=0, lt=10_000)
    kind: Literal["shown", "active", "hidden", "visible", "zoomed", "review"]
    amount: float = Field(default=0, ge=0, le=3_600_000)
    """Milliseconds for `active`."""


class SaveRequest(SentByPage):
    """What the browser sends: answers and moments of one slot."""

    epoch: int = Field(ge=0, lt=2**31)
    answers: list[SubmittedAnswer] = Field(default=[], max_length=100)
    comments: list[SubmittedComment] = Field(default=[], max_length=10)
    moments: list[Moment] = Field(default=[], max_length=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedItem:
    """One position of a slot: which item, what is asked of it, and whether its sides have changed places."""

    item: Item
    questions: tuple[str, ...]
    swapped: bool = False

    @property
    def sides(self) -> int:
        """How many outputs are rated."""
        return len(self.item.outputs)

    @property
    def expected(self) -> list[Expected]:
        """The right answers by side as shown; empty where none is known."""
        expected = [output.expected for output in self.item.outputs]
        if self.swapped and self.item.second:
            return [{name: (turned_back(low), turned_back(high)) for name, (low, high) in expected[0].items()}]
        return expected[::-1] if self.swapped else expected

    def feedback(self, answers: Sequence[Sequence[int | None]]) -> list[list[str]]:
        """For each side and question an empty text if the answer is right, else a hint."""
        return [
            [_hint(name, expected.get(name), value) for name, value in zip(self.questions, given, strict=True)]
            for expected, given in zip(self.expected, answers, strict=True)
        ]


def _hint(question: str, right: tuple[int, int] | None, value: int | None) -> str:
    if right is None:
        return "" if value is not None else "Please answer this question."
    if value is not None and right[0] <= value <= right[1]:
        return ""
    named = " or ".join(f"{answer} ({anchors(question)[answer - 1]})" for answer in sorted(set(right)))
    return f"Look again: here we would answer {named}."


class StalePage(RequestRefused):
    """The slot is no longer this participant's, or a later page of theirs holds it."""

    status = 409
    text = "This page is out of date: the task is open elsewhere, or its time ran out. Please reload."


class NotSeen(RequestRefused):
    """An answer to an item whose pictures were not all on the screen."""

    text = "The pictures of this item were not all shown, so it cannot be answered. Please reload."


class NotAsked(RequestRefused):
    """An answer to something that was not asked."""

    text = "That was not asked."


def presented_items(study: Study, connection: Transaction, slot: str) -> tuple[PresentedItem, ...]:
    """The items of a slot in their order, with the questions of its version."""
    rows = connection.execute(
        "SELECT p.item, p.swapped, s.version FROM presentation p JOIN slot s ON s.id = p.slot WHERE s.id = ? "
        "ORDER BY p.position",
        (slot,),
    )
    items = [(study.drawn.by_id[row["item"]], row) for row in rows]
    return tuple(
        PresentedItem(item=item, questions=study.asked(item, row["version"]), swapped=bool(row["swapped"]))
        for item, row in items
    )


def save_answers(study: Study, participant: str, saving: SaveRequest) -> None:
    """Keep answers and moments in one transaction; on return they are on disk."""
    now = time.time()
    with study.database.writing() as connection:
        slot, version = _own_slot(study, connection, participant, saving.epoch, now)
        shown = presented_items(study, connection, slot)
        _check(shown, saving, format_of(study.pictures).side, can_abstain=study.config_of(version).can_abstain)
        moments = [(moment.item, moment.kind, moment.amount) for moment in saving.moments]
        moments += _store(connection, slot, saving.answers, now)
        for comment in saving.comments:
            _keep_comment(study, connection, slot, comment.item, comment.text, comment.seq)
        rows = (
            {"slot": slot, "position": position, "kind": kind, "amount": amount, "at": now}
            for position, kind, amount in moments
        )
        connection.insert("event", *rows)


def complete_task(study: Study, participant: str, epoch: int) -> list[int]:
    """End the task, unless positions still lack an answer: those are returned."""
    with study.database.writing() as connection:
        slot, _ = _own_slot(study, connection, participant, epoch, time.time())
        counted = connection.execute(
            "SELECT position, count(*) FROM answer WHERE slot = ? AND value IS NOT NULL GROUP BY position", (slot,)
        )
        answered = dict(counted.fetchall())
        missing = [
            position
            for position, item in enumerate(presented_items(study, connection, slot))
            if answered.get(position, 0) < item.sides * len(item.questions)
        ]
        if not missing:
            finish(connection, slot, time.time())
            move(connection, participant, to="debrief", only_from=("rating",))
        return missing


def comment_at_the_end(study: Study, participant: str, text: str) -> None:
    """Keep what a participant says about the whole task."""
    with study.database.writing() as connection:
        if slot := connection.value(_LAST_SLOT, (participant,)):
            _keep_comment(study, connection, slot, AT_THE_END, text[:COMMENT_LENGTH], time.time_ns() // 1000)


def last_words(study: Study, participant: str) -> str:
    """What a participant said about the whole task."""
    with study.database.reading() as connection:
        here = (connection.value(_LAST_SLOT, (participant,)), AT_THE_END)
        return connection.value("SELECT text FROM comment WHERE slot = ? AND position = ?", here) or ""


def _keep_comment(study: Study, connection: Transaction, slot: str, position: int, text: str, seq: int) -> None:
    own = connection.row(
        "SELECT i.pid, i.submission FROM identity i JOIN slot s ON s.participant = i.participant WHERE s.id = ?",
        (slot,),
    )
    for known in filter(None, map(study.keys.decrypt, own or ())):
        # Comments are exported, and ids never are.
        text = re.sub(re.escape(known), "[id]", text, flags=re.IGNORECASE)
    connection.execute(
        "INSERT INTO comment VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET text = excluded.text, "
        "seq = excluded.seq WHERE excluded.seq > comment.seq",
        (slot, position, text.strip(), seq),
    )


def _own_slot(
    study: Study, connection: Transaction, participant: str, epoch: int, now: float
) -> tuple[str, int | None]:
    """The participant's slot, with its lease renewed, and its version."""
    row = connection.row(
        "UPDATE slot SET lease_until = ? WHERE participant = ? AND state = 'held' AND epoch = ? RETURNING id, version",
        (now + 60 * study.config.lease_minutes, participant, epoch),
    )
    if row is None:
        raise StalePage
    return row["id"], row["version"]


def _check(shown: Sequence[PresentedItem], saving: SaveRequest, side: int, *, can_abstain: bool) -> None:
    """Refuse what was not asked, and answers to pictures of `side` pixels that were not on the screen."""
    if any(sent.item >= len(shown) for sent in (*saving.answers, *saving.comments, *saving.moments)):
        raise NotAsked
    for answer in saving.answers:
        item, seen = shown[answer.item], answer.seen
        if answer.side >= item.sides or answer.question >= len(item.questions):
            raise NotAsked
        if (answer.value or 0) > len(anchors(item.questions[answer.question])):
            raise NotAsked
        if answer.value == CANNOT_TELL and not can_abstain:
            raise NotAsked
        whole = seen and seen.shown > 0 and (seen.pictures, seen.decoded) == (len(item.item.files), side)
        if answer.value is not None and not whole:
            raise NotSeen


_LAST_SLOT = "SELECT id FROM slot WHERE participant = ? ORDER BY begun DESC"
_STORE = """
INSERT INTO answer (slot, position, side, question, value, seq, at, pictures, decoded, shown)
VALUES (:slot, :item, :side, :question, :value, :seq, :at, :pictures, :decoded, :shown)
ON CONFLICT DO UPDATE SET value = excluded.value, seq = excluded.seq, at = excluded.at, pictures = excluded.pictures,
    decoded = excluded.decoded, shown = excluded.shown,
    first = CASE WHEN :corrects THEN coalesce(answer.first, answer.value) ELSE answer.first END
WHERE excluded.seq > answer.seq
"""


def _store(
    connection: Transaction, slot: str, answers: Sequence[SubmittedAnswer], now: float
) -> list[tuple[int, str, float]]:
    """Write the answers that are newer than the stored ones; returns which of those were revised."""
    revised: list[tuple[int, str, float]] = []
    for answer in sorted(answers, key=lambda answer: answer.seq):
        before = connection.row(
            "SELECT seq, value FROM answer WHERE slot = ? AND position = ? AND side = ? AND question = ?",
            (slot, answer.item, answer.side, answer.question),
        )
        if before is not None and answer.seq > before["seq"] and answer.value != before["value"]:
            revised.append((answer.item, "revised", 0.0))
        seen = answer.seen.model_dump() if answer.seen else dict.fromkeys(Seen.model_fields)
        connection.execute(_STORE, {"slot": slot, "at": now, **answer.model_dump(exclude={"seen"}), **seen})
    return revised


def rating_data(study: Study, connection: Transaction, config: StudyConfig, held: Held) -> dict[str, Any]:
    """The rating page's data: items in the participant's own order, and what is answered already."""
    answers = connection.execute("SELECT * FROM answer WHERE slot = ?", (held.slot,)).fetchall()
    comments = connection.execute("SELECT * FROM comment WHERE slot = ?", (held.slot,)).fetchall()
    reviewed = connection.row("SELECT 1 FROM event WHERE slot = ? AND kind = 'review'", (held.slot,))
    return {
        **_task_data(study, config, presented_items(study, connection, held.slot)),
        "queue": digest(["queue", held.slot]),
        "epoch": held.epoch,
        "reviewing": reviewed is not None,
        "seq": max((row["seq"] for row in (*answers, *comments)), default=0),
        "answers": [[row["position"], row["side"], row["question"], row["value"]] for row in answers],
        "comments": [[row["position"], row["text"]] for row in comments],
    }


def training_items(study: Study, version: int | None) -> list[PresentedItem]:
    """The practice items, the same for all participants of a version."""
    training = [item for item in study.drawn.items if item.kind == "training" and item.id != EXAMPLE]
    return [PresentedItem(item=item, questions=study.asked(item, version)) for item in training]


def training_data(study: Study, version: int | None) -> dict[str, Any]:
    """The training page's data."""
    return {**_task_data(study, study.config_of(version), training_items(study, version)), "answers": []}


def _task_data(study: Study, config: StudyConfig, shown: Sequence[PresentedItem]) -> dict[str, Any]:
    axes = rubric.load().axes
    # The rubric's wording, exactly as the models get it.
    questions: Mapping[str, Mapping[str, Any]] = {
        name: {"title": axes[name].title, "question": axes[name].question, "scale": list(anchors(name))}
        for name in config.questions
    }
    return {
        "picture": asdict(format_of(study.pictures)),
        "questions": questions,
        "abstain": config.can_abstain,
        "items": [_item_data(item, study.picture_ids[item.item.id]) for item in shown],
    }


def _item_data(shown: PresentedItem, pictures: Sequence[str]) -> dict[str, Any]:
    sources, outputs = list(pictures[: -shown.sides]), list(pictures[-shown.sides :])
    if shown.swapped:
        (sources if shown.item.second else outputs).reverse()
    return {
        "prompt": shown.item.prompt,
        "pictures": [*sources, *outputs],
        "sources": len(sources),
        "questions": list(shown.questions),
    }
