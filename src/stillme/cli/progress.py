"""Show a stage's progress: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stillme.cli.terminal import echo, redraw

if TYPE_CHECKING:
    from stillme.work.tally import Tally

_BAR_SECONDS = 0.1
_LINE_SECONDS = 10.0


class Progress:
    """Watches tallies. Writes to standard error, so that results on standard output stay clean."""

    def __init__(self, *, bar: bool) -> None:
        self._bar = bar
        self._shown_at = time.monotonic()
        self._width = 0
        self._running: dict[str, Tally] = {}
        self._finished: set[str] = set()

    def __call__(self, tally: Tally) -> None:
        """Show the tally if it is time to."""
        finished = tally.ended is not None or tally.already + tally.done >= tally.total
        new = tally.name not in self._running
        if finished:
            self._running.pop(tally.name, None)
            if tally.name not in self._finished:
                self._finished.add(tally.name)
                self._keep(describe(tally))
            return
        self._running[tally.name] = tally
        now = time.monotonic()
        if new or now - self._shown_at >= (_BAR_SECONDS if self._bar else _LINE_SECONDS):
            self._shown_at = now
            self._show()

    def end(self) -> None:
        """Keep the last state and continue on the next line."""
        if self._bar and self._width:
            echo(err=True)
            self._width = 0

    def say(self, text: str) -> None:
        """Print a line between the bars."""
        self.end()
        echo(text, err=True)

    def _show(self) -> None:
        """All stages that run at the moment: in one line on a terminal, else in a line each."""
        running = list(self._running.values())
        if not self._bar:
            for tally in running:
                echo(describe(tally), err=True)
        elif len(running) == 1:
            self._overwrite(describe(running[0]))
        else:
            self._overwrite("   ".join(brief(tally) for tally in running))

    def _keep(self, line: str) -> None:
        if self._bar:
            self._overwrite(line)
            self.end()
        else:
            echo(line, err=True)

    def _overwrite(self, line: str) -> None:
        redraw(line.ljust(self._width))
        self._width = len(line)


@contextmanager
def progress(*, quiet: bool = False) -> Generator[Progress]:
    """A progress display for the duration of some work."""
    shown = Progress(bar=sys.stderr.isatty() and not quiet)
    try:
        yield shown
    finally:
        shown.end()


def describe(tally: Tally) -> str:
    """`edit biased  ▕████······▏ 56/168  12.3/s  0:09 left  $0.00  2 refused`."""
    finished = tally.already + tally.done
    share = finished / tally.total if tally.total else 1.0
    filled = round(20 * share)
    parts = [
        f"{tally.name:<18}",
        f"▕{'█' * filled}{'·' * (20 - filled)}▏",
        f"{finished:,}/{tally.total:,}",
        f"{tally.rate:,.1f}/s",
    ]
    left = tally.remaining_seconds
    if left and share < 1:
        parts.append(f"{_clock(left)} left")
    if tally.cost:
        parts.append(f"${tally.cost:,.2f}")
    if tally.already:
        parts.append(f"{tally.already:,} done before")
    parts.extend(
        f"{tally.counts[word]:,} {word}" for word in ("refused", "answered in words", "failed") if tally.counts[word]
    )
    if tally.retried:
        parts.append(f"{tally.retried:,} retried")
    if tally.throttled:
        parts.append(f"{tally.throttled:,} slowed down")
    if tally.waits:
        parts.append(tally.waits)
    return "  ".join(parts)


def brief(tally: Tally) -> str:
    """`judge flash 56/168`, for several stages on one line."""
    waits = f" ({tally.waits})" if tally.waits else ""
    return f"{tally.name} {tally.already + tally.done:,}/{tally.total:,}{waits}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
