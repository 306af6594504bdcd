"""Which host names a server answers to. Needs no web library, so that every server of ours can share the check."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address or a name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def names_host(header: str, hosts: Collection[str]) -> bool:
    """Whether a Host header names one of `hosts`; refuse the request otherwise.

    Another site may point its own name at this machine (DNS rebinding) to read along; only the header shows it.
    """
    return ANY in hosts or host_name(header) in hosts


def host_name(authority: str) -> str:
    """The host of `host:port`, in lower case; `[::1]:80` keeps its brackets."""
    lowered = authority.lower()
    return lowered.partition("]")[0] + "]" if lowered.startswith("[") else lowered.partition(":")[0]


def bracketed(host: str) -> str:
    """An address as it is written in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
