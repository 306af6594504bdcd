"""HTTP clients that carry a key: it stays with the provider.

Import this module where a connection is opened: httpx2 takes a while to load.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from stillme.editors.hosted.faults import CallFailed
from stillme.http_calls import client


def open_client(timeout: float, headers: Mapping[str, str] | None = None) -> httpx2.Client:
    """A client that follows no redirect to another host: not every header with a key would be dropped on the way."""
    return client.open_client(timeout, headers, on_response=_require_same_host)


def _require_same_host(response: httpx2.Response) -> None:
    if not response.has_redirect_location:
        return
    origin, target = response.request.url, response.request.url.join(response.headers["location"])
    if (origin.scheme, origin.host, origin.port) != (target.scheme, target.host, target.port):
        raise CallFailed(
            f"{origin.host} redirects to {target.host}, where the key is not sent; correct `base_url`",
            retryable=True,
            fatal=True,
            status=str(response.status_code),
        )
