"""Where a key may be sent: over https, or inside one's own network."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit


def problems_of(url: str, *, key: str, insecure_http: bool) -> Iterator[str]:
    """Why nothing may be sent to this address, without repeating credentials."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.username or parts.password:
        variable = f"the environment variable {key}" if key else "an environment variable named by `key_variable`"
        yield f"the address of {host} contains credentials, which would be recorded; put the key into {variable}"
    elif key and parts.scheme != "https" and not insecure_http and not _is_private(host):
        yield (
            f"the key in {key} would be sent unencrypted to {host}; use https, or set `insecure_http = true` "
            "if you trust the way there"
        )


def _is_private(host: str) -> bool:
    """Whether the host is this machine, or has an address or a name that does not exist on the public internet."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return address.is_private or address.is_loopback or address.is_link_local
