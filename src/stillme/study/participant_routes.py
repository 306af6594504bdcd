"""The participant's way: entry, consent, device check, guide, training, rating, debrief, completion, withdrawal.

`/study` always shows the page where the participant is; reloading and going back are harmless.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from stillme.study import entry, screening
from stillme.study import schema as t
from stillme.study.assignment import Claim, Closed, Full, Held, PassedOn, claim, release
from stillme.study.config import CodeKind
from stillme.study.context import Context, Form, Participant, StudyContext, client
from stillme.study.entry import SESSION_SECONDS, Arrival, EntryRefused, Visitor, move
from stillme.study.opening import Study
from stillme.study.page_data import example_pictures, rating_data, training_data
from stillme.study.prolific.recruiting import completion_address
from stillme.study.quality import fails_every_check
from stillme.study.withdrawal import TooLate, withdraw
from stillme.web.forms import number_in
from stillme.web.sessions import require_csrf

WORKING = ("device", "guide", "training", "rating")
_ENDS: Mapping[str, CodeKind] = {
    "debrief": "completed",
    "declined": "no_consent",
    "incompatible": "incompatible_device",
    screening.STATE: "screened_out",
    "full": "other",
    "closed": "other",
}

routes = APIRouter()


def form_sender(form: Form, visitor: Participant) -> Visitor:
    """The participant whose own page sent the form; 403 for a form from elsewhere."""
    require_csrf(visitor.token, form.get("csrf"))
    return visitor


FormSender = Annotated[Visitor, Depends(form_sender)]


@routes.get("/")
def home(request: Request, context: Context) -> Response:
    """The first page; whoever has a session goes on."""
    return _to_study() if context.visitor(request) else context.page("home.html")


@routes.get("/enter")
def enter_from_prolific(request: Request, context: Context) -> Response:
    """Enter by Prolific's address."""
    context.entries.require(client(request))
    try:
        return _let_in(context, request, entry.arrival_from_prolific(context.study, request.query_params))
    except EntryRefused as refusal:
        return _turn_away(context, refusal)


@routes.get("/i/{code}")
def enter_by_invitation(request: Request, context: Context, code: str) -> Response:
    """Enter by a personal link."""
    context.entries.require(client(request))
    try:
        with context.study.database.reading() as connection:
            arrival = entry.arrival_from_invitation(context.study, connection, code)
        return _let_in(context, request, arrival)
    except EntryRefused as refusal:
        return _turn_away(context, refusal)


@routes.get("/study")
def current_page(context: Context, visitor: Participant) -> Response:
    """The page where the participant is."""
    if visitor.state not in WORKING:
        return _waiting_page(context, visitor)
    with context.study.database.writing() as connection:
        claimed = claim(connection, context.study.id, visitor.participant, time.time())
        ended = _state_after(claimed)
        if ended:
            move(connection, visitor.participant, to=ended, only_from=WORKING)
    if ended:
        return _waiting_page(context, replace(visitor, state=ended))
    return _working_page(context, visitor, claimed)


@routes.post("/study/consent")
def consent(context: Context, form: Form, visitor: FormSender) -> Response:
    """Keep the decision; whoever agrees claims a place."""
    decision = {"agree": "agreed", "decline": "declined"}.get(form.get("decision", ""))
    if decision is None:
        raise HTTPException(400, "Please agree or decline.")
    study = context.study
    if form.get("version") != str(study.version):
        # The text has changed since the page was made: they must read what they agree to.
        return _to_study()
    with study.database.writing() as connection:
        # A second click finds the first one's state.
        if move(connection, visitor.participant, to="declined", only_from=("consent",)):
            _keep_consent(study, connection, visitor.participant, decision)
            if decision == "agreed":
                claimed = claim(connection, study.id, visitor.participant, time.time())
                to = _state_after(claimed) or "device"
                move(connection, visitor.participant, to=to, only_from=("declined",))
    return _to_study()


@routes.post("/study/device")
def device(context: Context, form: Form, visitor: FormSender) -> Response:
    """Check the device; one that does not fit gives its place back."""
    width = number_in(form, "width")
    fits = width >= context.study.config.min_width and form.get("storage") == "yes"
    with context.study.database.writing() as connection:
        moved = move(connection, visitor.participant, to="guide" if fits else "incompatible", only_from=("device",))
        if moved:
            # Whoever begins again may have another device.
            connection.execute(t.device.delete().where(t.device.c.participant == visitor.participant))
            connection.execute(
                t.device.insert().values(
                    participant=visitor.participant,
                    width=width,
                    height=number_in(form, "height"),
                    ratio=number_in(form, "ratio") / 100,
                    full_brightness=int(form.get("brightness") == "yes"),
                    no_colour_filter=int(form.get("filters") == "yes"),
                    at=time.time(),
                )
            )
        if moved and not fits:
            _release_slot(connection, visitor.participant, "incompatible")
    return _to_study()


@routes.post("/study/guide")
def guide(context: Context, visitor: FormSender) -> Response:
    """Go on to the training."""
    with context.study.database.writing() as connection:
        move(connection, visitor.participant, to="training", only_from=("guide",))
    return _to_study()


@routes.post("/study/comment")
def comment(context: Context, form: Form, visitor: FormSender) -> Response:
    """Keep what somebody says about the whole task."""
    if visitor.state == "debrief":
        context.answers.comment_at_the_end(visitor.participant, form.get("comment", ""))
    return _to_study()


@routes.get("/finish")
def finish(context: Context, visitor: Participant) -> Response:
    """Go to Prolific with the completion code, or say that all is done."""
    if visitor.state not in _ENDS:
        return _to_study()
    code = _code(context, visitor)
    if not code:
        return context.page("finished.html", visitor)
    return RedirectResponse(completion_address(code), status_code=303)


