"""What a provider can answer instead of a picture, classified once for all adapters.

Only what a provider marks as a refusal in a machine-readable field is one. Everything else that is not a picture is a
failure: of this request (not repeated in this run), of the moment (retried), or of the account or model (fatal: nothing
else is asked until the user acts). No failure is final: the next run tries again.

Texts are kept whole here; `Hosted` removes secrets from them and only then cuts them short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from stillme.core.http.replies import Unanswered, failure_of
from stillme.core.types import Failed
from stillme.editors.hosted.catalogue import Usage

UNKNOWN = Usage(unknown=True)
"""Of a call that the provider has accepted, or may have, and that cannot be followed."""


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
        self, error: str, *, retryable: bool, fatal: bool = False, status: str = "", usage: Usage | None = None
    ) -> None:
        super().__init__(error)
        self.failed = Failed(error=error, retryable=retryable, fatal=fatal, status=status)
        self.usage = usage or Usage()

    @classmethod
    def of(cls, failed: Failed, usage: Usage | None = None) -> Self:
        """The same failure, as an exception."""
        failure = cls(failed.error, retryable=failed.retryable, usage=usage)
        failure.failed = failed
        return failure

    def as_fatal(self) -> CallFailed:
        """The same failure, known to concern every request until the user acts."""
        return CallFailed.of(replace(self.failed, retryable=True, fatal=True, throttled=False), self.usage)


class JobGone(CallFailed):
    """The work gave no usable picture and never will; a new job may. By default, one picture counts as charged."""

    def __init__(self, error: str, *, retryable: bool = True, usage: Usage | None = None) -> None:
        super().__init__(error, retryable=retryable, usage=Usage(images=1) if usage is None else usage)


def from_status(status: int, message: str, headers: Mapping[str, str], *, body: str = "") -> CallFailed:
    """The failure that an HTTP status means, with the server's message."""
    return CallFailed.of(failure_of(status, message, headers, body=body))


def from_connection(error: Exception) -> CallFailed:
    """Time-outs, refused connections, truncated bodies: not a fault of the request."""
    sent = isinstance(error, Unanswered) and error.sent
    text = str(error) if isinstance(error, Unanswered) else f"no complete answer ({type(error).__name__}: {error})"
    return CallFailed(text, retryable=True, usage=UNKNOWN if sent else None)


def unexpected_answer(problem: str, answer: object, *, usage: Usage = UNKNOWN) -> CallFailed:
    """The server reports success, but the answer has another form than documented."""
    return CallFailed(f"{problem}; the answer: {str(answer).strip() or 'empty'}", retryable=True, usage=usage)
