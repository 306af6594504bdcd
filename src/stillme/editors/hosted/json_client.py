"""JSON over plain HTTP, for providers whose official client loses information that an audit needs.

Those clients retry silently, drop `Retry-After`, or lose the field that marks a refusal; see docs/editors-hosted.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import CallFailed, JobGone, from_connection, from_status, unexpected_answer
from stillme.http_calls import replies
from stillme.types import Json

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_MAX_FAILURES = 5
"""Failed looks in a row before a call ends; the job stays known and is asked for again later."""
_LONGEST_PAUSE = 10.0
"""Seconds; who says to come back later than that is left in peace, and the worker is free for something else."""
_GONE = frozenset({"404", "410"})


class Reply(replies.Reply):
    """A provider's answer with any status, and the failure that it means."""

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
        from stillme.editors.hosted.http_client import open_client

        self.base_url = base_url.rstrip("/")
        self._client = open_client(timeout, headers)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send JSON, or files with a form, to a path below `base_url`; returns the answer with any status."""
        url, more = f"{self.base_url}{path}", dict(headers or {})
        return _exchange(self._client, method, url, json=body, headers=more, files=files, data=form)

    def close(self) -> None:
        """Close the sockets."""
        self._client.close()


def poll(look: Callable[[], Reply], done: Callable[[Json], bool], polling: Polling) -> Json:
    """Look until the job is done. Raises `JobGone` if the provider no longer has it."""
    end = time.monotonic() + polling.timeout
    pause = polling.interval
    while True:
        body = fetch(lambda: look().require_json(), polling, end=end)
        if done(body):
            return body
        if time.monotonic() + pause > end:
            raise CallFailed(f"not done after {polling.timeout:g} s; the same job is asked for again", retryable=True)
        time.sleep(pause)
        pause = min(pause * 1.5, max(5.0, polling.interval))


def fetch(look: Callable[[], T], polling: Polling, *, end: float | None = None) -> T:
    """Read something that is paid for: a failed look is repeated, further and further apart.

    Raises `JobGone` if it is not there, also when looked for again; the last failure if it cannot be read for now.
    """
    end = time.monotonic() + polling.timeout if end is None else end
    for failures in range(_MAX_FAILURES + 1):
        try:
            return look()
        except JobGone:
            raise
        except CallFailed as failure:
            failed = failure.failed
            gone = failed.status in _GONE
            if not gone and (failed.fatal or not failed.retryable):
                raise
            backoff = min(polling.interval * 2**failures, _LONGEST_PAUSE)
            wait = backoff if failed.retry_after is None else failed.retry_after
            if failures == _MAX_FAILURES or wait > _LONGEST_PAUSE or time.monotonic() + wait > end:
                raise (JobGone(f"the provider no longer has the job ({failed.error})") if gone else failure) from None
        time.sleep(wait)
    raise AssertionError("the last failure is raised")


def download(link: object, *, timeout: float, interval: float = 0.5) -> bytes:
    """The picture behind a link or in a data URI, for which no key is sent. A broken transfer is repeated."""
    if not isinstance(link, str) or urlsplit(link).scheme not in ("http", "https", "data"):
        raise JobGone(f"no link to a picture; the answer: {link}")
    if link.startswith("data:"):
        try:
            return from_base64(link.partition(";base64,")[2])
        except CallFailed as broken:
            raise JobGone(broken.failed.error) from None
    return fetch(lambda: _downloaded(link, timeout), Polling(timeout=timeout, interval=interval))


def _downloaded(link: str, timeout: float) -> bytes:
    from stillme.http_calls.client import open_client

    with open_client(timeout) as client:
        reply = _exchange(client, "GET", link)
    if reply.status >= 400:
        # Whoever keeps the picture is not the provider: no status of his concerns the account.
        problem = f"the picture cannot be fetched ({reply.status}: {reply.text})"
        if reply.status in (408, 425, 429) or reply.status >= 500:
            raise CallFailed(problem, retryable=True, status=str(reply.status))
        raise JobGone(problem)
    return reply.content


def path_of(link: object) -> str:
    """The path of a provider's link: the key is sent to the known host only."""
    path = urlsplit(link).path if isinstance(link, str) else ""
    if not path:
        raise unexpected_answer("no link to the queued work", link)
    return path


def _exchange(client: httpx2.Client, method: str, url: str, **options: Any) -> Reply:
    import httpx2

    try:
        response = client.request(method, url, **options)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise from_connection(error) from error
    return Reply(response.status_code, dict(response.headers), response.content)
