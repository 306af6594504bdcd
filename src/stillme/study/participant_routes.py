"""The participant's way: entry, consent, device check, guide, training, rating, debrief, completion, withdrawal.

`/study` always shows the page where the participant is; reloading and going back are harmless.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from markdown_it import MarkdownIt
from markupsafe import Markup
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from stillme.study import entry
from stillme.study.answers import (
    NotAsked,
    PresentedItem,
    SaveRequest,
    SentByPage,
    StalePage,
    comment_at_the_end,
    complete_task,
    last_words,
    rating_data,
    save_answers,
    training_data,
    training_items,
)
from stillme.study.assignment import Held, NoPlace, claim
from stillme.study.config import UPRIGHT, CodeKind
from stillme.study.entry import (
    PLATFORM,
    SCREENED_OUT,
    SESSION_SECONDS,
    Arrival,
    TooLate,
    Visitor,
    move,
    recognise,
    release_own_slot,
    screen_out,
    withdraw,
)
from stillme.study.items import EXAMPLE
from stillme.study.opening import Study
from stillme.study.quality import fails_every_check
from stillme.web.app import (
    SAFE_METHODS,
    Cookie,
    Pages,
    RequestLimit,
    csrf_of,
    number_in,
    read_form,
    require_csrf,
    sent_csrf,
)
from stillme.web.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyContext:
    """One study as it is served; kept in `app.state.context`."""

    study: Study
    preview: bool
    pages: Pages
    cookie: Cookie
    admin_cookie: Cookie
    entries: RequestLimit
    requests: RequestLimit
    logins: RequestLimit

    def page(self, name: str, visitor: Visitor | None = None, status: int = 200, /, **values: object) -> Response:
        """A participant's page."""
        csrf = csrf_of(visitor.token) if visitor else ""
        config = self.study.config_of(visitor.version if visitor else None)
        shown = {"config": config, "visitor": visitor, "csrf": csrf, "preview": self.preview}
        return self.pages.show(name, status, **shown, **values)

    def visitor(self, request: Request) -> Visitor | None:
        """Whose session the request carries, if there is one."""
        with self.study.database.reading() as connection:
            return recognise(connection, self.cookie.read(request))


async def context_of(request: Request) -> StudyContext:
    """The study that the app serves. Not blocking, so it needs no thread of its own."""
    return request.app.state.context


Context = Annotated[StudyContext, Depends(context_of)]
Form = Annotated[Mapping[str, str], Depends(read_form)]


SentCsrf = Annotated[str, Depends(sent_csrf)]


def participant_of(request: Request, context: Context, csrf: SentCsrf) -> Visitor:
    """Whose session the request carries: 401 without one, 429 for too many, 403 for a change from elsewhere."""
    visitor = context.visitor(request)
    if visitor is None:
        raise HTTPException(401, "You are not signed in. Please open the link you were given once more.")
    context.requests.require(visitor.participant)
    if request.method not in SAFE_METHODS:
        require_csrf(visitor.token, csrf)
    return visitor


Participant = Annotated[Visitor, Depends(participant_of)]


def client(request: Request) -> str:
    """The address that a request came from."""
    return request.client.host if request.client else ""


WORKING = ("device", "guide", "training", "rating")
_ENDS: Mapping[str, CodeKind] = {
    "debrief": "completed",
    "declined": "no_consent",
    "incompatible": "returned",
    SCREENED_OUT: "screened_out",
    "full": "other",
    "closed": "other",
}

routes = APIRouter()


@routes.get("/")
def home(request: Request, context: Context) -> Response:
    """The first page; a visitor with a session goes on."""
    return _to_study() if context.visitor(request) else context.page("home.html")


@routes.get("/enter")
def enter_from_platform(request: Request, context: Context) -> Response:
    """Enter by the study's address."""
    context.entries.require(client(request))
    return _let_in(context, request, entry.arrival_from_platform(context.study, request.query_params))


@routes.get("/i/{code}")
def enter_by_invitation(request: Request, context: Context, code: str) -> Response:
    """Enter by a personal link."""
    context.entries.require(client(request))
    with context.study.database.reading() as connection:
        arrival = entry.arrival_from_invitation(connection, code)
    return _let_in(context, request, arrival)


