"""Opaque tokens, the cookies that carry them, and the CSRF tokens that follow from them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stillme.web.app import Site


def new_token() -> str:
    """256 random bits, safe in a cookie and in an address."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What a database keeps: a reader of the database cannot use it to sign in."""
    return hashlib.sha256(token.encode()).hexdigest()


def csrf_of(token: str) -> str:
    """The CSRF token of a session: known to its own pages only, and needs no storage."""
    return hmac.new(token.encode(), b"stillme csrf", hashlib.sha256).hexdigest()[:32]


def require_csrf(token: str, given: str | None) -> None:
    """Answer 403 unless `given` is the session's CSRF token."""
    if not hmac.compare_digest(csrf_of(token), given or ""):
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


@dataclass(frozen=True)
class SingleUser:
    """An app for the one person who started it: other users of the machine do not have its key."""

    site: Site
    key: str = field(default_factory=new_token)

    @property
    def entry_path(self) -> str:
        """The path that lets the browser in; add it to the server's address."""
        return "/?" + urlencode({"key": self.key})

    @property
    def csrf(self) -> str:
        """The CSRF token for forms and for the header `X-CSRF`."""
        return csrf_of(self.key)

    def require_csrf(self, given: str | None) -> None:
        """Answer 403 unless `given` is the CSRF token."""
        require_csrf(self.key, given)

    def protect(self, app: FastAPI) -> None:
        """Let nobody in without the key. It moves from the address into a cookie at once."""
        cookie = Cookie(name="stillme-key", secure=self.site.secure)
        # Innermost, so that the guard comes first and its answers carry the security headers.
        app.user_middleware.append(Middleware(_KeyGate, key=self.key, cookie=cookie))


class _KeyGate:
    def __init__(self, app: ASGIApp, *, key: str, cookie: Cookie) -> None:
        self._app, self._key, self._cookie = app, key, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.query_params.get("key")
        if given is not None and hmac.compare_digest(given.encode(), self._key.encode()):
            response: Response = RedirectResponse(request.url.path, status_code=303)
            self._cookie.set_on(response, self._key)
            await response(scope, receive, send)
        elif hmac.compare_digest((self._cookie.read(request) or "").encode(), self._key.encode()):
            await self._app(scope, receive, send)
        else:
            refusal = "Open the address that the terminal shows: it holds the key."
            await PlainTextResponse(refusal, status_code=403)(scope, receive, send)
