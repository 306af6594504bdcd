"""Limit how often one client may ask."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

_REMEMBERED = 20_000
"""Clients to keep; those not seen for longest are dropped first, so that memory stays flat."""


@dataclass
class RequestLimit:
    """A token bucket per client: `burst` requests at once, then `per_minute` evenly. Kept per process."""

    per_minute: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, tuple[float, float]] = field(
        default_factory=lambda: OrderedDict[str, tuple[float, float]]()
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self, client: str) -> bool:
        """Count one request of a client; false if it exceeds the limit."""
        now = self.clock()
        with self._lock:
            left, since = self._buckets.pop(client, (float(self.burst), now))
            left = min(float(self.burst), left + (now - since) * self.per_minute / 60)
            allowed = left >= 1
            self._buckets[client] = (left - 1 if allowed else left, now)
            while len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        return allowed

    def require(self, client: str) -> None:
        """Answer 429 if this request exceeds the limit."""
        if not self.allows(client):
            raise HTTPException(429, "Too many requests. Wait a moment.", headers={"Retry-After": "5"})
