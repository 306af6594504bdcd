"""Ask a provider no more often than it allows: requests and tokens per minute, and the pauses that it asks for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_FIRST_GUESS = 4000.0
"""Tokens of a question about two images, until the first answer tells."""
_WEIGHT = 0.2
"""Of the newest answer in the moving average of tokens."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a caller may ask, and the tokens reserved for it."""

    at: float
    tokens: float


class RateLimiter:
    """Spaces calls evenly over requests and over tokens, across all threads, so no minute holds more than its share."""

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds_per_request = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._seconds_per_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._now = now
        self._lock = threading.Lock()
        self._next_request = 0.0
        self._next_token = 0.0
        self._paused_until = 0.0
        self._expected_tokens = _FIRST_GUESS

    def wait(self, sleep: Callable[[float], None] = time.sleep) -> Turn:
        """Block the thread until it is this caller's turn."""
        turn = self.reserve()
        while (seconds := self.seconds_until(turn)) > 0:
            sleep(seconds)
        return turn

    async def wait_async(self) -> Turn:
        """Return when it is this caller's turn, without blocking the event loop."""
        turn = self.reserve()
        while (seconds := self.seconds_until(turn)) > 0:
            await asyncio.sleep(seconds)
        return turn

    def reserve(self) -> Turn:
        """Claim the next turn."""
        with self._lock:
            now = self._now()
            turn = Turn(at=max(now, self._next_request, self._next_token), tokens=self._expected_tokens)
            self._next_request = max(now, self._next_request) + self._seconds_per_request
            self._next_token = max(now, self._next_token) + turn.tokens * self._seconds_per_token
        return turn

    def seconds_until(self, turn: Turn) -> float:
        """Time left until a claimed turn. A pause that began after the claim counts, too."""
        return max(turn.at, self._paused_until) - self._now()

    def settle(self, turn: Turn, used: int) -> None:
        """Book the tokens that an answer really took, and expect about as many from the next."""
        if used:
            with self._lock:
                self._next_token += (used - turn.tokens) * self._seconds_per_token
                self._expected_tokens += _WEIGHT * (used - self._expected_tokens)

    def pause(self, seconds: float) -> None:
        """Hold back every caller for as long as the provider asked for."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._now() + seconds)
