"""Keys and where they may be sent, which hosts a server of ours answers to, and where pictures may be kept."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlsplit

PICTURE_STORES: Mapping[str, str] = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
"""Schemes of addresses that pictures may be kept at, and the package that each needs besides fsspec.

Not every scheme that fsspec knows: a reader asks the recorded address with their own credentials, so it must name a
bucket of a known service, never a server.
"""
_CONTAINER_AT_ACCOUNT = ("abfs", "abfss")


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


def key_in(variable: str) -> str:
    """The key in an environment variable; empty if there is none."""
    return os.environ.get(variable, "").strip() if variable else ""


def key_problem(variable: str) -> str:
    """Why the key in an environment variable cannot be sent; empty if it can."""
    key = key_in(variable)
    if key and key.isascii():
        return ""
    what = "contains characters that no key has" if key else "is not set"
    return f"{variable} {what}: run `export {variable}=…` with your key"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address or a name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def picture_store_problem(address: str) -> str:
    """Why no picture may be kept at this address, without repeating credentials; empty if they may."""
    parts = urlsplit(address)
    known = ", ".join(f"{scheme}://" for scheme in PICTURE_STORES)
    if parts.scheme not in PICTURE_STORES or "::" in address:
        return f"is not the address of a picture store; write one that begins with {known}"
    if parts.password is not None or (parts.username and parts.scheme not in _CONTAINER_AT_ACCOUNT):
        return "contains credentials, which would be recorded; put them where the service's own tools look for them"
    if parts.query or parts.fragment:
        return "has a part after `?` or `#`, which may open the pictures to anyone; leave it out"
    if not address.isprintable() or ".." in parts.path.split("/"):
        return "has `..` or unprintable characters in it; write it out"
    return "" if parts.netloc else f"names no bucket; write {parts.scheme}://bucket/folder"


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"


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
