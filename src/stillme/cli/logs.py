"""Log lines for debugging: `-v`, `-vv` or STILLME_LOG. API keys never appear."""

from __future__ import annotations

import logging
import os

from stillme.cli.terminal import printable
from stillme.core.redaction import redacted

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


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


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(redacted(super().format(record)))
