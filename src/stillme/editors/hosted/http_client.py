"""HTTP clients whose timeout is that of the whole answer, and whose key stays with the provider.

Import this module where a connection is opened: httpx2 takes a while to load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache
from ssl import SSLContext

import httpx2

from stillme.editors.hosted.faults import CallFailed

_MAX_BYTES = 64 * 2**20
"""Bytes of one answer that are read at most."""
_END = "stillme_end"


def open_client(timeout: float, headers: Mapping[str, str] | None = None, *, keyed: bool = True) -> httpx2.Client:
    """A client that gives up on an answer that is not complete within `timeout` seconds.

    `keyed` clients follow no redirect to another host: not every header with a key would be dropped on the way.
    """

    def start(request: httpx2.Request) -> None:
        request.extensions.setdefault(_END, time.monotonic() + timeout)

    def limit(response: httpx2.Response) -> None:
        if keyed and response.has_redirect_location:
            _require_same_host(response)
        stream = response.stream
        assert isinstance(stream, httpx2.SyncByteStream)
        response.stream = _Limited(stream, response.request, timeout)

    return httpx2.Client(
        headers=dict(headers or {}),
        timeout=timeout,
        follow_redirects=True,
        verify=_certificates(),
        event_hooks={"request": [start], "response": [limit]},
    )


class _Limited(httpx2.SyncByteStream):
    """A body that must be complete in time, and not be endless. The client's own timeout is per read."""

    def __init__(self, stream: httpx2.SyncByteStream, request: httpx2.Request, timeout: float) -> None:
        self._stream, self._request, self._timeout = stream, request, timeout

    def __iter__(self) -> Iterator[bytes]:
        size, end = 0, float(self._request.extensions[_END])
        for chunk in self._stream:
            size += len(chunk)
            if size > _MAX_BYTES:
                raise httpx2.ReadError(f"more than {_MAX_BYTES >> 20} MB", request=self._request)
            if time.monotonic() > end:
                raise httpx2.ReadTimeout(f"no complete answer within {self._timeout:g} s", request=self._request)
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _require_same_host(response: httpx2.Response) -> None:
    origin, target = response.request.url, response.request.url.join(response.headers["location"])
    if (origin.scheme, origin.host, origin.port) != (target.scheme, target.host, target.port):
        raise CallFailed(
            f"{origin.host} redirects to {target.host}, where the key is not sent; correct `base_url`",
            retryable=True,
            fatal=True,
            status=str(response.status_code),
        )


@cache
def _certificates() -> SSLContext:
    """Cached: reading them takes 50 ms, too long for every picture."""
    return httpx2.create_ssl_context()
