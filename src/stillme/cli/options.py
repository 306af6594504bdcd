"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stillme.results import Run

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


@contextmanager
def opened_run(path: Path, out: Path | None = None, *, quiet: bool = False, writes: bool = False) -> Generator[Run]:
    """The run that the command line names: a folder, or a sealed bundle. What differs here from it is said aloud."""
    from stillme.errors import StillmeError
    from stillme.evidence import opened_bundle
    from stillme.results import Run, folder_of
    from stillme.results.drift import drift, sentence

    if out is None and path.suffix in (".zip", ".tar") and path.is_file():
        if writes:
            raise StillmeError(f"{path} is a sealed bundle, and this command writes into a run. Name the run's folder.")
        with opened_bundle(path) as run:
            yield run
        return
    with Run.open(folder_of(path, out)) as run:
        if not quiet and (differences := drift(run)):
            click.echo(sentence(differences), err=True)
        yield run
