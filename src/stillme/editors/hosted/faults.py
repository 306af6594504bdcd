"""What the other side can say instead of a picture, told apart once for all adapters.

A refusal is only what a provider marks as one, in a field made for machines. Everything else that is not a picture is a
failure: of this request (its words go to the user), of the moment (try again), or of the account (stop asking).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from stillme.editors.hosted.catalogue import Usage
from stillme.types import Failed, Json

_WORDS = 600
"""A server that answers with a web page need not fill the ledger."""
_ACCOUNT = frozenset({401, 402, 403})
"""No key, no money, no permission: the same for every request, and gone once the user has acted."""
_PASSING = frozenset({408, 409, 425, 429})


class Declined(Exception):
    """The provider marked the request or its result as against its policy."""

    def __init__(self, words: str, *, signal: str, usage: Usage | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.signal = signal
        """The field and value that say so."""
        self.usage = usage or Usage()


class Broken(Exception):
    """No picture, and no refusal either."""

    def __init__(
        self,
        error: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        account: bool = False,
        slow_down: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(error)
        self.failed = Failed(error=error, retryable=retryable, retry_after=retry_after)
        self.account = account
        """Every other request would fail alike until the user acts."""
        self.slow_down = slow_down
        """All of us are asking too often, not only this call."""
        self.usage = usage or Usage()


def of_status(status: int, words: str, headers: Mapping[str, str], *, wait: float | None = None) -> Broken:
    """The failure that an HTTP status stands for, with the server's own words."""
    account = status in _ACCOUNT
    return Broken(
        f"{status}: {shortened(words) or 'no explanation'}",
        # A failure that is not retryable is never tried again, not even when the key has been put right.
        retryable=account or status in _PASSING or status >= 500,
        retry_after=wait if wait is not None else retry_after(headers),
        account=account,
        slow_down=status == 429,
    )


def of_connection(error: Exception) -> Broken:
    """Time-outs, refused connections, bodies that end too soon: says nothing about the request."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Broken(f"no whole answer ({shortened(words)})", retryable=True)


def of_answer(what: str, came: object, *, usage: Usage | None = None) -> Broken:
    """The server says that all is well, and sends something else than agreed."""
    return Broken(f"{what}; what came: {shortened(str(came)) or 'nothing'}", retryable=True, usage=usage)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, if the server said how long: as a number, in milliseconds, or as a date."""
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


def shortened(words: str) -> str:
    """One line, not too long."""
    line = " ".join(words.split())
    return line if len(line) <= _WORDS else f"{line[:_WORDS]}…"


def dig(value: Json, *path: str | int) -> Json:
    """The value at `path` inside parsed JSON, or None where anything on the way has another shape."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value
