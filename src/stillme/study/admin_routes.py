"""The researcher's pages: progress, quality, submissions, release, exclude, export. Every action is logged."""

from __future__ import annotations

import io
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from stillme.core import rubric
from stillme.study import assignment, keys
from stillme.study.export import comments, export_study
from stillme.study.opening import Study, read_log
from stillme.study.participant_routes import Context, Form, SentCsrf, StudyContext, client
from stillme.study.progress import overview_of
from stillme.study.quality import ADVICE, Rater, check_answers, raters
from stillme.study.submissions import submissions
from stillme.web.app import SAFE_METHODS, csrf_of, new_token, require_csrf, token_hash
from stillme.web.database import Transaction

SESSION_HOURS = 8
_LOG_LINES = 500
_REASONS = ("returned", "released")

routes = APIRouter()


def admin_of(request: Request, context: Context, csrf: SentCsrf) -> str:
    """The token of the admin's session; 401 without one, 403 for a change that one of their own pages did not ask."""
    token = _signed_in(request, context)
    if token is None:
        raise HTTPException(401, "Please sign in at /admin.")
    if request.method not in SAFE_METHODS:
        require_csrf(token, csrf)
    return token


Admin = Annotated[str, Depends(admin_of)]
SIGNED_IN = [Depends(admin_of)]


@routes.get("/admin")
def overview(request: Request, context: Context) -> Response:
    """Progress, agreement and quality; the login page for others."""
    token, study = _signed_in(request, context), context.study
    if token is None:
        return context.pages.show("admin-login.html", config=study.config, wrong=False)
    found = overview_of(study)
    with study.database.reading() as connection:
        missed = [answer for answer in check_answers(study, connection) if not answer["right"]]
        written = comments(study, connection)
    titles = {name: axis.title for name, axis in rubric.load().axes.items()}
    shown = {"overview": found, "missed": missed, "comments": written, "advice": ADVICE, "titles": titles}
    return _page(context, token, "admin.html", **shown)


@routes.post("/admin/login")
def login(request: Request, context: Context, form: Form) -> Response:
    """Check the password and begin a session."""
    study = context.study
    context.logins.require(client(request))
    # Read each time, so that `stillme study password` works while the study is served.
    if not keys.load(study.folder).is_admin(form.get("password", "")):
        with study.database.writing() as connection:
            study.record(connection, "unknown", "wrong password")
        return context.pages.show("admin-login.html", 403, config=study.config, wrong=True)
    token = new_token()
    with study.database.writing() as connection:
        session = {"token_hash": _session_hash(study, token), "expires": time.time() + SESSION_HOURS * 3600}
        connection.insert("admin_session", session)
        study.record(connection, "admin", "signed in")
    response = _to_overview()
    context.admin_cookie.set_on(response, token)
    return response


@routes.post("/admin/logout")
def logout(context: Context, token: Admin) -> Response:
    """End the session."""
    with context.study.database.writing() as connection:
        own = (_session_hash(context.study, token),)
        connection.execute("DELETE FROM admin_session WHERE token_hash = ?", own)
    response = _to_overview()
    context.admin_cookie.clear_on(response)
    return response


@routes.get("/admin/submissions")
def list_submissions(context: Context, token: Admin) -> Response:
    """Who came by the study's address, while ids are kept."""
    with context.study.database.writing() as connection:
        # Identities are decrypted here and nowhere else.
        context.study.record(connection, "admin", "looked at submissions")
        listed = submissions(context.study, connection)
    return _page(context, token, "admin-submissions.html", submissions=listed, reasons=_REASONS)


@routes.get("/admin/log")
def log(context: Context, token: Admin) -> Response:
    """The newest lines of the audit log."""
    with context.study.database.reading() as connection:
        lines = read_log(connection)[-_LOG_LINES:]
    return _page(context, token, "admin-log.html", lines=lines[::-1])


@routes.post("/admin/release")
def release(context: Context, form: Form, token: Admin) -> Response:
    """Give a rater's place to another, after asking once more."""
    reason, rater = form.get("reason", ""), form.get("rater", "")
    if reason not in _REASONS:
        raise HTTPException(400, "Choose why the place is released.")
    if form.get("sure") != "yes":
        with context.study.database.reading() as connection:
            slot = _rater_named(context.study, connection, rater).slot
            answers = connection.value("SELECT count(*) FROM answer WHERE slot = ?", (slot,))
        return _page(context, token, "admin-release.html", rater=rater, reason=reason, answers=answers)
    with context.study.database.writing() as connection:
        slot = _rater_named(context.study, connection, rater).slot
        if not assignment.release(connection, slot, reason, time.time()):
            raise HTTPException(409, "This place is not held any more.")
        context.study.record(connection, "admin", "released", rater=rater, reason=reason)
    return _to_overview()


@routes.post("/admin/exclude", dependencies=SIGNED_IN)
def exclude(context: Context, form: Form) -> Response:
    """Exclude a rater from the results; without a reason, include them again."""
    reason, name = form.get("reason", "").strip()[:200], form.get("rater", "")
    with context.study.database.writing() as connection:
        rater = _rater_named(context.study, connection, name)
        if reason:
            assignment.exclude(connection, rater.participant, reason, time.time())
        elif not assignment.include(connection, rater.participant):
            raise HTTPException(409, "Another rater has this place by now, so they stay excluded.")
        context.study.record(connection, "admin", "excluded" if reason else "included", rater=name, reason=reason)
    return _to_overview()


@routes.get("/admin/export.zip", dependencies=SIGNED_IN)
def export(context: Context) -> Response:
    """All tables as one archive."""
    with context.study.database.writing() as connection:
        context.study.record(connection, "admin", "exported")
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch:
        written = export_study(context.study, Path(scratch), "csv")
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in written:
                packed.write(file, file.name)
    headers = {"Content-Disposition": 'attachment; filename="study-export.zip"'}
    return Response(buffer.getvalue(), media_type="application/zip", headers=headers)


def _signed_in(request: Request, context: StudyContext) -> str | None:
    token = context.admin_cookie.read(request) or ""
    hashed = _session_hash(context.study, token)
    with context.study.database.reading() as connection:
        expires = connection.value("SELECT expires FROM admin_session WHERE token_hash = ?", (hashed,))
    return token if expires and expires > time.time() else None


def _session_hash(study: Study, token: str) -> str:
    """Of the token and the password's hash: a new password ends every session, wherever the database is."""
    return token_hash(f"{token}:{keys.load(study.folder).admin}")


def _page(context: StudyContext, token: str, name: str, **values: object) -> Response:
    study = context.study
    return context.pages.show(name, config=study.config, csrf=csrf_of(token), folder=study.folder.name, **values)


def _to_overview() -> Response:
    return RedirectResponse("/admin", status_code=303)


def _rater_named(study: Study, connection: Transaction, name: str) -> Rater:
    """A rater about whom something can still be decided."""
    for rater in raters(study, connection):
        if rater.name == name:
            if rater.written:
                raise HTTPException(409, "This rater's answers have been added to the run and stay there.")
            return rater
    raise HTTPException(404, "No rater of that name holds a place.")
