"""Plain HTTP with JSON, for providers whose own client loses what an audit needs.

Their clients retry in silence, drop `Retry-After`, or lose the field that marks a refusal; docs/editors-hosted.md says
which does what. Here every answer is seen as it came.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from stillme.editors.hosted.faults import Broken, of_answer, of_connection, of_status, shortened
from stillme.editors.hosted.pictures import from_base64
from stillme.types import Json

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

_LARGEST = 64 * 2**20
"""Bytes of a picture that we are ready to hold."""
_STUMBLES = 5
"""Answers in a row that may go wrong while we wait for work that is already paid for."""


@dataclass(frozen=True)
class Reply:
    """What a server answered, whatever the status."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @cached_property
    def body(self) -> Json:
        """The parsed JSON; None if it is none."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None

    @property
    def text(self) -> str:
        """The content for people."""
        return self.content.decode(errors="replace")

    def require_success(self, words: str = "") -> Reply:
        """Raise the failure that an error status stands for."""
        if self.status >= 400:
            raise of_status(self.status, words or self.text, self.headers)
        return self

    def require_json(self) -> Json:
        """The JSON object of a successful answer."""
        self.require_success()
        body: Json = self.body
        if not isinstance(body, dict):
            raise of_answer("no JSON object", self.text)
        return cast("Json", body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for queued work, and how often to look."""

    seconds: float
    interval: float = 0.5


class Wire:
    """A connection to one provider. The key goes to that provider only, never to where a picture lies."""

    def __init__(self, base_url: str, headers: Mapping[str, str], *, timeout: float) -> None:
        self.base_url = base_url.rstrip("/")
        self._client = _client(timeout, headers)

    def send(self, method: str, path: str, *, body: Json = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send to a path below `base_url`, and return whatever is answered."""
        return _exchange(self._client, method, f"{self.base_url}{path}", json=body, headers=dict(headers or {}))

    def close(self) -> None:
        """Close the sockets."""
        self._client.close()


def wait_for(look: Callable[[], Reply], done: Callable[[Json], bool], patience: Patience) -> Json:
    """Look until the work is done. A hiccup on the way must not lose work that is paid for."""
    end = time.monotonic() + patience.seconds
    stumbles, pause = 0, patience.interval
    while True:
        try:
            body = look().require_json()
            if done(body):
                return body
            stumbles, wait = 0, pause
            pause = min(pause * 1.5, max(5.0, patience.interval))
        except Broken as broken:
            stumbles += 1
            if broken.account or not broken.failed.retryable or stumbles > _STUMBLES:
                raise
            wait = broken.failed.retry_after if broken.failed.retry_after is not None else pause
        if time.monotonic() + wait > end:
            raise Broken(f"not done after {patience.seconds:g} s", retryable=True)
        time.sleep(wait)


def download(link: object, *, timeout: float) -> bytes:
    """The picture behind a link, or inside a data URI."""
    if not isinstance(link, str):
        raise of_answer("no link to a picture", link)
    if link.startswith("data:"):
        return from_base64(link.partition(";base64,")[2])
    if urlsplit(link).scheme not in ("http", "https"):
        raise of_answer("no link to a picture", link)
    with _client(timeout) as client:
        reply = _exchange(client, "GET", link)
    if reply.status >= 400:
        # The edit was made; only its picture is out of reach, and another try makes another one.
        raise Broken(f"the picture cannot be fetched ({reply.status}: {shortened(reply.text)})", retryable=True)
    return reply.content


def path_of(link: object) -> str:
    """The path of a link that a provider gave, so that the key is sent to the known host only."""
    path = urlsplit(link).path if isinstance(link, str) else ""
    if not path:
        raise of_answer("no link to the queued work", link)
    return path


def _client(timeout: float, headers: Mapping[str, str] | None = None) -> httpx2.Client:
    import httpx2

    return httpx2.Client(headers=dict(headers or {}), timeout=timeout, follow_redirects=True, verify=_certificates())


@cache
def _certificates() -> SSLContext:
    """Reading them takes 50 ms, too long for every picture."""
    import httpx2

    return httpx2.create_ssl_context()


def _exchange(client: httpx2.Client, method: str, url: str, **options: Any) -> Reply:
    import httpx2

    # The client's time-out is for each piece of an answer; one that trickles in would never reach it.
    limit = client.timeout.read or math.inf
    end = time.monotonic() + limit
    try:
        with client.stream(method, url, **options) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > _LARGEST:
                    raise of_answer(f"more than {_LARGEST >> 20} MB", response.headers.get("content-type"))
                if time.monotonic() > end:
                    raise Broken(f"no whole answer within {limit:g} s", retryable=True)
            return Reply(response.status_code, dict(response.headers), bytes(content))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise of_connection(error) from error
