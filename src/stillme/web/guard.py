"""Refuse requests that none of our pages would send, and add the security headers to every answer."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stillme.web.hosts import LOOPBACK, names_host

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
