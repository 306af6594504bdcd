"""Opaque tokens, the cookies that carry them, and the CSRF tokens that follow from them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stillme.web.app import Site, read_form

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
