"""Keep what diffusers only logs, such as a setting that it ignores: it belongs to the record of an edit."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def overheard() -> Generator[list[str]]:
    """The warnings that diffusers logs meanwhile, each once."""
    handler = _Overhearing()
    logger = logging.getLogger("diffusers")
    logger.addHandler(handler)
    try:
        yield handler.heard
    finally:
        logger.removeHandler(handler)


class _Overhearing(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().strip()
        if message not in self.heard:
            self.heard.append(message)