@routes.get("/withdraw")
def ask_to_withdraw(context: Context, visitor: Participant) -> Response:
    """Ask before anything is deleted."""
    if visitor.written:
        return _too_late(context, visitor)
    return context.page("withdraw.html", visitor)


@routes.post("/withdraw")
def withdraw_now(request: Request, context: Context, form: Form) -> Response:
    """Delete everything of the participant."""
    visitor = context.visitor(request)
    if visitor is None:
        # A second click, after the first has deleted the session.
        return context.page("message.html", title="You have withdrawn", text="There is nothing of yours here any more.")
    require_csrf(visitor.token, form.get("csrf"))
    try:
        shredded = withdraw(context.study, visitor.participant)
    except TooLate:
        return _too_late(context, visitor)
    text = "Your answers and everything else we had of you have been deleted."
    if not shredded:
        text += " Overwriting them in the database's log has begun and will be finished within minutes."
    text += " If you came from Prolific, please return your submission there."
    response = context.page("message.html", title="You have withdrawn", text=text)
    context.cookie.clear_on(response)
    return response


def _too_late(context: StudyContext, visitor: Visitor) -> Response:
    day = datetime.fromtimestamp(visitor.written or time.time(), UTC)
    text = (
        f"Your answers were added to the results on {day:%-d %B %Y}, under a pseudonym. As the consent page said, they "
        "can no longer be taken out. If you have a question about this, please ask us."
    )
    return context.page("message.html", visitor, 409, title="It is too late to withdraw", text=text)


def _code(context: StudyContext, visitor: Visitor) -> str:
    """The completion code of somebody from Prolific whose part has ended; empty for everybody else."""
    config, kind = context.study.config, _ENDS.get(visitor.state)
    if kind is None or config.prolific is None or visitor.origin != "prolific":
        return ""
    if kind == "completed" and config.checks.send_failed_code:
        with context.study.database.reading() as connection:
            if fails_every_check(context.study, connection, visitor.participant):
                kind = "failed_attention"
    return config.code(kind)


def _to_study() -> Response:
    return RedirectResponse("/study", status_code=303)


def _let_in(context: StudyContext, request: Request, arrival: Arrival) -> Response:
    visitor = context.visitor(request)
    with context.study.database.writing() as connection:
        token = entry.enter(context.study, connection, arrival, visitor.participant if visitor else None)
    # At once to an address without the participant's id.
    response = _to_study()
    context.cookie.set_on(response, token, seconds=SESSION_SECONDS)
    return response


def _turn_away(context: StudyContext, refusal: EntryRefused) -> Response:
    return context.page("message.html", None, 403, title="This link does not work", text=str(refusal))


def _state_after(claimed: Claim) -> str:
    """The state of somebody who gets no place; empty for somebody who has one, or had."""
    match claimed:
        case Full():
            return "full"
        case Closed():
            return "closed"
        case Held() | PassedOn():
            return ""


def _waiting_page(context: StudyContext, visitor: Visitor) -> Response:
    """The page of somebody who needs no slot: before consent, or after the task."""
    study, config = context.study, context.study.config_of(visitor.version)
    match visitor.state:
        case "consent":
            # Also whoever begins again reads the newest text.
            config = study.config_of(None)
            return context.page(
                "consent.html",
                replace(visitor, version=None),
                text=_markdown(config.texts.consent),
                facts=config.consent_facts,
                version=study.version,
            )
        case "debrief":
            shown = {"code": _code(context, visitor), "comment": context.answers.last_words(visitor.participant)}
            return context.page("debrief.html", visitor, text=_markdown(config.texts.debrief), **shown)
        case state:
            return context.page("ended.html", visitor, state=state, reason="", code=_code(context, visitor))


def _working_page(context: StudyContext, visitor: Visitor, claimed: Claim) -> Response:
    study, config = context.study, context.study.config_of(visitor.version)
    if not isinstance(claimed, Held):
        reason = claimed.reason if isinstance(claimed, PassedOn) else ""
        return context.page("ended.html", visitor, state="passed on", reason=reason, code="")
    match visitor.state:
        case "device":
            return context.page("device.html", visitor)
        case "guide":
            with study.database.reading() as connection:
                pictures = example_pictures(study, connection)
            return context.page("guide.html", visitor, text=_markdown(config.texts.guide), pictures=pictures)
        case "training":
            with study.database.reading() as connection:
                data = training_data(study, connection, visitor.version)
                return context.page("training.html", visitor, data=data)
        case _:
            with study.database.reading() as connection:
                shown = context.answers.shown(connection, claimed.slot)
                data = rating_data(study, connection, config, claimed, shown)
                return context.page("rating.html", visitor, data=data)


def _keep_consent(study: Study, connection: sa.Connection, participant: str, decision: str) -> None:
    text_hash = hashlib.sha256(study.config_of(None).consent_shown.encode()).hexdigest()
    connection.execute(
        t.consent.insert().values(participant=participant, text_hash=text_hash, decision=decision, at=time.time())
    )
    who = t.participant.update().where(t.participant.c.id == participant)
    connection.execute(who.values(version=study.version))


def _release_slot(connection: sa.Connection, participant: str, reason: str) -> None:
    held = sa.select(t.slot.c.id).where(t.slot.c.participant == participant, t.slot.c.state == "held")
    slot = connection.execute(held).scalar()
    if slot:
        release(connection, slot, reason, time.time())


def _markdown(text: str) -> Markup:
    """A researcher's Markdown as HTML; raw HTML in it is shown, not run."""
    return Markup(MarkdownIt("commonmark", {"html": False}).render(text))
