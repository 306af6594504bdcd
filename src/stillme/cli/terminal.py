"""Print text that others wrote: a model's words, a server's answer, a file's name. No command prints in another way."""

from __future__ import annotations

import json
from typing import Any

import click

from stillme.files import printable


class OutputClosed(Exception):
    """Nobody reads what is printed any more, such as after `| head`."""


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text to standard output, or to standard error, without what a terminal would obey."""
    _print(printable(str(text)), err=err, nl=nl)


def redraw(line: str) -> None:
    """Print over the current line of standard error."""
    _print(f"\r{printable(line)}", err=True, nl=False)


def _print(text: str, *, err: bool, nl: bool) -> None:
    try:
        click.echo(text, err=err, nl=nl)
    except BrokenPipeError:
        # Click would end with 1, which says that a check failed.
        raise OutputClosed from None


def json_text(value: Any) -> str:
    """A value as JSON that a terminal can show and a program reads back unchanged."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if printable(text) == text:
        return text
    return "".join(sign if printable(sign) == sign else f"\\u{ord(sign):04x}" for sign in text)
