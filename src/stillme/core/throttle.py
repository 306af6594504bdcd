"""Ask a provider no more often than the user allows: requests and tokens per minute, shared by all threads.

How to go on after a provider's own "slow down" is decided by who asks: `stillme.work.pace` for a run, and
`call_with_retry` for a single question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from stillme.core.types import Failed

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a caller sleeps at most: Ctrl-C must not have to wait for a turn."""
_FIRST_GUESS = 4000.0
"""Tokens of a question about two images, until the first answer tells."""
_WEIGHT = 0.2
"""Of the newest answer in the moving average of tokens."""
_TRIES = 5
_LONGEST_WAIT = 60.0
"""Seconds that a single question waits before it is asked again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a caller may ask, and the tokens reserved for it."""

    at: float
    tokens: float


@dataclass(frozen=True, slots=True)
class TooEarly:
    """The next turn is further away than a caller sleeps; nothing was reserved."""

    seconds: float

    def failed(self, asked: str) -> Failed:
        """What a caller returns instead of asking."""
        error = f"{asked}: the requests or tokens per minute are used up; the next turn is in {self.seconds:.0f} s"
        return Failed(error=error, retryable=True, throttled=True, retry_after=self.seconds)


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
        self._expected_tokens = _FIRST_GUESS

    def wait(self, sleep: Callable[[float], None] = time.sleep) -> Turn | TooEarly:
        """Block the thread until it is this caller's turn, for at most `PATIENCE`."""
        turn = self.claim()
        while isinstance(turn, Turn) and (seconds := turn.at - self._now()) > 0:
            sleep(seconds)
        return turn

    async def wait_async(self) -> Turn | TooEarly:
        """Return when it is this caller's turn, without blocking the event loop."""
        import asyncio

        turn = self.claim()
        while isinstance(turn, Turn) and (seconds := turn.at - self._now()) > 0:
            await asyncio.sleep(seconds)
        return turn

    def claim(self) -> Turn | TooEarly:
        """Reserve the next turn, unless it is too far away."""
        with self._lock:
            now = self._now()
            at = max(now, self._next_request, self._next_token)
            if at - now > PATIENCE:
                return TooEarly(at - now)
            turn = Turn(at=at, tokens=self._expected_tokens)
            self._next_request = max(now, self._next_request) + self._seconds_per_request
            self._next_token = max(now, self._next_token) + turn.tokens * self._seconds_per_token
        return turn

    def settle(self, turn: Turn, used: int) -> None:
        """Book the tokens that an answer really took, and expect about as many from the next."""
        if used:
            with self._lock:
                self._next_token += (used - turn.tokens) * self._seconds_per_token
                self._expected_tokens += _WEIGHT * (used - self._expected_tokens)


def call_with_retry(
    ask: Callable[[], T], failure: Callable[[T], Failed | None], sleep: Callable[[float], None] = time.sleep
) -> T:
    """Ask a single question, and a few times more while the other side only asks to slow down."""
    for tries in range(1, _TRIES):
        answer = ask()
        failed = failure(answer)
        if failed is None or not failed.throttled:
            return answer
        pause = failed.retry_after if failed.retry_after is not None else 2.0**tries
        if pause > _LONGEST_WAIT:
            return answer
        sleep(pause)
    return ask()
