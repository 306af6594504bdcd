"""Show progress: a bar for each stage on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stillme.cli.terminal import echo, printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from stillme.work.tally import Tally

_BAR_SECONDS = 0.1
_LINE_SECONDS = 10.0


class Progress:
    """Watches tallies. Writes to standard error, so that results on standard output stay clean."""

    def __init__(self, *, bar: bool) -> None:
        self._bars = _bars() if bar else None
        self._shown_at = time.monotonic()
        self._running: dict[str, Tally] = {}
        self._finished: set[str] = set()
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, tally: Tally) -> None:
        """Show the tally if it is time to."""
        if tally.ended is not None or tally.already + tally.done >= tally.total:
            self._running.pop(tally.name, None)
            if tally.name not in self._finished:
                self._finished.add(tally.name)
                if self._bars and tally.name in self._tasks:
                    self._bars.remove_task(self._tasks.pop(tally.name))
                self.say(describe(tally))
            return
        new = tally.name not in self._running
        self._running[tally.name] = tally
        now = time.monotonic()
        if new or now - self._shown_at >= (_BAR_SECONDS if self._bars else _LINE_SECONDS):
            self._shown_at = now
            self._show()

    def counter(self, name: str) -> Callable[[int, int], None]:
        """For work that only counts: it is told how much is done, of how much."""
        from stillme.work.tally import Tally

        tally = Tally(name=name, total=0)

        def watch(done: int, total: int) -> None:
            tally.total, tally.counts["done"] = total, done
            self(tally)

        return watch

    def say(self, text: str, *, err: bool = True) -> None:
        """Print a line above the bars."""
        if self._bars:
            self._bars.stop()
        echo(text, err=err)

    def end(self) -> None:
        """Keep the last state of what still runs."""
        if self._bars:
            self._bars.stop()
            for tally in self._running.values():
                echo(describe(tally), err=True)

    def _show(self) -> None:
        for name, tally in list(self._running.items()):
            if self._bars is None:
                echo(describe(tally), err=True)
                continue
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(printable(name), facts="")
            done = tally.already + tally.done
            self._bars.update(self._tasks[name], total=tally.total, completed=done, facts=printable(_facts(tally)))
            self._bars.start()


@contextmanager
def progress(*, quiet: bool = False) -> Generator[Progress]:
    """A progress display for the duration of some work."""
    shown = Progress(bar=sys.stderr.isatty() and not quiet)
    try:
        yield shown
    finally:
        shown.end()


def _bars() -> Bars:
    from rich import progress as parts
    from rich.console import Console

    name = parts.TextColumn("{task.description}", markup=False)
    facts = parts.TextColumn("{task.fields[facts]}", markup=False)
    # What is printed to standard output belongs there, also while bars are drawn on standard error.
    return parts.Progress(
        name,
        parts.BarColumn(20),
        facts,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def describe(tally: Tally) -> str:
    """`edit biased: 56/168  12.3/s  0:09 left  $0.00  2 refused`."""
    return f"{tally.name}: {_facts(tally)}"


def _facts(tally: Tally) -> str:
    done = tally.already + tally.done
    parts = [f"{done:,}/{tally.total:,}", f"{tally.rate:,.1f}/s"]
    if done < tally.total and (left := tally.remaining_seconds):
        minutes, seconds = divmod(round(left), 60)
        hours, minutes = divmod(minutes, 60)
        parts.append(f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left")
    if tally.cost:
        parts.append(f"${tally.cost:,.2f}")
    if tally.already:
        parts.append(f"{tally.already:,} done before")
    parts += [
        f"{tally.counts[word]:,} {word}" for word in ("refused", "answered in words", "failed") if tally.counts[word]
    ]
    if tally.retried:
        parts.append(f"{tally.retried:,} retried")
    if tally.throttled:
        parts.append(f"{tally.throttled:,} slowed down")
    return "  ".join([*parts, *([tally.waits] if tally.waits else [])])
