"""The progress of one stage."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Ended(StrEnum):
    """Why the work ended, from the best to the worst."""

    COMPLETE = "complete"
    OUTAGE = "outage"
    """Nothing worked for too long."""
    STOPPED = "stopped"
    """Nothing can work until the user acts."""
    OVER_BUDGET = "over budget"
    INTERRUPTED = "interrupted"


_ORDER = list(Ended)


def worst(*ended: Ended) -> Ended:
    """How several stages ended together."""
    return max(ended, key=_ORDER.index, default=Ended.COMPLETE)


@dataclass(slots=True)
class Tally:
    """The progress of the work. The worker loop writes it; the progress display reads it."""

    name: str
    total: int
    cost: float = 0.0
    """Dollars of the whole run, what earlier runs spent included."""
    already: int = 0
    counts: Counter[str] = field(default_factory=lambda: Counter[str]())
    saved: int = 0
    """Results of this run that have a row."""
    retried: int = 0
    throttled: int = 0
    """Calls that the other side turned away because they came too fast."""
    started: float = field(default_factory=time.monotonic)
    stopped: float | None = None
    """When it ended."""
    waits: str = ""
    """What the stage waits for, while nothing happens."""
    ended: Ended | None = None
    reason: str = ""
    """Why it ended before its time, in a sentence."""

    def begin(self) -> None:
        """The stage starts to work; until then it waited for others."""
        self.started = time.monotonic()

    def end(self, ended: Ended) -> None:
        """The stage has ended."""
        self.ended, self.stopped = ended, time.monotonic()

    @property
    def done(self) -> int:
        """Results of this run."""
        return self.counts.total()

    @property
    def elapsed(self) -> float:
        """Seconds of its own work, so far or in all."""
        return (self.stopped or time.monotonic()) - self.started

    @property
    def rate(self) -> float:
        """Results per second of this run."""
        return self.done / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def remaining_seconds(self) -> float | None:
        """At the present rate; None before there is one."""
        left = self.total - self.already - self.done
        return left / self.rate if self.rate > 0 else None
