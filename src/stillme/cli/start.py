"""Commands to start with: new, demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import json_option, print_json, print_next, print_open
from stillme.cli.terminal import echo
from stillme.errors import StillmeError

if TYPE_CHECKING:
    from stillme.audit.experiments import Experiment


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--title", default="", help="Shown in the report; by default the folder's name.")
@click.option(
    "--experiment",
    type=click.Choice(["diagnosis", "mitigation", "roles"]),
    help="One of the paper's experiments instead: its portraits' design, prompts, editors and judges.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing audit.toml.")
def new(folder: Path, title: str, experiment: Experiment | None, force: bool) -> None:
    """Write a small, commented audit.toml into DIR.

    It runs as it is, with the embedded portraits, two known-answer editors and the offline instruments;
    change it from there. With --experiment it is the paper's: `diagnosis` (5,040 edits), `mitigation` (500 requests
    with and without a feature prompt), `roles` (100). Those need GPUs and keys; `stillme plan DIR` needs neither.
    """
    from stillme.audit.experiments import experiment as paper_audit
    from stillme.audit.template import small_audit
    from stillme.files import write_whole

    file = folder / "audit.toml"
    if file.exists() and not force:
        raise StillmeError(f"{file} already exists. Choose another folder, or overwrite it with --force.")
    folder.mkdir(parents=True, exist_ok=True)
    name = title or folder.resolve().name
    write_whole(file, paper_audit(experiment, name) if experiment else small_audit(name))
    echo(f"Wrote {file}")
    print_next("plan" if experiment else "run", folder)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="stillme-demo",
    show_default=True,
    help="Folder for the demo's run.",
)
@json_option
def demo(out: Path, as_json: bool) -> None:
    """Audit two known-answer editors on this machine, and see whether the audit recovers the planted gaps.

    Rendered portraits, an even-handed and a biased editor, offline instruments, estimates with intervals,
    a report. No key, no GPU, no download; running it again resumes.
    """
    from stillme.cli.progress import progress
    from stillme.demo import run_demo

    with progress(quiet=as_json) as shown:
        result = run_demo(out, watch=shown, say=shown.say)
    if as_json:
        print_json(result.as_json())
    else:
        echo(result.as_text())
        print_open(result.report)
        print_next("status", out)
        print_next("new", "my-audit")
