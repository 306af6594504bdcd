"""Show a stage's progress: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stillme.stages.loop import Tally

_BAR_SECONDS = 0.1
_LINE_SECONDS = 10.0


class Progress:
    """Watches tallies. Writes to standard error, so that results on standard output stay clean."""

    def __init__(self, *, bar: bool) -> None:
        self._bar = bar
        self._shown_at = time.monotonic()
        self._width = 0
        self._name = ""

    def __call__(self, tally: Tally) -> None:
        """Show the tally if it is time to."""
        now = time.monotonic()
        finished = tally.already + tally.done >= tally.total
        if (
            finished
            or tally.name != self._name
            or now - self._shown_at >= (_BAR_SECONDS if self._bar else _LINE_SECONDS)
        ):
            if self._bar and self._name and tally.name != self._name:
                self.end()
            self._shown_at, self._name = now, tally.name
            self._show(describe(tally))

    def end(self) -> None:
        """Keep the last state and continue on the next line."""
        if self._bar and self._width:
            click.echo(err=True)
            self._width = 0

    def say(self, text: str) -> None:
        """Print a line between the bars."""
        self.end()
        click.echo(text, err=True)

    def _show(self, line: str) -> None:
        if self._bar:
            click.echo(f"\r{line.ljust(self._width)}", err=True, nl=False)
            self._width = len(line)
        else:
            click.echo(line, err=True)


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
    parts.extend(f"{tally.counts[word]:,} {word}" for word in ("refused", "failed") if tally.counts[word])
    if tally.retried:
        parts.append(f"{tally.retried:,} retried")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
