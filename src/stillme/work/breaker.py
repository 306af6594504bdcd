"""Notice that everything fails: stop what cannot work, pause while the other side is down."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from stillme.core.types import IN_WORDS, MALFORMED, Failed

_VARYING = re.compile(r"[0-9a-f]{8,}|\d+")
"""Numbers and identifiers, which differ between two messages about the same fault."""
_COMPARED = 120
"""Characters of a message that are compared."""
_LONGEST_PAUSE = 60.0
_DOUBLINGS = 16
"""Of a pause, at most: it is as long as can be by then."""
_COMPLAINTS = 3
"""Rate limits in a row, without an answer between them, that count as an outage if they last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """How much failure a stage bears."""

    alike: int = 10
    """First answers that fail alike, and not for the moment, before the stage stops."""
    in_a_row: int = 8
    """Failures in a row before the stage pauses."""
    pause: float = 1.0
    """Seconds of the first pause; doubles up to a minute."""
    outage: float = 300.0
    """Seconds without any answer before the stage ends."""
    unproven: float = 20.0
    """The same, where this run has had no answer at all from this editor or judge."""


class Breaker:
    """Watches the answers of one stage."""

    def __init__(self, policy: FailurePolicy, now: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._now = policy, now
        self.ever_answered = False
        """Whether any call of this run has worked."""
        self._alike: dict[str, int] = {}
        self._in_a_row = 0
        self._complaints = 0
        self._failing_since: float | None = None
        self._pauses = 0
        self._next_trial = 0.0

    def answered(self) -> None:
        """A call was answered."""
        self.ever_answered = True
        self._alike.clear()
        self._in_a_row = self._complaints = self._pauses = 0
        self._failing_since = None

    def failed(self, failure: Failed) -> None:
        """A call failed."""
        if not failure.retryable or failure.status == IN_WORDS:
            # The other side is there; it only rejects this call, or every call, or talks instead of editing.
            self._in_a_row = self._complaints = self._pauses = 0
            self._failing_since = None
            if not self.ever_answered:
                fault = _fault(failure)
                self._alike[fault] = self._alike.get(fault, 0) + 1
            return
        if self._failing_since is None:
            self._failing_since = self._now()
        if failure.throttled:
            self._complaints += 1
            return
        self._in_a_row += 1
        # Calls that were under way when it opened fail during the first pause; they tell nothing new.
        if self.open and self.seconds_until_trial <= 0:
            longer = min(self._policy.pause * 2.0 ** min(self._pauses, _DOUBLINGS), _LONGEST_PAUSE)
            pause = longer if failure.retry_after is None else failure.retry_after
            self._next_trial = min(self._now() + pause, max(self._now(), self._failing_since + self._bearable))
            self._pauses += 1

    @property
    def open(self) -> bool:
        """Whether so much fails that calls are retried one at a time."""
        return self._in_a_row >= self._policy.in_a_row

    @property
    def seconds_until_trial(self) -> float:
        """While open: until one call may be tried."""
        return self._next_trial - self._now()

    @property
    def hopeless(self) -> bool:
        """Whether the first answers all failed alike, in a way that does not pass by itself."""
        return len(self._alike) == 1 and max(self._alike.values()) >= self._policy.alike

    @property
    def outage(self) -> bool:
        """Whether nothing has worked for so long that the stage should end."""
        if self._failing_since is None or not (self.open or self._complaints >= _COMPLAINTS):
            return False
        return self._now() - self._failing_since >= self._bearable

    @property
    def _bearable(self) -> float:
        """Seconds without any answer before it counts as an outage."""
        policy = self._policy
        return policy.outage if self.ever_answered else min(policy.outage, policy.unproven)

    @property
    def since(self) -> str:
        """When the failures began, by the clock on the wall."""
        ago = self._now() - (self._failing_since if self._failing_since is not None else self._now())
        return f"{datetime.now() - timedelta(seconds=ago):%H:%M:%S}"


def _fault(failure: Failed) -> str:
    """The fault without what varies from call to call; whole where only the text tells two faults apart."""
    if failure.status in (IN_WORDS, MALFORMED):
        return failure.status
    return f"{failure.status}: {_VARYING.sub('#', failure.error)[:_COMPARED]}" if failure.status else failure.error
