"""Build an app with the guard, the headers and the static files in place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from stillme.web.guard import Guard
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


def create_app(site: Site) -> FastAPI:
    """An app that serves `/static`, refuses requests from other sites and has no documentation pages."""
    app = FastAPI(title=site.title, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, hosts=site.hosts, secure=site.secure)
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


class Pages:
    """The templates of a site and the shared ones; everything is escaped, and an unknown name is an error."""

    def __init__(self, site: Site) -> None:
        self._folders = tuple(static_folders(site))
        self._environment = Environment(
            loader=ChoiceLoader([PackageLoader(site.package), PackageLoader("stillme.web")]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._globals = {"static": self.static, "site": site}

    def show(self, name: str, status: int = 200, /, **context: Any) -> HTMLResponse:
        """Render a template."""
        return HTMLResponse(self._environment.get_template(name).render(self._globals, **context), status_code=status)

    def static(self, name: str) -> str:
        """The address of a static file, with the hash of its content so that browsers may keep it."""
        for folder in self._folders:
            if (folder / name).is_file():
                return f"/static/{name}?{_hash(folder / name)}"
        raise LookupError(f"no static file {name!r}")


@cache
def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


FIELDS = 200
_DIGITS = 9


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a urlencoded form, the last of each name; anything else is answered with 415 or 400."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send this as a form.")
    try:
        body = (await request.body()).decode("utf-8")
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=FIELDS, errors="strict"))
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None


def number_in(form: Mapping[str, str], name: str) -> int:
    """A whole number of a form, 0 where it is empty; anything else is answered with 400."""
    text = form.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise HTTPException(400, "The form cannot be read. Open the page again and retry.")
    return int(text or 0)
