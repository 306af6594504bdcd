"""What a provider can answer instead of a picture, classified once for all adapters.

Only what a provider marks as a refusal in a machine-readable field is one. Everything else that is not a picture is a
failure: of this request (not repeated in this run), of the moment (retried), or of the account or model (fatal: nothing
else is asked until the user acts). No failure is final: the next run tries again.

Texts are kept whole here; `Hosted` removes secrets from them and only then cuts them short.
"""

from __future__ import annotations

from collections.abc import Mapping

from stillme.editors.hosted.catalogue import Usage
from stillme.http_calls.replies import retry_after
from stillme.types import Failed

_FATAL = frozenset({401, 402, 403, 404})
"""No key, no money, no permission, no such model: the same for every request until the user acts."""
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
    """Neither a picture nor a refusal. `usage` is what it cost nevertheless."""

    def __init__(
        self,
        error: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        fatal: bool = False,
        throttled: bool = False,
        status: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(error)
        self.failed = Failed(
            error=error, retryable=retryable, retry_after=retry_after, fatal=fatal, throttled=throttled, status=status
        )
        self.usage = usage or Usage()


class JobGone(CallFailed):
    """The work gave no usable picture and never will; a new job may. By default, one picture counts as charged."""

    def __init__(self, error: str, *, usage: Usage | None = None) -> None:
        super().__init__(error, retryable=True, usage=Usage(images=1) if usage is None else usage)


def from_status(status: int, message: str, headers: Mapping[str, str], *, wait: float | None = None) -> CallFailed:
    """The failure that an HTTP status means, with the server's message."""
    fatal = status in _FATAL
    return CallFailed(
        f"{status}: {message.strip() or 'no explanation'}",
        status=str(status),
        retryable=fatal or status in _TEMPORARY or status >= 500,
        retry_after=wait if wait is not None else retry_after(headers),
        fatal=fatal,
        throttled=status == 429,
    )


def fatal(failure: CallFailed) -> CallFailed:
    """The same failure, known to concern every request until the user acts."""
    failed = failure.failed
    return CallFailed(failed.error, retryable=True, fatal=True, status=failed.status, usage=failure.usage)


def from_connection(error: Exception) -> CallFailed:
    """Time-outs, refused connections, truncated bodies: not a fault of the request."""
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return CallFailed(f"no complete answer ({message})", retryable=True)


def unexpected_answer(problem: str, answer: object, *, usage: Usage | None = None) -> CallFailed:
    """The server reports success, but the answer has another form than documented."""
    return CallFailed(f"{problem}; the answer: {str(answer).strip() or 'empty'}", retryable=True, usage=usage)
