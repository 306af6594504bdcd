"""What a server answered, whatever its status, and what that means for the next call.

Only what a provider marks as a refusal in a machine-readable field is one. Everything else that is not an answer is a
failure: of this request (not repeated in this run), of the moment (retried), or of the account or model (fatal: nothing
else is asked until the user acts). No failure is final: the next run tries again.

Texts are kept whole here; who stores them removes secrets and only then cuts them short.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self
from urllib.parse import urljoin, urlsplit

from stillme.core.json_paths import find
from stillme.core.types import Failed, Json

_FATAL = frozenset({401, 402, 403, 404, 405})
"""No key, no money, no permission, no such model or address: the same for every call until the user acts."""
_TEMPORARY = frozenset({408, 409, 425, 429})
_THROTTLED = 429
_NO_QUOTA = re.compile(r"""\blimit: 0\b(?![.\d])|quotaValue['"]: ['"]0['"]""")
"""In a 429 of Google: a quota that allows nothing at all, such as the free tier of a paid model."""
_RETRY_DELAY = re.compile(r"""retryDelay['"]: ?['"](\d+(?:\.\d+)?)s""")
_WORDS = ("detail.*.msg", "error.message", "detail", "message", "error")
_CODES = ("error.code", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call consumed, as far as the provider reports it."""

    input_text: int = 0
    input_image: int = 0
    output_text: int = 0
    output_image: int = 0
    images: int = 0
    sizes: Sequence[tuple[int, int]] = ()
    """Width and height of every input and output image."""
    seconds: float = 0.0
    unknown: bool = False
    """Whether something was charged, or may have been, that the provider does not report."""

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_text + self.input_image + self.output_text + self.output_image


UNKNOWN = Usage(unknown=True)
"""Of a call that the provider has accepted, or may have, and that cannot be followed."""


class CallDeclined(Exception):
    """The provider marked the request or its result as a policy violation."""

    def __init__(self, message: str, *, signal: str, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.signal = signal
        """The field and value that mark it."""
        self.usage = usage or Usage()


class CallFailed(Exception):
    """Neither an answer nor a refusal. `usage` is what it cost nevertheless."""

    def __init__(
        self, error: str, *, retryable: bool = True, fatal: bool = False, status: str = "", usage: Usage | None = None
    ) -> None:
        super().__init__(error)
        self.failed = Failed(error=error, retryable=retryable, fatal=fatal, status=status)
        self.usage = usage or Usage()

    @classmethod
    def of(cls, failed: Failed, usage: Usage | None = None) -> Self:
        """The same failure, as an exception."""
        failure = cls(failed.error, usage=usage)
        failure.failed = failed
        return failure

    def as_fatal(self) -> CallFailed:
        """The same failure, known to concern every request until the user acts."""
        return CallFailed.of(replace(self.failed, retryable=True, fatal=True, throttled=False), self.usage)


def unexpected_answer(problem: str, answer: object, *, usage: Usage = UNKNOWN) -> CallFailed:
    """The server reports success, but the answer has another form than documented."""
    return CallFailed(f"{problem}; the answer: {str(answer).strip() or 'empty'}", usage=usage)


@dataclass(frozen=True)
class Reply:
    """A server's answer with any status, and the failure that it means."""

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

    def failure(self, words: str = "") -> CallFailed:
        """What an error status means, with the server's own sentence and code, wherever providers write them."""
        found = next((found for path in _WORDS if (found := list(find(self.body, path)))), list[Json]())
        code = next((str(found) for path in _CODES for found in find(self.body, path) if found), "")
        sentence = words or "; ".join(map(str, found)) or self.text
        if code and not code.isdigit() and code not in sentence:
            sentence = f"{sentence} ({code})"
        return CallFailed.of(failure_of(self.status, sentence, self.headers, body=self.text))

    def require_success(self) -> Reply:
        """Raise the failure that an error status means."""
        if self.status >= 400:
            raise self.failure()
        return self

    def require_json(self) -> Json:
        """The JSON object of a successful answer."""
        if not isinstance(self.require_success().body, dict):
            raise unexpected_answer("no JSON object", self.text)
        return self.body


def parsed(content: bytes | str) -> Json:
    """The JSON of an answer; None where it is none that can be read, however it is broken."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        # Also an integer of thousands of digits, and brackets within brackets without end.
        return None


def is_temporary(status: int) -> bool:
    """Whether the same call may succeed later."""
    return status in _TEMPORARY or status >= 500


def failure_of(
    status: int, words: str, headers: Mapping[str, str] | None = None, *, url: str = "", body: str = ""
) -> Failed:
    """The failure that a status means, with the server's words. Only who asks knows which are a refusal."""
    redirected = status < 400
    if redirected:
        # A key is not sent along a redirect, so none is followed: the address in the audit must be the last one.
        location = (headers or {}).get("location", "")
        target = urljoin(url, location) if location else "nowhere"
        words = f"{origin_of(url)} redirects to {target}, where nothing is sent; write that address in the audit"
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
