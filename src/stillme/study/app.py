"""Put the study's app together, and serve it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stillme.study import admin_routes, participant_routes
from stillme.study.answers import Answers
from stillme.study.config import FILE, InvalidStudy, lacking_for_people, warnings
from stillme.study.entry import invite
from stillme.study.opening import DATABASE, Study, open_study
from stillme.study.participant_routes import StudyContext
from stillme.web.app import Pages, Site, create_app
from stillme.web.guard import RequestLimit
from stillme.web.hosts import LOOPBACK
from stillme.web.serving import Server
from stillme.web.sessions import Cookie

_TITLES = {401: "Please open your link again", 404: "There is nothing here"}


def build(study: Study, *, hosts: tuple[str, ...] = LOOPBACK, secure: bool = False, preview: bool = False) -> FastAPI:
    """The app of one study; as a preview every page says that nothing is kept."""
    site = Site(title=study.config.title, package="stillme.study", hosts=hosts, secure=secure)
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
    for module in (participant_routes, admin_routes):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how a study is served."""

    host: str = "127.0.0.1"
    port: int | None = None
    public_url: str = ""
    proxies: tuple[str, ...] = ()


def preview(folder: Path, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve the study in `folder` on a database that is thrown away, until interrupted."""
    with tempfile.TemporaryDirectory(prefix="stillme-preview-") as scratch:
        database = Path(scratch) / DATABASE
        with open_study(folder, database) as study:
            file = folder / FILE
            for problem in lacking_for_people(study.config, file):
                say(f"Before participants come: {problem}")
            for warning in warnings(study.config):
                say(f"Note: {warning}")
            server = Server.choose(host=options.host, port=options.port, public_url=options.public_url)
            (code,) = invite(study, 1)
            say(f"Preview at {server.address}/i/{code}")
            say(f"Admin pages: {server.address}/admin    Stop with Ctrl+C; nothing of this is kept.")
            server.run(build(study, hosts=server.hosts, secure=server.secure, preview=True))


def serve(folder: Path, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve the study in `folder` until interrupted."""
    with open_study(folder, renew=True) as study:
        if lacking := lacking_for_people(study.config, folder / FILE):
            raise InvalidStudy(str(folder / FILE), lacking)
        for warning in warnings(study.config):
            say(f"Note: {warning}")
        recruiting = study.config.recruiting
        entrance = "/enter?" + "&".join(f"{name}=…" for name in recruiting.parameters) if recruiting else "/i/CODE"
        server = Server.choose(host=options.host, port=options.port, public_url=options.public_url)
        if server.public and not server.secure:
            say(
                "Note: other machines can reach this without https. Put a proxy in front and name it with --public-url."
            )
        say(f"Study of {study.drawn.batches} tasks at {server.address}; participants enter by {entrance}")
        say(f"Admin pages: {server.address}/admin    Stop with Ctrl+C; every acknowledged answer is on disk.")
        app = build(study, hosts=server.hosts, secure=server.secure)
        server.run(app, trusted_proxies=options.proxies)
