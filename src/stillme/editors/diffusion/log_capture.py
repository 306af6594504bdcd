"""Record the warnings that diffusers only logs, such as an ignored setting, with the edit."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def captured_warnings() -> Generator[list[str]]:
    """The warnings that diffusers logs inside the block, without repeats."""
    handler = _Capture()
    logger = logging.getLogger("diffusers")
    logger.addHandler(handler)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)


class _Capture(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().strip()
        if message not in self.messages:
            self.messages.append(message)
