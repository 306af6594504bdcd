"""The participant's way: entry, consent, device check, guide, training, rating, debrief, completion, withdrawal.

`/study` always shows the page where the participant is; reloading and going back are harmless.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from stillme.study import entry
from stillme.study import schema as t
from stillme.study.assignment import Claim, Closed, Full, Held, PassedOn, claim, release
from stillme.study.config import CodeKind
from stillme.study.desk import Desk, client, markdown
from stillme.study.entry import SESSION_SECONDS, Arrival, Refused, Visitor, move
from stillme.study.quality import fails_every_check
from stillme.study.rating import rating_data, training_data
from stillme.study.withdrawal import withdraw
from stillme.web.forms import read_form
from stillme.web.sessions import csrf_of, require_csrf

Form = Annotated[Mapping[str, str], Depends(read_form)]

PROLIFIC = "https://app.prolific.com/submissions/complete?"
WORKING = ("device", "guide", "training", "rating")
_ENDS: Mapping[str, CodeKind] = {
    "debrief": "completed",
    "declined": "no_consent",
    "incompatible": "incompatible_device",
    "full": "other",
}


def add_routes(app: FastAPI, desk: Desk) -> None:
    """Serve the pages."""
    study, pages = desk.study, desk.pages

    def page(name: str, visitor: Visitor | None = None, status: int = 200, /, **context: object) -> Response:
        csrf = csrf_of(visitor.token) if visitor else ""
        return pages.show(name, status, config=study.config, visitor=visitor, csrf=csrf, **context)

    def let_in(arrival: Arrival) -> Response:
        with study.database.writing() as connection:
            token = entry.enter(study, connection, arrival)
        # At once to an address without the participant's id.
        response = RedirectResponse("/study", status_code=303)
        desk.cookie.give(response, token, seconds=SESSION_SECONDS)
        return response

    @app.get("/")
    def home(request: Request) -> Response:
        return RedirectResponse("/study", status_code=303) if desk.visitor(request) else page("home.html")

    @app.get("/enter")
    def from_prolific(request: Request) -> Response:
        desk.entries.require(client(request))
        try:
            return let_in(entry.arrival_from_prolific(study, request.query_params))
        except Refused as refusal:
            return page("message.html", None, 403, title="This link does not work", text=str(refusal))

    @app.get("/i/{code}")
    def from_invitation(request: Request, code: str) -> Response:
        desk.entries.require(client(request))
        try:
            with study.database.reading() as connection:
                arrival = entry.arrival_from_invitation(study, connection, code)
            return let_in(arrival)
        except Refused as refusal:
            return page("message.html", None, 403, title="This link does not work", text=str(refusal))

    @app.get("/study")
    def where_they_are(request: Request) -> Response:
        visitor = desk.participant(request)
        if visitor.state not in WORKING:
            return _standing(visitor)
        with study.database.writing() as connection:
            claimed = claim(connection, study.id, visitor.participant, time.time())
        return _working(visitor, claimed)

    def _standing(visitor: Visitor) -> Response:
        match visitor.state:
            case "consent":
                return page("consent.html", visitor, text=markdown(study.config.texts.consent))
            case "debrief":
                return page("debrief.html", visitor, text=markdown(study.config.texts.debrief))
            case state:
                return page("ended.html", visitor, state=state, code=bool(study.config.prolific))

    def _working(visitor: Visitor, claimed: Claim) -> Response:
        match claimed:
            case Full() | Closed():
                return page("ended.html", visitor, state="full", code=bool(study.config.prolific))
            case PassedOn():
                return page("ended.html", visitor, state="passed on", code=False)
            case Held() as held:
                pass
        match visitor.state:
            case "device":
                return page("device.html", visitor)
            case "guide":
                return page("guide.html", visitor, text=markdown(study.config.texts.guide))
            case "training":
                with study.database.reading() as connection:
                    return page("training.html", visitor, data=training_data(study, connection))
            case _:
                with study.database.reading() as connection:
                    shown = desk.answers.shown(connection, held.slot)
                    return page("rating.html", visitor, data=rating_data(study, connection, held, shown))

    @app.post("/study/consent")
    def consent(request: Request, form: Form) -> Response:
        visitor = _checked(request, form)
        decision = {"agree": "agreed", "decline": "declined"}.get(form.get("decision", ""))
        if decision is None:
            raise HTTPException(400, "Please agree or decline.")
        with study.database.writing() as connection:
            if visitor.state == "consent":
                _keep_consent(connection, visitor, decision)
                state = "declined"
                if decision == "agreed":
                    claimed = claim(connection, study.id, visitor.participant, time.time())
                    state = "device" if isinstance(claimed, Held) else "full"
                move(connection, visitor.participant, to=state, only_from=("consent",))
        return RedirectResponse("/study", status_code=303)

    def _keep_consent(connection: sa.Connection, visitor: Visitor, decision: str) -> None:
        text = hashlib.sha256(study.config.texts.consent.encode()).hexdigest()
        connection.execute(
            t.consent.insert().values(
                participant=visitor.participant, text_hash=text, decision=decision, at=time.time()
            )
        )

    @app.post("/study/device")
    def device(request: Request, form: Form) -> Response:
        visitor = _checked(request, form)
        width = form.get("width", "")
        fits = width.isdigit() and int(width) >= study.config.min_width and form.get("storage") == "yes"
        with study.database.writing() as connection:
            moved = move(connection, visitor.participant, to="guide" if fits else "incompatible", only_from=("device",))
            if moved and not fits:
                _give_up_place(connection, visitor.participant, "incompatible")
        return RedirectResponse("/study", status_code=303)

    @app.post("/study/guide")
    def guide(request: Request, form: Form) -> Response:
        visitor = _checked(request, form)
        with study.database.writing() as connection:
            move(connection, visitor.participant, to="training", only_from=("guide",))
        return RedirectResponse("/study", status_code=303)

    @app.get("/finish")
    def finish(request: Request) -> Response:
        visitor = desk.participant(request)
        kind = _ENDS.get(visitor.state)
        if kind is None:
            return RedirectResponse("/study", status_code=303)
        if study.config.prolific is None or visitor.origin != "prolific":
            return page("finished.html", visitor)
        if kind == "completed" and study.config.checks.send_failed_code:
            with study.database.reading() as connection:
                if fails_every_check(connection, visitor.participant):
                    kind = "failed_attention"
        return RedirectResponse(PROLIFIC + urlencode({"cc": study.config.code(kind)}), status_code=303)

    @app.get("/withdraw")
    def ask_to_withdraw(request: Request) -> Response:
        return page("withdraw.html", desk.participant(request))

    @app.post("/withdraw")
    def withdraw_now(request: Request, form: Form) -> Response:
        visitor = _checked(request, form)
        if not study.is_open:
            raise HTTPException(
                409, "The study is closed: answers can no longer be told apart, so none can be deleted."
            )
        withdraw(study, visitor.participant)
        response = page(
            "message.html",
            title="You have withdrawn",
            text="Your answers and everything else we had of you have been deleted. "
            "If you came from Prolific, please return your submission there.",
        )
        desk.cookie.take(response)
        return response

    def _checked(request: Request, form: Mapping[str, str]) -> Visitor:
        visitor = desk.participant(request)
        require_csrf(visitor.token, form.get("csrf"))
        return visitor


def _give_up_place(connection: sa.Connection, participant: str, reason: str) -> None:
    held = sa.select(t.slot.c.id).where(t.slot.c.participant == participant, t.slot.c.state == "held")
    slot = connection.execute(held).scalar()
    if slot:
        release(connection, slot, reason, time.time())
