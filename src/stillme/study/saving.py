"""The routes that scripts call: save answers, check the training, complete, and fetch pictures."""

from __future__ import annotations

import re
from typing import Annotated

import sqlalchemy as sa
from fastapi import FastAPI, Header, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stillme.study import schema as t
from stillme.study.answers import Place, Saving, Stale, Unknown
from stillme.study.desk import Desk
from stillme.study.entry import Visitor, move
from stillme.study.rating import feedback, training_places
from stillme.web.sessions import require_csrf

Csrf = Annotated[str, Header(alias="X-CSRF")]
Value = Annotated[int, Field(ge=0, le=5)]

_STALE = "This page is out of date: the task is open elsewhere, or its time ran out. Please reload."
_ID = re.compile(r"[0-9a-f]{32}")


class Practice(BaseModel):
    """Answers to the practice items from the first on, by item, side and question."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    answers: list[list[list[Value | None]]] = Field(max_length=20)


class Completion(BaseModel):
    """The wish to end the task."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    epoch: int


def add_routes(app: FastAPI, desk: Desk) -> None:
    """Serve the routes."""
    study = desk.study

    def checked(request: Request, csrf: str, state: str) -> Visitor:
        visitor = desk.participant(request)
        require_csrf(visitor.token, csrf)
        if visitor.state != state:
            raise HTTPException(409, _STALE)
        return visitor

    @app.put("/api/answers")
    def save(request: Request, saving: Saving, csrf: Csrf = "") -> dict[str, object]:
        visitor = checked(request, csrf, "rating")
        try:
            desk.answers.save(visitor.participant, saving)
        except Stale:
            raise HTTPException(409, _STALE) from None
        except Unknown:
            raise HTTPException(422, "That was not asked.") from None
        return {"saved": [answer.seq for answer in saving.answers]}

    @app.post("/api/complete")
    def complete(request: Request, completion: Completion, csrf: Csrf = "") -> dict[str, object]:
        visitor = checked(request, csrf, "rating")
        try:
            missing = desk.answers.complete(visitor.participant, completion.epoch)
        except Stale:
            raise HTTPException(409, _STALE) from None
        return {"missing": missing}

    @app.post("/api/training")
    def train(request: Request, practice: Practice, csrf: Csrf = "") -> dict[str, object]:
        visitor = checked(request, csrf, "training")
        with study.database.writing() as connection:
            shown = training_places(study, connection)
            _require_shape(shown, practice)
            said = [feedback(connection, *each) for each in zip(shown, practice.answers, strict=False)]
            right = all(not hint for sides in said for hints in sides for hint in hints)
            if right and len(said) == len(shown):
                move(connection, visitor.participant, to="rating", only_from=("training",))
        return {"feedback": said, "finished": right and len(said) == len(shown)}

    @app.get("/img/{name}")
    def picture(request: Request, name: str) -> Response:
        visitor = desk.participant(request)
        file = None
        if _ID.fullmatch(name):
            with study.database.reading() as connection:
                file = connection.execute(_file_for(visitor, name)).scalar()
        if file is None:
            raise HTTPException(404, "There is no such picture.")
        # Read whole: a file response would add its date, which may tell pictures apart.
        return Response((study.pictures / file).read_bytes(), media_type="image/jpeg")


def _file_for(visitor: Visitor, name: str) -> sa.Select[str]:
    """The file behind a picture's id, if this participant is being shown it."""
    mine = (
        sa.select(t.presentation.c.item)
        .join(t.slot, t.slot.c.id == t.presentation.c.slot)
        .where(t.slot.c.participant == visitor.participant, t.slot.c.state == "held")
    )
    wanted = t.item.c.kind == "training" if visitor.state == "training" else t.item.c.id.in_(mine)
    may_look = visitor.state in ("training", "rating")
    return (
        sa.select(t.image.c.file)
        .join(t.item, t.item.c.id == t.image.c.item)
        .where(t.image.c.id == name, wanted, sa.literal(may_look))
    )


def _require_shape(shown: list[Place], practice: Practice) -> None:
    given = [[len(side) for side in sides] for sides in practice.answers]
    wanted = [[len(place.questions)] * place.sides for place in shown]
    if not given or given != wanted[: len(given)]:
        raise HTTPException(422, "That was not asked.")
