"""The HTTP client of editors, judges, endpoints and downloads.

Import this module where a connection is opened: httpx2 takes a while to load.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache
from ssl import SSLContext
from typing import Any, TypeVar

import httpx2

from stillme import __version__
from stillme.core.http.replies import UNKNOWN, CallFailed, Reply, Usage, failure_of
from stillme.core.types import Json

T = TypeVar("T")

_THREAD = "stillme-http"
_STARTING = threading.Lock()


def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop and wait for its result."""
    if threading.current_thread().name == _THREAD:
        coroutine.close()
        raise RuntimeError("the event loop cannot wait for itself")
    with _STARTING:  # a cache lets several threads in at first, and each would have its own loop
        loop = _loop()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
    return loop


MOST_BYTES = 64 * 2**20
"""Of one answer, unpacked. A picture of 4096 by 4096 pixels in base64 has fewer."""
_CONNECT = 20.0
"""Seconds for a connection, which takes long only where no server answers."""
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
"""Errors after which the server cannot have got the request."""
_OF_THE_TRANSFER = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class Client(httpx2.AsyncClient):
    """Keeps its connections open between calls. Who sends limits the time: httpx2's own timeout is per read."""

    def __init__(
        self,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        follow_redirects: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(
            headers=dict(headers or {}),
            timeout=httpx2.Timeout(timeout + 1, connect=min(_CONNECT, timeout)),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            follow_redirects=follow_redirects,
            verify=_certificates(),
            transport=transport,
        )

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request and read the whole answer. `stream` is for callers that would read it in parts."""
        # An official client adds its own name to ours, and strict servers reject two.
        request.headers["User-Agent"] = f"stillme/{__version__}"
        response = await super().send(request, stream=True, **options)
        content = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise httpx2.ReadError(f"the answer has more than {MOST_BYTES >> 20} MB", request=request)
        finally:
            await response.aclose()
        headers = [(name, text) for name, text in response.headers.multi_items() if name not in _OF_THE_TRANSFER]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(content), request=response.request)


File = tuple[str, tuple[str, bytes, str]]
"""A form's field, and the file's name, content and type."""


class Connection:
    """A client of one server for threads. An answer that is not complete within `timeout` seconds is given up."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, timeout: float, follow_redirects: bool = False
    ) -> None:
        self._base_url, self._timeout = base_url.rstrip("/"), timeout
        self._client = Client(timeout=timeout, headers=headers, follow_redirects=follow_redirects)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
        files: Sequence[File] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send JSON, or files with a form, to a path below `base_url`; returns the answer with any status.

        Raises `CallFailed` where no complete answer came, or a redirect.
        """
        url = path if path.startswith("http") else f"{self._base_url}{path}"
        content: dict[str, Any] = {"json": body} if files is None else {"files": files, "data": form}
        try:
            request = self._client.build_request(method, url, headers=dict(headers or {}), **content)
        except (httpx2.InvalidURL, ValueError, TypeError) as error:
            raise _unanswered(error) from error
        reply = on_loop(self._reply(request))
        if 300 <= reply.status < 400:
            raise CallFailed.of(failure_of(reply.status, "", reply.headers, url=url))
        return reply

    def close(self) -> None:
        """Close the sockets."""
        on_loop(self._client.aclose())

    async def _reply(self, request: httpx2.Request) -> Reply:
        # What the server may have got may be charged, but to look costs nothing, whether or not the answer arrives.
        usage = Usage() if request.method == "GET" else UNKNOWN
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._client.send(request)
        except TimeoutError:
            raise CallFailed(f"no complete answer within {self._timeout:g} s", usage=usage) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise _unanswered(error, Usage() if isinstance(error, UNSENT) else usage) from error
        return Reply(response.status_code, dict(response.headers), response.content)


def _unanswered(error: Exception, usage: Usage | None = None) -> CallFailed:
    words = f": {error}" if str(error) else ""
    return CallFailed(f"no complete answer ({type(error).__name__}{words})", usage=usage)


@cache
def _certificates() -> SSLContext:
    """Cached: reading them takes 50 ms."""
    return httpx2.create_ssl_context()
