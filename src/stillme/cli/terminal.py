"""Print text that others wrote: a model's words, a server's answer, a file's name. No command prints in another way."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Any

import click

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, marks that change the reading order, and halves of characters."""


class OutputClosed(Exception):
    """The reader of standard output has ended, such as after `| head`."""


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text to standard output, or to standard error, without what a terminal would obey."""
    try:
        click.echo(printable(str(text)), err=err, nl=nl)
    except BrokenPipeError:
        # Click would end with 1, which says that a check failed.
        raise OutputClosed from None


def printable(text: str) -> str:
    """Text from a model or a server as a terminal may show it: without escapes and without reversed reading order."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def json_text(value: Any) -> str:
    """A value as JSON that a terminal can show and a program reads back unchanged."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if printable(text) == text:
        return text
    return "".join(sign if printable(sign) == sign else f"\\u{ord(sign):04x}" for sign in text)


LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def configure_logs(verbose: int) -> None:
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
        from stillme.core.redaction import redacted  # `--help` writes no log, and needs none of the types behind it

        return printable(redacted(super().format(record)))
