"""Build an app with the guard, the headers and the static files in place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from stillme.web.guard import Guard, SecurityHeaders
from stillme.web.hosts import LOOPBACK

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Which app this is, and how the outside reaches it."""

    title: str
    package: str
    """The package with its `templates/` and `static/`."""
    hosts: tuple[str, ...] = LOOPBACK
    """Names under which it is served; `*` for any."""
    secure: bool = False
    """Reached over https, as behind a reverse proxy."""
    signed: tuple[str, ...] = ()
    """Paths that other servers may post to; what they send must carry a signature that the route checks."""


def create_app(site: Site) -> FastAPI:
    """An app that serves `/static`, refuses requests from other sites and has no documentation pages."""
    app = FastAPI(title=site.title, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, hosts=site.hosts, signed=site.signed)
    # Added last, so outermost: refusals carry the headers too.
    app.add_middleware(SecurityHeaders, secure=site.secure)
    app.add_exception_handler(RequestValidationError, _explain_invalid)
    app.mount("/static", _Static(site), name="static")
    return app


def static_folders(site: Site) -> list[Path]:
    """Where static files are looked for: the app's own folder, then the shared one."""
    packages = (site.package, "stillme.web")
    folders = (Path(str(files(package))) / "static" for package in packages)
    return [folder for folder in folders if folder.is_dir()]


class _Static(StaticFiles):
    def __init__(self, site: Site) -> None:
        own, *others = static_folders(site)
        super().__init__(directory=own)
        self.all_directories = [own, *others]

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        # Addresses from `Pages.static` carry the hash of the content; modules that import each other do not.
        caching = "public, max-age=31536000, immutable" if scope["query_string"] else "no-cache"
        response.headers["Cache-Control"] = caching
        return response


def _explain_invalid(_: Request, error: Exception) -> Response:
    # FastAPI's own answer repeats the input, which may hold secrets.
    assert isinstance(error, RequestValidationError)
    places = [".".join(str(part) for part in detail["loc"]) for detail in error.errors()]
    return JSONResponse({"error": "The request is invalid.", "places": places}, status_code=422)
