"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]


def audit_argument(command: Command) -> Command:
    """The audit: a folder with an audit.toml, or the file itself."""
    return click.argument("audit", type=click.Path(path_type=Path), default=".", metavar="[AUDIT]")(command)


def out_option(command: Command) -> Command:
    """Where the run is kept."""
    return click.option(
        "--out", type=click.Path(path_type=Path, file_okay=False), help="Run folder; by default the audit's own folder."
    )(command)


def json_option(command: Command) -> Command:
    """Results for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")(command)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
