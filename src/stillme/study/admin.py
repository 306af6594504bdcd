"""The researcher's pages: progress, quality, submissions, release, exclude, export. Every action is logged."""

from __future__ import annotations

import io
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from stillme import rubric
from stillme.study import assignment, keys
from stillme.study import schema as t
from stillme.study.agreement import agreements
from stillme.study.desk import Desk, client
from stillme.study.export import export_study
from stillme.study.progress import progress
from stillme.study.quality import rater_qualities
from stillme.study.ratings import raters
from stillme.study.submissions import submissions
from stillme.web import events
from stillme.web.forms import read_form
from stillme.web.sessions import csrf_of, new_token, require_csrf, token_hash

Form = Annotated[Mapping[str, str], Depends(read_form)]

HOURS = 8
_REASONS = ("returned", "released")


def add_routes(app: FastAPI, desk: Desk) -> None:
    """Serve the pages."""
    study = desk.study

    def signed_in(request: Request) -> str | None:
        token = desk.admin_cookie.read(request) or ""
        with study.database.reading() as connection:
            until = connection.execute(
                sa.select(t.admin_session.c.expires).where(
                    t.admin_session.c.token_hash == token_hash(token), t.admin_session.c.study == study.id
                )
            ).scalar()
        return token if until and until > time.time() else None

    def admin(request: Request) -> str:
        token = signed_in(request)
        if token is None:
            raise HTTPException(401, "Please sign in at /admin.")
        return token

    def checked(request: Request, form: Mapping[str, str]) -> None:
        require_csrf(admin(request), form.get("csrf"))

    def page(name: str, request: Request, **context: object) -> Response:
        token = admin(request)
        return desk.pages.show(name, config=study.config, csrf=csrf_of(token), folder=study.folder.name, **context)

    @app.get("/admin")
    def overview(request: Request) -> Response:
        if signed_in(request) is None:
            return desk.pages.show("admin-login.html", config=study.config, wrong=False)
        with study.database.writing() as connection:
            assignment.expire(connection, study.id, time.time())
        with study.database.reading() as connection:
            return page(
                "admin.html",
                request,
                progress=progress(study, connection),
                qualities=rater_qualities(study, connection),
                agreements=agreements(study, connection),
                titles={name: axis.title for name, axis in rubric.load().axes.items()},
            )

    @app.post("/admin/login")
    def login(request: Request, form: Form) -> Response:
        desk.logins.require(client(request))
        # Read anew, so that `stillme study password` works while the study is served.
        if not keys.load(study.folder).is_admin(form.get("password", "")):
            with study.database.writing() as connection:
                study.record(connection, "somebody", "wrong password")
            return desk.pages.show("admin-login.html", 403, config=study.config, wrong=True)
        token = new_token()
        with study.database.writing() as connection:
            connection.execute(
                t.admin_session.insert().values(
                    token_hash=token_hash(token), study=study.id, expires=time.time() + HOURS * 3600
                )
            )
            study.record(connection, "admin", "signed in")
        response = RedirectResponse("/admin", status_code=303)
        desk.admin_cookie.give(response, token)
        return response

    @app.post("/admin/logout")
    def logout(request: Request, form: Form) -> Response:
        checked(request, form)
        gone = token_hash(desk.admin_cookie.read(request) or "")
        with study.database.writing() as connection:
            connection.execute(t.admin_session.delete().where(t.admin_session.c.token_hash == gone))
        response = RedirectResponse("/admin", status_code=303)
        desk.admin_cookie.take(response)
        return response

    @app.get("/admin/submissions")
    def list_submissions(request: Request) -> Response:
        admin(request)
        with study.database.writing() as connection:
            # Identities are decrypted here and nowhere else.
            study.record(connection, "admin", "looked at submissions")
            found = submissions(study, connection)
        return page("admin-submissions.html", request, submissions=found, reasons=_REASONS)

    @app.get("/admin/log")
    def log(request: Request) -> Response:
        admin(request)
        with study.database.reading() as connection:
            lines = list(events.read(connection, t.audit))[-500:]
        return page("admin-log.html", request, lines=lines[::-1])

    @app.post("/admin/release")
    def release(request: Request, form: Form) -> Response:
        checked(request, form)
        reason = form.get("reason", "")
        if reason not in _REASONS:
            raise HTTPException(400, "Choose why the place is released.")
        with study.database.writing() as connection:
            slot = _slot_of(connection, form.get("rater", ""))
            if not assignment.release(connection, slot, reason, time.time()):
                raise HTTPException(409, "This place is not held any more.")
            study.record(connection, "admin", "released", rater=form.get("rater", ""), reason=reason)
        return RedirectResponse("/admin", status_code=303)

    @app.post("/admin/exclude")
    def exclude(request: Request, form: Form) -> Response:
        checked(request, form)
        reason = form.get("reason", "").strip()[:200]
        with study.database.writing() as connection:
            slot = _slot_of(connection, form.get("rater", ""))
            who = connection.execute(sa.select(t.slot.c.participant).where(t.slot.c.id == slot)).scalar_one()
            connection.execute(t.participant.update().where(t.participant.c.id == who).values(excluded=reason or None))
            study.record(
                connection, "admin", "excluded" if reason else "included", rater=form.get("rater", ""), reason=reason
            )
        return RedirectResponse("/admin", status_code=303)

    @app.get("/admin/export.zip")
    def export(request: Request) -> Response:
        admin(request)
        with study.database.writing() as connection:
            study.record(connection, "admin", "exported")
        buffer = io.BytesIO()
        with tempfile.TemporaryDirectory() as scratch:
            written = export_study(study, Path(scratch), "csv")
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
                for file in written:
                    packed.write(file, file.name)
        headers = {"Content-Disposition": 'attachment; filename="study-export.zip"'}
        return Response(buffer.getvalue(), media_type="application/zip", headers=headers)

    def _slot_of(connection: sa.Connection, name: str) -> str:
        for person in raters(study, connection):
            if person.name == name:
                return person.slot
        raise HTTPException(404, "No rater of that name holds a place.")
