"""Where a key may be sent: over https, or to this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit


def problems_of(url: str, *, key: str, insecure_http: bool) -> Iterator[str]:
    """Why nothing may be sent to this address, without repeating credentials. `key` names the key's variable."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.username or parts.password:
        variable = f"the environment variable {key}" if key else "an environment variable"
        yield f"the address of {host} contains credentials, which would be recorded; put the key into {variable}"
    elif key and parts.scheme != "https" and not insecure_http and not is_loopback(host):
        yield (
            f"the key in {key} would be sent unencrypted to {host}; use https, or set `insecure_http = true` "
            "if you trust the way there"
        )


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