@routes.get("/study")
def current_page(context: Context, visitor: Participant) -> Response:
    """The page where the participant is."""
    if visitor.state not in (*WORKING, "full"):
        return _waiting_page(context, visitor)
    with context.study.database.writing() as connection:
        claimed = claim(connection, context.study.drawn.items, visitor.participant, time.time())
        # Places may have been added, or have come free, since they were all taken.
        now = "device" if visitor.state == "full" else visitor.state
        if isinstance(claimed, NoPlace):
            if claimed.why == "passed on":
                return context.page("ended.html", visitor, state="passed on", reason=claimed.reason, code="")
            now = claimed.why
        move(connection, visitor.participant, to=now, only_from=(*WORKING, "full"))
    visitor = replace(visitor, state=now)
    return _working_page(context, visitor, claimed) if isinstance(claimed, Held) else _waiting_page(context, visitor)


@routes.post("/study/consent")
def consent(context: Context, form: Form, visitor: Participant) -> Response:
    """Keep the decision; a participant who agrees claims a place."""
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
                claimed = claim(connection, study.drawn.items, visitor.participant, time.time())
                # Whose place was passed on reads that on the next page.
                to = claimed.why if isinstance(claimed, NoPlace) and claimed.why != "passed on" else "device"
                move(connection, visitor.participant, to=to, only_from=("declined",))
    return _to_study()


@routes.post("/study/device")
def device(context: Context, form: Form, visitor: Participant) -> Response:
    """Check the device; one that does not fit gives its place back."""
    width, height = number_in(form, "width"), number_in(form, "height")
    fits = context.study.config_of(visitor.version).fits(width, height) and form.get("storage") == "yes"
    with context.study.database.writing() as connection:
        moved = move(connection, visitor.participant, to="guide" if fits else "incompatible", only_from=("device",))
        if moved:
            screen = (form.get("brightness") == "yes", form.get("filters") == "yes")
            # A participant who begins again may have another device.
            connection.execute(
                "INSERT OR REPLACE INTO device VALUES (?, ?, ?, ?, ?, ?)",
                (visitor.participant, width, height, number_in(form, "ratio") / 100, *screen),
            )
        if moved and not fits:
            release_own_slot(connection, visitor.participant, "incompatible")
    return _to_study()


@routes.post("/study/guide")
def guide(context: Context, visitor: Participant) -> Response:
    """Go on to the training."""
    with context.study.database.writing() as connection:
        move(connection, visitor.participant, to="training", only_from=("guide",))
    return _to_study()


@routes.post("/study/comment")
def comment(context: Context, form: Form, visitor: Participant) -> Response:
    """Keep what a participant says about the whole task."""
    if "\x00" in form.get("comment", ""):
        raise HTTPException(400, "The comment has a character that cannot be stored. Please write it again.")
    if visitor.state == "debrief":
        comment_at_the_end(context.study, visitor.participant, form.get("comment", ""))
    return _to_study()


@routes.get("/finish")
def finish(context: Context, visitor: Participant) -> Response:
    """Go back to the platform with the completion code, or say that all is done."""
    if visitor.state not in _ENDS:
        return _to_study()
    code, recruiting = _code(context, visitor), context.study.config.recruiting
    if not code or recruiting is None or not recruiting.return_url:
        return context.page("finished.html", visitor, code=code)
    return RedirectResponse(recruiting.return_url.replace("{code}", code), status_code=303)


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
    if visitor.origin == PLATFORM and (recruiting := context.study.config.recruiting):
        text += f" Please return your submission on {recruiting.platform}."
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
    """The completion code of a participant from the platform whose part has ended; otherwise empty."""
    config, kind = context.study.config, _ENDS.get(visitor.state)
    if kind is None or config.recruiting is None or visitor.origin != PLATFORM:
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


def _waiting_page(context: StudyContext, visitor: Visitor) -> Response:
    """The page of a participant who needs no slot: before consent, or after the task."""
    study, config = context.study, context.study.config_of(visitor.version)
    match visitor.state:
        case "consent":
            # A participant who begins again reads the newest text.
            config = study.config_of(None)
            return context.page(
                "consent.html",
                replace(visitor, version=None),
                text=_markdown(config.texts.consent),
                facts=config.consent_facts,
                version=study.version,
            )
        case "debrief":
            shown = {"code": _code(context, visitor), "comment": last_words(study, visitor.participant)}
            return context.page("debrief.html", visitor, text=_markdown(config.texts.debrief), **shown)
        case state:
            return context.page("ended.html", visitor, state=state, reason="", code=_code(context, visitor))


