"""How fast a stage asks: at full speed until the other side asks to slow down, then as fast as it allows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_SLOWEST = 0.1
"""Calls per second, however often the other side complains."""
_BACK_OFF = 0.7
"""The rate after a complaint, as a share of the rate before."""
_PROBING = 0.25
"""Growth per second above the last limit, or where none is known: a share of the rate."""
_RECOVERING = 0.05
"""Growth per second up to the last limit: a share of that limit."""
_WINDOW = 10.0
"""Seconds of answers from which the first rate is guessed."""


class Pace:
    """Additive increase, multiplicative decrease, shared by all workers of a stage."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.rate: float | None = None
        """Calls per second; None for no limit."""
        self._limit: float | None = None
        """The rate at which the other side complained last."""
        self._slowed_at = -1.0
        self._next = 0.0
        self._paused_until = 0.0
        self._answers: deque[float] = deque(maxlen=4096)

    @property
    def seconds_until_ready(self) -> float:
        """Until the next call may start; negative if it may already."""
        return max(self._next, self._paused_until) - self._now()

    @property
    def pause_left(self) -> float:
        """Of the wait that the other side asked for."""
        return self._paused_until - self._now()

    @property
    def limited(self) -> bool:
        """Whether the other side has ever asked to slow down."""
        return self.rate is not None

    def start(self) -> None:
        """A call starts."""
        if self.rate:
            self._next = max(self._now(), self._next) + 1.0 / self.rate

    def answered(self) -> None:
        """A call was answered: a little faster."""
        self._answers.append(self._now())
        if self.rate is None:
            return
        recovering = self._limit is not None and self.rate < self._limit
        # Once per answer, so that a second of answers at this rate adds the share above.
        self.rate += _RECOVERING * (self._limit or 0.0) / self.rate if recovering else _PROBING

    def slow_down(self, seconds: float | None, sent_at: float) -> None:
        """The other side asks all callers to slow down, perhaps for that many seconds."""
        now = self._now()
        self._paused_until = max(self._paused_until, now + (1.0 if seconds is None else seconds))
        if sent_at <= self._slowed_at:
            return  # sent before the last change of pace, so it says nothing about the new one
        if self.rate is None:
            # As many as were answered of late, in the time after which it wants to be asked again.
            recent = [at for at in self._answers if now - at <= _WINDOW]
            span = max(min(1.0 if seconds is None else seconds, _WINDOW), now - recent[0] if recent else 0.0)
            self.rate = max(1, len(recent)) / max(span, 0.01)
        else:
            self._limit = self.rate
            self.rate *= _BACK_OFF
        self.rate = max(_SLOWEST, self.rate)
        self._slowed_at = now
        self._next = max(self._next, self._paused_until)
