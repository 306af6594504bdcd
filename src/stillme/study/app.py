"""Put the study's app together."""

from __future__ import annotations

from fastapi import FastAPI
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stillme.study import admin_routes, answer_routes, participant_routes
from stillme.study.answers import Answers
from stillme.study.context import StudyContext
from stillme.study.opening import Study
from stillme.study.prolific import webhook
from stillme.web.app import Site, create_app
from stillme.web.hosts import LOOPBACK
from stillme.web.pages import Pages
from stillme.web.request_limits import RequestLimit
from stillme.web.sessions import Cookie

_TITLES = {401: "Please open your link again", 404: "There is nothing here"}


def build(study: Study, *, hosts: tuple[str, ...] = LOOPBACK, secure: bool = False, preview: bool = False) -> FastAPI:
    """The app of one study; as a preview every page says that nothing is kept."""
    site = Site(title=study.config.title, package="stillme.study", hosts=hosts, secure=secure, signed=(webhook.PATH,))
    app, limits = create_app(site), study.config.limits
    app.state.context = StudyContext(
        study=study,
        preview=preview,
        pages=Pages(site),
        answers=Answers(study),
        cookie=Cookie(name="stillme-study", secure=secure),
        admin_cookie=Cookie(name="stillme-admin", secure=secure),
        entries=RequestLimit(per_minute=limits.entries_per_minute, burst=int(limits.entries_per_minute)),
        requests=RequestLimit(per_minute=limits.requests_per_minute, burst=int(limits.requests_per_minute)),
        logins=RequestLimit(per_minute=6, burst=6),
    )
    app.add_exception_handler(HTTPException, _explain)
    app.add_exception_handler(OperationalError, _ask_to_wait)
    for module in (participant_routes, answer_routes, admin_routes, webhook):
        app.include_router(module.routes)
    return app


def _explain(request: Request, error: Exception) -> Response:
    """An error as a page; as JSON for scripts."""
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)
    context: StudyContext = request.app.state.context
    title = _TITLES.get(error.status_code, "Not possible")
    text = "Please check the address." if error.status_code == 404 else error.detail
    page = context.page("message.html", None, error.status_code, title=title, text=text)
    page.headers.update(error.headers or {})
    return page


def _ask_to_wait(request: Request, _: Exception) -> Response:
    # A full disk, a database that restarts: nothing was acknowledged, and the page keeps what it has and retries.
    sentence = "The answers cannot be stored just now. Please wait."
    return _explain(request, HTTPException(503, sentence, headers={"Retry-After": "5"}))
