"""The study's app: build it, serve it, preview it."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stillme.core.addresses import LOOPBACK
from stillme.study import admin_routes, participant_routes
from stillme.study.answers import StalePage
from stillme.study.config import FILE, InvalidStudy, lacking_for_people, warnings
from stillme.study.entry import RequestRefused, invite
from stillme.study.opening import DATABASE, Study, open_study
from stillme.study.participant_routes import StudyContext
from stillme.web.app import Cookie, Pages, RequestLimit, Site, create_app
from stillme.web.serving import WebServer

_TITLES = {401: "Please open your link again", 404: "There is nothing here"}


def build(study: Study, *, hosts: tuple[str, ...] = LOOPBACK, secure: bool = False, preview: bool = False) -> FastAPI:
    """The app of one study; as a preview every page says that nothing is kept."""
    site = Site(title=study.config.title, package="stillme.study", hosts=hosts, secure=secure)
    app, limits = create_app(site), study.config.limits
    app.state.context = StudyContext(
        study=study,
        preview=preview,
        pages=Pages(site),
        cookie=Cookie(name="stillme-study", secure=secure),
        admin_cookie=Cookie(name="stillme-admin", secure=secure),
        entries=RequestLimit(per_minute=limits.entries_per_minute, burst=int(limits.entries_per_minute)),
        requests=RequestLimit(per_minute=limits.requests_per_minute, burst=int(limits.requests_per_minute)),
        logins=RequestLimit(per_minute=6, burst=6),
    )
    for kind in (HTTPException, sqlite3.OperationalError, RequestRefused):
        app.add_exception_handler(kind, _explain)
    for module in (participant_routes, admin_routes):
        app.include_router(module.routes)
    return app


_CLOSED = "The study has been closed. Please reload: the next page explains what happens and how you are paid."


def _explain(request: Request, error: Exception) -> Response:
    """An error as a page; as JSON for scripts."""
    context: StudyContext = request.app.state.context
    title, headers = "Not possible", None
    match error:
        case StalePage() if not context.study.is_open:
            status, text = error.status, _CLOSED
        case RequestRefused():
            status, title, text = error.status, error.title, str(error) or error.text
        case HTTPException():
            status, title, headers = error.status_code, _TITLES.get(error.status_code, title), error.headers
            text = "Please check the address." if status == 404 else error.detail
        case _:
            # A full disk: nothing was acknowledged, and the page keeps what it has and retries.
            status, headers = 503, {"Retry-After": "5"}
            text = "The answers cannot be stored just now. Please wait."
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": text}, status_code=status, headers=headers)
    page = context.page("message.html", None, status, title=title, text=text)
    page.headers.update(headers or {})
    return page


def preview(folder: Path, say: Callable[[str], None], *, host: str = "127.0.0.1", port: int | None = None) -> None:
    """Serve the study in `folder` on a database that is thrown away, until interrupted."""
    with (
        tempfile.TemporaryDirectory(prefix="stillme-preview-") as scratch,
        open_study(folder, Path(scratch) / DATABASE) as study,
    ):
        for problem in lacking_for_people(study.config, folder / FILE):
            say(f"Before participants come: {problem}")
        for warning in warnings(study.config):
            say(f"Note: {warning}")
        server = WebServer.choose(host=host, port=port)
        (code,) = invite(study, 1)
        say(f"Preview at {server.address}/i/{code}")
        say(f"Admin pages: {server.address}/admin    Stop with Ctrl+C; nothing of this is kept.")
        server.run(build(study, hosts=server.hosts, secure=server.secure, preview=True))


def serve(
    folder: Path,
    say: Callable[[str], None],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    public_url: str = "",
    proxies: tuple[str, ...] = (),
) -> None:
    """Serve the study in `folder` until interrupted."""
    with open_study(folder, renew=True) as study:
        if lacking := lacking_for_people(study.config, folder / FILE):
            raise InvalidStudy(str(folder / FILE), lacking)
        for warning in warnings(study.config):
            say(f"Note: {warning}")
        recruiting = study.config.recruiting
        entrance = "/enter?" + "&".join(f"{name}=…" for name in recruiting.parameters) if recruiting else "/i/CODE"
        server = WebServer.choose(host=host, port=port, public_url=public_url)
        if server.public and not server.secure:
            say(
                "Note: other machines can reach this without https. Put a proxy in front and name it with --public-url."
            )
        say(f"Study of {study.drawn.batches} tasks at {server.address}; participants enter by {entrance}")
        say(f"Admin pages: {server.address}/admin    Stop with Ctrl+C; every acknowledged answer is on disk.")
        server.run(build(study, hosts=server.hosts, secure=server.secure), trusted_proxies=proxies)
