"""Put the study's app together."""

from __future__ import annotations

from fastapi import FastAPI
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stillme.study import admin, participating, saving
from stillme.study.answers import Answers
from stillme.study.desk import Desk
from stillme.study.opening import Study
from stillme.web.app import Site, create_app
from stillme.web.guard import LOOPBACK
from stillme.web.limits import Limit
from stillme.web.pages import Pages
from stillme.web.sessions import Cookie


def build(study: Study, *, hosts: tuple[str, ...] = LOOPBACK, secure: bool = False) -> FastAPI:
    """The app of one study."""
    site = Site(title=study.config.title, package="stillme.study", hosts=hosts, secure=secure)
    app, limits = create_app(site), study.config.limits
    desk = Desk(
        study=study,
        pages=Pages(site),
        answers=Answers(study),
        cookie=Cookie(name="stillme-study", secure=secure),
        admin_cookie=Cookie(name="stillme-admin", secure=secure),
        entries=Limit(per_minute=limits.entries_per_minute, burst=int(limits.entries_per_minute)),
        requests=Limit(per_minute=limits.requests_per_minute, burst=int(limits.requests_per_minute)),
        logins=Limit(per_minute=6, burst=6),
    )

    def explain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)
        title = {401: "Please open your link again", 404: "There is nothing here"}.get(
            error.status_code, "Not possible"
        )
        text = "Please check the address." if error.status_code == 404 else error.detail
        shown = desk.pages.show(
            "message.html", error.status_code, config=study.config, visitor=None, csrf="", title=title, text=text
        )
        shown.headers.update(error.headers or {})
        return shown

    def wait(request: Request, _: Exception) -> Response:
        # A full disk, a database that restarts: nothing was acknowledged, and the page keeps what it has and retries.
        trouble = HTTPException(
            503, "The answers cannot be stored just now. Please wait.", headers={"Retry-After": "5"}
        )
        return explain(request, trouble)

    app.add_exception_handler(HTTPException, explain)
    app.add_exception_handler(OperationalError, wait)
    for routes in (participating, saving, admin):
        routes.add_routes(app, desk)
    return app
