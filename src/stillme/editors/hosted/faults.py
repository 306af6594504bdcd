"""What a provider can answer instead of a picture, classified once for all adapters.

Only what a provider marks as a refusal in a machine-readable field is one. Everything else that is not a picture is a
failure: of this request (final), of the moment (retried), or of the account (no more calls in this run).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from stillme.editors.hosted.catalogue import Usage
from stillme.types import Failed

_MAX_CHARACTERS = 600
"""Characters kept of a message: some servers answer with a whole web page."""
_ACCOUNT = frozenset({401, 402, 403})
"""No key, no money, no permission: the same for every request until the user acts."""
_TEMPORARY = frozenset({408, 409, 425, 429})


class Declined(Exception):
    """The provider marked the request or its result as a policy violation."""

    def __init__(self, message: str, *, signal: str, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.signal = signal
        """The field and value that mark it."""
        self.usage = usage or Usage()


class CallFailed(Exception):
    """Neither a picture nor a refusal."""

    def __init__(
        self,
        error: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        account: bool = False,
        slow_down: bool = False,
        status: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(error)
        self.failed = Failed(error=error, retryable=retryable, retry_after=retry_after, status=status)
        self.account = account
        """Whether every other request would fail alike until the user acts."""
        self.slow_down = slow_down
        """Whether all threads must pause, not only this call."""
        self.usage = usage or Usage()


def from_status(status: int, message: str, headers: Mapping[str, str], *, wait: float | None = None) -> CallFailed:
    """The failure that an HTTP status means, with the server's message."""
    account = status in _ACCOUNT
    return CallFailed(
        f"{status}: {shortened(message) or 'no explanation'}",
        status=str(status),
        # Not retryable means never tried again, not even after the key was corrected.
        retryable=account or status in _TEMPORARY or status >= 500,
        retry_after=wait if wait is not None else retry_after(headers),
        account=account,
        slow_down=status == 429,
    )


def from_connection(error: Exception) -> CallFailed:
    """Time-outs, refused connections, truncated bodies: not a fault of the request."""
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return CallFailed(f"no complete answer ({shortened(message)})", retryable=True)


def unexpected_answer(problem: str, answer: object, *, usage: Usage | None = None) -> CallFailed:
    """The server reports success, but the answer has another form than documented."""
    return CallFailed(f"{problem}; the answer: {shortened(str(answer)) or 'empty'}", retryable=True, usage=usage)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, if the server gives them: as a number, in milliseconds, or as a date."""
    named = {name.lower(): value for name, value in headers.items()}
    try:
        if milliseconds := named.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if not (value := named.get("retry-after")):
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def shortened(text: str) -> str:
    """One line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
