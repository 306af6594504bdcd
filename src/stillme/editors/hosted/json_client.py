"""JSON over plain HTTP, for providers whose official client loses information that an audit needs.

Those clients retry silently, drop `Retry-After`, or lose the field that marks a refusal; see docs/editors-hosted.md.
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

from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import CallFailed, from_connection, from_status, shortened, unexpected_answer
from stillme.types import Json

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

_MAX_BYTES = 64 * 2**20
"""Bytes of one answer that are read at most."""
_MAX_FAILURES = 5
"""Failed looks in a row before queued work, already paid for, is given up."""


@dataclass(frozen=True)
class Reply:
    """A server's answer with any status."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @cached_property
    def body(self) -> Json:
        """The parsed JSON; None if it is not JSON."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None

    @property
    def text(self) -> str:
        """The content as text."""
        return self.content.decode(errors="replace")

    def require_success(self, message: str = "") -> Reply:
        """Raise the failure that an error status means."""
        if self.status >= 400:
            raise from_status(self.status, message or self.text, self.headers)
        return self

    def require_json(self) -> Json:
        """The JSON object of a successful answer."""
        self.require_success()
        body: Json = self.body
        if not isinstance(body, dict):
            raise unexpected_answer("no JSON object", self.text)
        return cast("Json", body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """How long to wait for queued work, and how often to look, in seconds."""

    timeout: float
    interval: float = 0.5


class JsonClient:
    """A connection to one provider. The key is sent to that provider only, never to the host of a picture."""

    def __init__(self, base_url: str, headers: Mapping[str, str], *, timeout: float) -> None:
        self.base_url = base_url.rstrip("/")
        self._client = _client(timeout, headers)

    def send(self, method: str, path: str, *, body: Json = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send to a path below `base_url`, and return the answer with any status."""
        return _exchange(self._client, method, f"{self.base_url}{path}", json=body, headers=dict(headers or {}))

    def close(self) -> None:
        """Close the sockets."""
        self._client.close()


def poll(look: Callable[[], Reply], done: Callable[[Json], bool], polling: Polling) -> Json:
    """Look until the work is done. A single failed look must not lose work that is paid for."""
    end = time.monotonic() + polling.timeout
    failures, pause = 0, polling.interval
    while True:
        try:
            body = look().require_json()
            if done(body):
                return body
            failures, wait = 0, pause
            pause = min(pause * 1.5, max(5.0, polling.interval))
        except CallFailed as failure:
            failures += 1
            if failure.account or not failure.failed.retryable or failures > _MAX_FAILURES:
                raise
            wait = failure.failed.retry_after if failure.failed.retry_after is not None else pause
        if time.monotonic() + wait > end:
            raise CallFailed(f"not done after {polling.timeout:g} s", retryable=True)
        time.sleep(wait)


def download(link: object, *, timeout: float) -> bytes:
    """The picture behind a link or in a data URI."""
    if not isinstance(link, str):
        raise unexpected_answer("no link to a picture", link)
    if link.startswith("data:"):
        return from_base64(link.partition(";base64,")[2])
    if urlsplit(link).scheme not in ("http", "https"):
        raise unexpected_answer("no link to a picture", link)
    with _client(timeout) as client:
        reply = _exchange(client, "GET", link)
    if reply.status >= 400:
        # The edit exists, but its picture cannot be read; a retry makes another one.
        raise CallFailed(f"the picture cannot be fetched ({reply.status}: {shortened(reply.text)})", retryable=True)
    return reply.content


def path_of(link: object) -> str:
    """The path of a provider's link: the key is sent to the known host only."""
    path = urlsplit(link).path if isinstance(link, str) else ""
    if not path:
        raise unexpected_answer("no link to the queued work", link)
    return path


def _client(timeout: float, headers: Mapping[str, str] | None = None) -> httpx2.Client:
    import httpx2

    return httpx2.Client(headers=dict(headers or {}), timeout=timeout, follow_redirects=True, verify=_certificates())


@cache
def _certificates() -> SSLContext:
    """Cached: reading them takes 50 ms, too long for every picture."""
    import httpx2

    return httpx2.create_ssl_context()


def _exchange(client: httpx2.Client, method: str, url: str, **options: Any) -> Reply:
    import httpx2

    # The client's timeout is per read; an answer that trickles in would never reach it.
    limit = client.timeout.read or math.inf
    end = time.monotonic() + limit
    try:
        with client.stream(method, url, **options) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > _MAX_BYTES:
                    raise unexpected_answer(f"more than {_MAX_BYTES >> 20} MB", response.headers.get("content-type"))
                if time.monotonic() > end:
                    raise CallFailed(f"no complete answer within {limit:g} s", retryable=True)
            return Reply(response.status_code, dict(response.headers), bytes(content))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise from_connection(error) from error
