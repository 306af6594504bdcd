"""Log lines for debugging: `-v`, `-vv` or STILLME_LOG. API keys never appear."""

from __future__ import annotations

import logging
import os
import re

from stillme.files import printable

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"(Bearer\s+|api[-_]?key[\"']?\s*[:=]\s*[\"']?|[?&](?:key|token)=|://[^/\s:@]+:)[^\s\"'&@,}]+", re.IGNORECASE
)
_SHORTEST_SECRET = 8


def configure(verbose: int) -> None:
    """Send log lines of stillme to standard error, at the level that was asked for."""
    wanted = os.environ.get("STILLME_LOG", "").upper()
    level = logging.getLevelNamesMapping().get(wanted, LEVELS[min(verbose, len(LEVELS) - 1)])
    logger = logging.getLogger("stillme")
    logger.setLevel(level)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def redacted(text: str) -> str:
    """The text without the values of secret variables, and without what looks like a key."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "[redacted]")
    return _SECRET_TEXT.sub(lambda match: f"{match.group(1)}[redacted]", text)


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(redacted(super().format(record)))
