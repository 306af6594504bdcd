"""Put the curation app together."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from stillme.curation.pages.encoded_pictures import EncodedPictures
from stillme.curation.pages.routes import CurationContext, NoName, routes
from stillme.curation.pages.workspace import NotAllowed, Workspace
from stillme.web.app import Site, create_app
from stillme.web.pages import Pages
from stillme.web.sessions import Cookie, SingleUser


def create(workspace: Workspace, site: Site, user: SingleUser) -> FastAPI:
    """The app of one folder of pools."""
    app = create_app(site)
    user.protect(app)
    app.state.context = CurationContext(
        workspace=workspace,
        pages=Pages(site),
        pictures=EncodedPictures(workspace.pools),
        user=user,
        cookie=Cookie(name="stillme-curator", secure=site.secure),
    )
    app.add_exception_handler(NotAllowed, _refuse)
    app.add_exception_handler(NoName, _ask_for_name)
    app.include_router(routes)
    return app


def _refuse(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=422)


def _ask_for_name(_: Request, __: Exception) -> Response:
    return RedirectResponse("/", status_code=303)
