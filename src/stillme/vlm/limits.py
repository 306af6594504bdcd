"""Ask a provider no more often than allowed: requests and tokens a minute, and its own wish to wait."""

from __future__ import annotations

import time
from collections.abc import Callable

_GUESS = 4000.0
"""Tokens of a question about two pictures, until the first answer tells."""
_WEIGHT = 0.2


class Allowance:
    """Hands out moments to ask, evenly spaced over requests and over tokens. For one thread: the loop's."""

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gap = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._now = now
        self._next_request = 0.0
        self._next_token = 0.0
        self._held = 0.0
        self.expected = _GUESS
        """Tokens that one question is expected to take."""

    def take(self) -> tuple[float, float]:
        """Claim the next turn: the moment at which to ask, and the tokens that were set aside for it."""
        now = self._now()
        turn = max(now, self._next_request, self._next_token)
        self._next_request = max(now, self._next_request) + self._gap
        self._next_token = max(now, self._next_token) + self.expected * self._per_token
        return turn, self.expected

    def wait(self, turn: float) -> float:
        """Seconds still to wait for a claimed turn; a hold that came meanwhile counts as well."""
        return max(turn, self._held) - self._now()

    def settle(self, set_aside: float, used: int) -> None:
        """Book what an answer really took, and expect that more in future."""
        if used:
            self._next_token += (used - set_aside) * self._per_token
            self.expected += _WEIGHT * (used - self.expected)

    def hold(self, seconds: float) -> None:
        """Nobody asks for that long: the provider said so."""
        self._held = max(self._held, self._now() + seconds)
