"""The routes that scripts call: save answers, check the training, complete, and fetch pictures."""

from __future__ import annotations

import re
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stillme.study import schema as t
from stillme.study.answers import NotAsked, NotSeen, PresentedItem, SaveRequest, StalePage
from stillme.study.context import Context, Participant
from stillme.study.entry import Visitor, move
from stillme.study.page_data import feedback, training_items
from stillme.study.screening import screen_out
from stillme.web.sessions import require_csrf

Value = Annotated[int, Field(ge=0, le=5)]

_STALE = "This page is out of date: the task is open elsewhere, or its time ran out. Please reload."
_CLOSED = "The study has been closed. Please reload: the next page explains what happens and how you are paid."
_NOT_ASKED = "That was not asked."
_NOT_SEEN = "The pictures of this item were not all shown, so it cannot be answered. Please reload."
_ID = re.compile(r"[0-9a-f]{32}")

routes = APIRouter()


class Practice(BaseModel):
    """Answers to the practice items from the first on, by item, side and question."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    answers: list[list[list[Value | None]]] = Field(max_length=20)


class Completion(BaseModel):
    """The request to end the task."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    epoch: int


def script_sender(visitor: Participant, csrf: Annotated[str, Header(alias="X-CSRF")] = "") -> Visitor:
    """The participant whose own page sent the request; 403 for one from elsewhere."""
    require_csrf(visitor.token, csrf)
    return visitor


ScriptSender = Annotated[Visitor, Depends(script_sender)]


@routes.put("/api/answers")
def save(context: Context, visitor: ScriptSender, saving: SaveRequest) -> dict[str, object]:
    """Keep answers; on 200 they are on disk."""
    _require_state(visitor, "rating")
    try:
        context.answers.save(visitor.participant, saving)
    except StalePage:
        raise HTTPException(409, _STALE if context.study.is_open else _CLOSED) from None
    except NotAsked:
        raise HTTPException(422, _NOT_ASKED) from None
    except NotSeen:
        raise HTTPException(422, _NOT_SEEN) from None
    return {"saved": [entry.seq for entry in (*saving.answers, *saving.comments)]}


@routes.post("/api/complete")
def complete(context: Context, visitor: ScriptSender, completion: Completion) -> dict[str, object]:
    """End the task, or name the items that lack answers."""
    _require_state(visitor, "rating")
    try:
        missing = context.answers.complete(visitor.participant, completion.epoch)
    except StalePage:
        raise HTTPException(409, _STALE if context.study.is_open else _CLOSED) from None
    return {"missing": missing}


@routes.post("/api/training")
def train(context: Context, visitor: ScriptSender, practice: Practice) -> dict[str, object]:
    """Check the practice answers; whoever has all right goes on to the rating."""
    _require_state(visitor, "training")
    with context.study.database.writing() as connection:
        shown = training_items(context.study, connection, visitor.version)
        _require_shape(shown, practice)
        hints = [feedback(connection, item, given) for item, given in zip(shown, practice.answers, strict=False)]
        right = all(not hint for sides in hints for questions in sides for hint in questions)
        finished = right and len(hints) == len(shown)
        if finished:
            move(connection, visitor.participant, to="rating", only_from=("training",))
        ended = not right and screen_out(connection, visitor.participant, context.study.config.checks.training_tries)
    return {"feedback": hints, "finished": finished or ended}


@routes.get("/img/{name}")
def picture(context: Context, visitor: Participant, name: str) -> Response:
    """A blinded picture, only for the participant who is being shown it."""
    file = None
    if _ID.fullmatch(name):
        with context.study.database.reading() as connection:
            file = connection.execute(_file_for(visitor, name)).scalar()
    if file is None:
        raise HTTPException(404, "There is no such picture.")
    # Read whole: a file response would add its date, which may tell pictures apart.
    return Response((context.study.pictures / file).read_bytes(), media_type="image/jpeg")


def _file_for(visitor: Visitor, name: str) -> sa.Select[str]:
    """The file behind a picture's id, if this participant is being shown it."""
    own_items = (
        sa.select(t.presentation.c.item)
        .join(t.slot, t.slot.c.id == t.presentation.c.slot)
        .where(t.slot.c.participant == visitor.participant, t.slot.c.state == "held")
    )
    learning = visitor.state in ("guide", "training")
    allowed = t.item.c.kind == "training" if learning else t.item.c.id.in_(own_items)
    may_look = learning or visitor.state == "rating"
    return (
        sa.select(t.image.c.file)
        .join(t.item, t.item.c.id == t.image.c.item)
        .where(t.image.c.id == name, allowed, sa.literal(may_look))
    )


def _require_state(visitor: Visitor, state: str) -> None:
    if visitor.state != state:
        raise HTTPException(409, _STALE)


def _require_shape(shown: list[PresentedItem], practice: Practice) -> None:
    given = [[len(side) for side in sides] for sides in practice.answers]
    expected = [[len(item.questions)] * item.sides for item in shown]
    if not given or given != expected[: len(given)]:
        raise HTTPException(422, _NOT_ASKED)
