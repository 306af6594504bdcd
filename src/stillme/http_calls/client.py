"""HTTP clients whose timeout is that of the whole answer, also when it trickles in.

Import this module where a connection is opened: httpx2 takes a while to load.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx2

_MAX_BYTES = 64 * 2**20
"""Bytes of one answer that are read at most."""
_CONNECT = 20.0
"""Seconds for a connection, which takes long only where nobody answers."""
_END, _WATCH = "stillme_end", "stillme_watch"
_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")


def open_client(
    timeout: float,
    headers: Mapping[str, str] | None = None,
    *,
    follow_redirects: bool = True,
    on_response: Callable[[httpx2.Response], None] | None = None,
) -> httpx2.Client:
    """A client that gives up on an answer that is not complete within `timeout` seconds, redirects included."""

    def start(request: httpx2.Request) -> None:
        end = request.extensions.setdefault(_END, time.monotonic() + timeout)
        watch = _Watch(request, timeout, end)
        request.extensions[_WATCH], request.extensions["trace"] = watch, watch.trace

    def limit(response: httpx2.Response) -> None:
        stream = response.stream
        assert isinstance(stream, httpx2.SyncByteStream)
        response.stream = _Limited(stream, response.request)
        if on_response:
            on_response(response)

    return httpx2.Client(
        headers=dict(headers or {}),
        timeout=httpx2.Timeout(timeout, connect=min(_CONNECT, timeout)),
        # One connection a call: only of a new one the trace tells which it is.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        follow_redirects=follow_redirects,
        verify=_certificates(),
        event_hooks={"request": [start], "response": [limit]},
    )


class _Watch:
    """Cuts the connection of one request when its time is up. The client's own timeout is per read."""

    def __init__(self, request: httpx2.Request, timeout: float, end: float) -> None:
        self._request, self._timeout = request, timeout
        self._connection: Any = None
        self._is_over = False
        self._timer = threading.Timer(max(0.0, end - time.monotonic()), self._cut)
        self._timer.daemon = True
        self._timer.start()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """What happens to the request, by httpcore's names."""
        if event.endswith(_CONNECTED):
            self._connection = info["return_value"]
            if self._is_over:
                self._cut()
        elif event.endswith(".failed"):
            self.end()

    def end(self) -> None:
        """The answer is there, or will not come; raises if that is because the time is up."""
        self._timer.cancel()
        if self._is_over:
            raise httpx2.ReadTimeout(f"no complete answer within {self._timeout:g} s", request=self._request)

    def _cut(self) -> None:
        self._is_over = True
        if self._connection is not None:
            # The plain method: that of a TLS socket would also drop what the reading thread is using.
            with suppress(OSError):
                socket.socket.shutdown(self._connection.get_extra_info("socket"), socket.SHUT_RDWR)


class _Limited(httpx2.SyncByteStream):
    """A body that must be complete in time, and not be endless."""

    def __init__(self, stream: httpx2.SyncByteStream, request: httpx2.Request) -> None:
        self._stream, self._request = stream, request
        self._watch: _Watch = request.extensions[_WATCH]

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > _MAX_BYTES:
                raise httpx2.ReadError(f"more than {_MAX_BYTES >> 20} MB", request=self._request)
            yield chunk
        # Without a length, a connection that was cut looks like the end of the answer.
        self._watch.end()

    def close(self) -> None:
        with suppress(httpx2.ReadTimeout):
            self._watch.end()
        self._stream.close()


@cache
def _certificates() -> SSLContext:
    """Cached: reading them takes 50 ms, too long for every picture."""
    return httpx2.create_ssl_context()
