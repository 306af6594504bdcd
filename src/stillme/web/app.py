"""What an app is built of: the guard, the headers, static files and pages, sessions and their CSRF tokens."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stillme.core.addresses import LOOPBACK, names_host

SAFE_METHODS = frozenset({"GET", "HEAD"})

_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # `no-referrer` would make browsers send `Origin: null` with our own forms; this tells other sites just as little.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), browsing-topics=()",
    "X-Frame-Options": "DENY",
}
_HSTS = "max-age=31536000"
_MAX_BODY = 65_536


class Guard:
    """Refuses other hosts, changes requested by other sites, and bodies larger than any form of ours.

    Every answer gets the security headers, refusals too; pages are not stored unless the answer says otherwise.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = LOOPBACK, secure: bool = False) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._headers = {**_HEADERS, **({"Strict-Transport-Security": _HSTS} if secure else {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 403, 411 or 413, or pass the request on."""
        if scope["type"] == "websocket":
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        app = self._app
        if refusal := self._refusal(str(scope["method"]), Headers(scope=scope)):
            app = PlainTextResponse(refusal[1], status_code=refusal[0])
        await app(scope, receive, with_headers)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not names_host(host, self._hosts):
            return 400, "Not served under this host name. Open the address that the terminal shows."
        if method in SAFE_METHODS:
            return None
        if not _is_ours(headers, host):
            return 403, "This request did not come from our own page. Open the page again and retry."
        if "content-length" not in headers:
            return (411, "Send the length of the request (Content-Length).") if "transfer-encoding" in headers else None
        length = headers["content-length"]
        if not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > _MAX_BODY:
            return 413, "The request is too large."
        return None


def _is_ours(headers: Headers, host: str) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site == "same-origin" and (origin in (None, "null") or _authority(origin) == host.lower())
    return origin is not None and _authority(origin) == host.lower()


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


_REMEMBERED = 20_000
"""Clients to keep; those not seen for longest are dropped first, so that memory stays flat."""


@dataclass
class RequestLimit:
    """A token bucket per client: `burst` requests at once, then `per_minute` evenly. Kept per process."""

    per_minute: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, tuple[float, float]] = field(
        default_factory=lambda: OrderedDict[str, tuple[float, float]]()
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self, client: str) -> bool:
        """Count one request of a client; false if it exceeds the limit."""
        now = self.clock()
        with self._lock:
            left, since = self._buckets.pop(client, (float(self.burst), now))
            left = min(float(self.burst), left + (now - since) * self.per_minute / 60)
            allowed = left >= 1
            self._buckets[client] = (left - 1 if allowed else left, now)
            while len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        return allowed

    def require(self, client: str) -> None:
        """Answer 429 if this request exceeds the limit."""
        if not self.allows(client):
            raise HTTPException(429, "Too many requests. Wait a moment.", headers={"Retry-After": "5"})


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


_YEAR = 365 * 24 * 3600
_HOLDER = "stillme.holder"


def new_token() -> str:
    """256 random bits, safe in a cookie and in an address."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What a database keeps: a reader of the database cannot use it to sign in."""
    return hashlib.sha256(token.encode()).hexdigest()


def csrf_of(token: str) -> str:
    """The CSRF token of a session: known to its own pages only, and needs no storage."""
    return hmac.new(token.encode(), b"stillme csrf", hashlib.sha256).hexdigest()[:32]


async def sent_csrf(request: Request) -> str:
    """The CSRF token that a request carries, as the header `X-CSRF` or as a field of its form."""
    is_form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    return request.headers.get("x-csrf") or ((await read_form(request)).get("csrf", "") if is_form else "")


def require_csrf(token: str, given: str | None) -> None:
    """Answer 403 unless `given` is the session's CSRF token, and 400 if it cannot be one."""
    given = given or ""
    if not given.isascii():
        raise HTTPException(400, "The request cannot be read. Open the page again and retry.")
    if not hmac.compare_digest(csrf_of(token), given):
        raise HTTPException(403, "The page is out of date. Open it again and retry.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie that scripts cannot read and other sites cannot send."""

    name: str
    secure: bool
    """Served over https. Only then may a name start with `__Host-`, which ties the cookie to this very host."""

    @property
    def full_name(self) -> str:
        """The name as the browser knows it."""
        return f"__Host-{self.name}" if self.secure else self.name

    def read(self, request: Request) -> str | None:
        """The token that the browser sent."""
        return request.cookies.get(self.full_name)

    def set_on(self, response: Response, token: str, *, seconds: int | None = None) -> None:
        """Send the token to the browser; without `seconds` it lasts until the browser closes."""
        response.set_cookie(
            self.full_name, token, max_age=seconds, path="/", secure=self.secure, httponly=True, samesite="lax"
        )

    def clear_on(self, response: Response) -> None:
        """Have the browser delete it."""
        response.delete_cookie(self.full_name, path="/", secure=self.secure, httponly=True, samesite="lax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who sent a request: the person whose key the browser holds."""

    name: str
    key: str

    @property
    def csrf(self) -> str:
        """The CSRF token for this person's forms and for the header `X-CSRF`."""
        return csrf_of(self.key)

    def require_csrf(self, given: str | None) -> None:
        """Answer 403 unless `given` is the CSRF token."""
        require_csrf(self.key, given)


class KeyHolders:
    """An app for people who each have a key of their own: others do not get in, and no one can act for another."""

    def __init__(self, site: Site, secret: str, names: Iterable[str]) -> None:
        self._cookie = Cookie(name="stillme-key", secure=site.secure)
        made = {name: hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest() for name in names}
        self.keys: Mapping[str, str] = made
        """By name."""
        # Looked up by hash: how long that takes says nothing about a key.
        self._holders = {token_hash(key): Holder(name=name, key=key) for name, key in made.items()}

    def entry_path(self, name: str) -> str:
        """The path that lets this person's browser in; add it to the server's address."""
        return "/?" + urlencode({"key": self.keys[name]})

    def protect(self, app: FastAPI) -> None:
        """Let no one in without a key. It moves from the address into a cookie at once."""
        # Innermost, so that the guard comes first and its answers carry the security headers.
        app.user_middleware.append(Middleware(self._gate))

    def _gate(self, app: ASGIApp) -> ASGIApp:
        async def let_in(scope: Scope, receive: Receive, send: Send) -> None:
            answer: ASGIApp = app
            if scope["type"] == "http":
                request = Request(scope)
                if entering := self._holder(request.query_params.get("key")):
                    answer = response = RedirectResponse(request.url.path, status_code=303)
                    self._cookie.set_on(response, entering.key, seconds=_YEAR)
                elif holder := self._holder(self._cookie.read(request)):
                    scope[_HOLDER] = holder
                else:
                    refusal = "Open your own link, as the terminal shows it: it holds your key."
                    answer = PlainTextResponse(refusal, status_code=403)
            await answer(scope, receive, send)

        return let_in

    def _holder(self, key: str | None) -> Holder | None:
        return self._holders.get(token_hash(key)) if key else None


async def holder_of(request: Request) -> Holder:
    """Who sent this request."""
    return request.scope[_HOLDER]
