"""What a server answered, whatever its status, and what that means for the next call."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urljoin, urlsplit

from stillme.core.types import Failed, Json

_FATAL = frozenset({401, 402, 403, 404, 405})
"""No key, no money, no permission, no such model or address: the same for every call until the user acts."""
_TEMPORARY = frozenset({408, 409, 425, 429})
_THROTTLED = 429
_NO_QUOTA = re.compile(r"""\blimit: 0\b(?![.\d])|quotaValue['"]: ['"]0['"]""")
"""In a 429 of Google: a quota that allows nothing at all, such as the free tier of a paid model."""
_RETRY_DELAY = re.compile(r"""retryDelay['"]: ?['"](\d+(?:\.\d+)?)s""")
_FIRST_ERROR, _FIRST_OF_THE_SERVER = 400, 500


class Unanswered(Exception):
    """No complete answer came. `sent`: whether the server may have got the request, and may charge for it."""

    def __init__(self, error: str, *, sent: bool) -> None:
        super().__init__(error)
        self.sent = sent


@dataclass(frozen=True)
class Reply:
    """A server's answer with any status."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @cached_property
    def body(self) -> Json:
        """The parsed JSON; None if it is not JSON."""
        return parsed(self.content)

    @property
    def text(self) -> str:
        """The content as text."""
        return self.content.decode(errors="replace")


def parsed(content: bytes | str) -> Json:
    """The JSON of an answer; None where it is none that can be read, however it is broken."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        # Also an integer of thousands of digits, and brackets within brackets without end.
        return None


def is_temporary(status: int) -> bool:
    """Whether the same call may succeed later."""
    return status in _TEMPORARY or status >= _FIRST_OF_THE_SERVER


def failure_of(
    status: int, words: str, headers: Mapping[str, str] | None = None, *, url: str = "", body: str = ""
) -> Failed:
    """The failure that a status means, with the server's words. Only who asks knows which are a refusal."""
    redirected = status < _FIRST_ERROR
    if redirected:
        words = _redirect(url, (headers or {}).get("location", ""))
    without_quota = status == _THROTTLED and _NO_QUOTA.search(body) is not None
    fatal = status in _FATAL or redirected or without_quota
    return Failed(
        error=f"{status}: {words.strip() or 'no explanation'}",
        status=str(status),
        retryable=fatal or is_temporary(status),
        fatal=fatal,
        throttled=status == _THROTTLED and not without_quota,
        retry_after=retry_after(headers or {}, body),
    )


def retry_after(headers: Mapping[str, str], body: str = "") -> float | None:
    """Seconds to wait, if the server gives them: in a header as a number or a date, or in the body as Google does."""
    from email.utils import parsedate_to_datetime  # takes a while to import

    named = {name.lower(): value.strip() for name, value in headers.items()}
    try:
        if milliseconds := named.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if not (value := named.get("retry-after")):
            delay = _RETRY_DELAY.search(body)
            return float(delay[1]) if delay else None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def origin_of(url: str) -> str:
    """Scheme, host and port, without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _redirect(url: str, location: str) -> str:
    """A key is not sent along a redirect, so none is followed: the address in the audit must be the last one."""
    target = urljoin(url, location) if location else "nowhere"
    return f"{origin_of(url)} redirects to {target}, where nothing is sent; write that address in the audit"
