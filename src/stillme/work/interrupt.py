"""Ctrl-C once finishes what is running and saves; twice stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

_received = [int(signal.SIGINT)]
"""The signal that asked this process to end."""


def note(number: int) -> None:
    """This signal asks this process to end."""
    _received[0] = number


def exit_code() -> int:
    """What an interrupted command ends with, as shells count: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _received[0]


class Stop:
    """A request for an orderly end."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def on_interrupt(self, announce: Callable[[str], None]) -> Generator[Stop]:
        """While inside, the first Ctrl-C asks for an orderly end, the second raises KeyboardInterrupt.

        SIGTERM and SIGHUP (a closed terminal) count like Ctrl-C.
        """
        if threading.current_thread() is not threading.main_thread():
            # Python delivers signals to the main thread only; a caller elsewhere sets `requested` itself.
            yield self
            return

        def handle(number: int, _frame: FrameType | None) -> None:
            note(number)
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True
            announce("Finishing what is running, then saving. Ctrl-C again stops at once.")

        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, handle) for number in signals]
        try:
            yield self
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)