def _working_page(context: StudyContext, visitor: Visitor, held: Held) -> Response:
    study, config = context.study, context.study.config_of(visitor.version)
    match visitor.state:
        case "device":
            return context.page("device.html", visitor, upright=UPRIGHT)
        case "guide":
            pictures = study.picture_ids.get(EXAMPLE, ())
            return context.page("guide.html", visitor, text=_markdown(config.texts.guide), pictures=pictures)
        case "training":
            return context.page("training.html", visitor, data=training_data(study, visitor.version))
        case _:
            with study.database.reading() as connection:
                data = rating_data(study, connection, config, held)
            return context.page("rating.html", visitor, data=data)


def _keep_consent(study: Study, connection: Transaction, participant: str, decision: str) -> None:
    text_hash = hashlib.sha256(study.config_of(None).consent_shown.encode()).hexdigest()
    consent = {"participant": participant, "text_hash": text_hash, "decision": decision, "at": time.time()}
    connection.insert("consent", consent)
    connection.execute("UPDATE participant SET version = ? WHERE id = ?", (study.version, participant))


def _markdown(text: str) -> Markup:
    """A researcher's Markdown as HTML; raw HTML in it is shown, not run."""
    return Markup(MarkdownIt("commonmark", {"html": False}).render(text))


Value = Annotated[int, Field(ge=0, le=5)]


class Practice(SentByPage):
    """Answers to the practice items from the first on, by item, side and question."""

    answers: list[list[list[Value | None]]] = Field(max_length=20)


class Completion(SentByPage):
    """The request to end the task."""

    epoch: int


@routes.put("/api/answers")
def save(context: Context, visitor: Participant, saving: SaveRequest) -> dict[str, object]:
    """Keep answers; on 200 they are on disk."""
    _require_state(visitor, "rating")
    save_answers(context.study, visitor.participant, saving)
    return {"saved": [entry.seq for entry in (*saving.answers, *saving.comments)]}


@routes.post("/api/complete")
def complete(context: Context, visitor: Participant, completion: Completion) -> dict[str, object]:
    """End the task, or name the items that lack answers."""
    _require_state(visitor, "rating")
    return {"missing": complete_task(context.study, visitor.participant, completion.epoch)}


@routes.post("/api/training")
def train(context: Context, visitor: Participant, practice: Practice) -> dict[str, object]:
    """Check the practice answers; a participant who has all right goes on to the rating."""
    _require_state(visitor, "training")
    with context.study.database.writing() as connection:
        shown = training_items(context.study, visitor.version)
        _require_shape(shown, practice)
        hints = [item.feedback(given) for item, given in zip(shown, practice.answers, strict=False)]
        right = all(not hint for sides in hints for questions in sides for hint in questions)
        finished = right and len(hints) == len(shown)
        if finished:
            move(connection, visitor.participant, to="rating", only_from=("training",))
        ended = not right and screen_out(connection, visitor.participant, context.study.config.checks.training_tries)
    return {"feedback": hints, "finished": finished or ended}


@routes.get("/img/{name}")
def picture(context: Context, visitor: Participant, name: str) -> Response:
    """A blinded picture, only for the participant who is being shown it."""
    study = context.study
    with study.database.reading() as connection:
        found = connection.row("SELECT item, place FROM picture WHERE id = ?", (name,))
        if found is None or not _may_see(study, connection, visitor, found["item"]):
            raise HTTPException(404, "There is no such picture.")
    file = study.drawn.by_id[found["item"]].files[int(found["place"])]
    # Read whole: a file response would add its date, which may tell pictures apart.
    return Response((study.pictures / file).read_bytes(), media_type="image/jpeg")


def _may_see(study: Study, connection: Transaction, visitor: Visitor, item: str) -> bool:
    if visitor.state in ("guide", "training"):
        return study.drawn.by_id[item].kind == "training"
    own = (
        "SELECT 1 FROM presentation p JOIN slot s ON s.id = p.slot "
        "WHERE s.participant = ? AND s.state = 'held' AND p.item = ?"
    )
    return visitor.state == "rating" and connection.row(own, (visitor.participant, item)) is not None


def _require_state(visitor: Visitor, state: str) -> None:
    if visitor.state != state:
        raise StalePage


def _require_shape(shown: list[PresentedItem], practice: Practice) -> None:
    given = [[len(side) for side in sides] for sides in practice.answers]
    expected = [[len(item.questions)] * item.sides for item in shown]
    if not given or given != expected[: len(given)]:
        raise NotAsked
