"""Ask a provider no more often than allowed, across all threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimiter:
    """Hands out moments to ask, evenly spaced, so that no minute ever holds more than its share."""

    def __init__(
        self,
        per_minute: float | None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._next = 0.0
        self._held = 0.0

    def wait(self) -> None:
        """Return when it is this caller's turn."""
        with self._lock:
            turn = max(self._now(), self._next)
            self._next = turn + self._gap
        # A hold that comes while we sleep counts for us, too.
        while (left := max(turn, self._held) - self._now()) > 0:
            self._sleep(left)

    def hold(self, seconds: float) -> None:
        """Nobody asks for that long: the provider said so."""
        with self._lock:
            self._held = max(self._held, self._now() + seconds)
