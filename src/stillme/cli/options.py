"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.terminal import echo, json_text

if TYPE_CHECKING:
    from stillme.runs import RecordedRun

Command = Callable[..., Any]

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
REDACTIONS = click.Choice(["blur", "omit"])
RULES = click.Choice(["mean", "paper", "code", "median", "worst"])
"""How several judges' scores become one."""


def audit_argument(command: Command) -> Command:
    """The audit: a folder with an audit.toml, or the file itself."""
    return click.argument("audit", type=PATH, default=".", metavar="[AUDIT]")(command)


def out_option(command: Command) -> Command:
    """Where the run is kept."""
    return click.option("--out", type=FOLDER, help="Run folder; by default the audit's own folder.")(command)


def json_option(command: Command) -> Command:
    """Results for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")(command)


def browser_option(command: Command) -> Command:
    """Whether to open the page that is served."""
    return click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page.")(command)


def address_options(command: Command) -> Command:
    """Where an app is served."""
    host = click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 allows other machines.")
    return host(click.option("--port", type=int, help="By default the first free port from 8470.")(command))


def print_json(value: Any) -> None:
    """One JSON document on standard output; records are written as `plain` has them."""
    from stillme.core.types import plain

    echo(json_text(plain(value)))


def print_written(files: Sequence[Path], *, as_json: bool) -> None:
    """The files that a command wrote."""
    if as_json:
        print_json({"files": [str(path) for path in files]})
    else:
        echo("\n".join(f"Wrote {path}" for path in files))


def print_next(*words: object, out: Path | None = None) -> None:
    """The next command to type. On standard error, so that standard output holds the result alone."""
    echo(f"Next: {command_line(*words, out=out)}", err=True)


def print_next_bundle(run: RecordedRun, audit: Path, *, out: Path | None = None) -> None:
    """Seal the run next; one that was made of rows has nothing to prove, and its report is the next thing to read."""
    if run.design.of_rows:
        print_next("report", audit, out=out)
    else:
        print_next("export", audit, "--bundle", "evidence.zip", out=out)


def print_open(page: Path) -> None:
    """The page to look at; no command, so no `Next:`."""
    echo(f"Open in a browser: {page}", err=True)


def command_line(*words: object, out: Path | None = None) -> str:
    """A stillme command as this user can type it."""
    # `make demo` leaves stillme in .venv/bin, which is not on the PATH.
    called = Path(sys.argv[0])
    program = str(called) if called.name == "stillme" and shutil.which("stillme") is None else "stillme"
    return shlex.join([program, *map(str, words), *(("--out", str(out)) if out else ())])


def pairs_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` words of an option that may be repeated."""
    from stillme.core.errors import StillmeError

    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise StillmeError(f"{option} {text!r} is not NAME=VALUE.")
        if name in pairs:
            raise StillmeError(f"{option} names {name!r} twice.")
        pairs[name] = value
    return pairs


def use_one_blas_thread() -> None:
    """Before numpy is imported: our matrices are so small that threads mostly wait for each other."""
    name, before = "OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ[name] = before or "1"
    import_module("numpy")  # reads the variable once, as it is imported
    if not before:
        del os.environ[name]  # programs that this process starts choose for themselves


EDITED = (
    "Note: audit.toml was changed after this run was recorded. The recorded configuration is used; `stillme run` "
    "applies the new one."
)


@contextmanager
def opened_run(
    path: Path, out: Path | None = None, *, quiet: bool = False, writes: bool = False
) -> Generator[RecordedRun]:
    """The run that the command line names: a folder, or a sealed bundle. A changed audit.toml is noted."""
    from stillme.audit.design import is_edited
    from stillme.core.errors import StillmeError
    from stillme.core.files import is_bundle
    from stillme.runs import RecordedRun, folder_of

    if out is None and is_bundle(path):
        if writes:
            raise StillmeError(f"{path} is a sealed bundle, but this command writes into a run. Name the run's folder.")
        from stillme.findings.evidence import opened_bundle

        with opened_bundle(path) as run:
            yield run
        return
    with RecordedRun.open(folder_of(path, out)) as run:
        if not quiet and is_edited(run.folder):
            echo(EDITED, err=True)
        yield run
