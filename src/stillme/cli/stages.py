"""Commands that work: run, and each of its stages alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import Command, audit_argument, json_option, out_option, print_json

if TYPE_CHECKING:
    from stillme.pipeline import Name
    from stillme.report.data import Redaction
    from stillme.report.manuscript import Format

_EXIT_RETRY = 3
_EXIT_INTERRUPTED = 130


def _stage_options(command: Command) -> Command:
    for option in (
        json_option,
        click.option(
            "--accept-changes", is_flag=True, help="Go on although audit.toml changed and work would be done anew."
        ),
        click.option(
            "--wait", type=float, default=0.0, metavar="SECONDS", help="Wait so long if another process is writing."
        ),
        out_option,
        audit_argument,
    ):
        command = option(command)
    return command


@click.command()
@_stage_options
def run(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Edit, judge, estimate and report: the whole audit.

    AUDIT is a folder with an audit.toml, or the file; the current folder by default. What was done before
    is not done again. Ctrl-C once finishes what is running and saves; twice stops at once.
    """
    _work(audit, out, wait, accept_changes, as_json, ("edit", "judge", "estimate", "report"))


@click.command()
@_stage_options
def edit(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Make the edits that are missing."""
    _work(audit, out, wait, accept_changes, as_json, ("edit",))


@click.command()
@_stage_options
def judge(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Have the judges rate the edits that they have not rated."""
    _work(audit, out, wait, accept_changes, as_json, ("judge",))


@click.command()
@_stage_options
def estimate(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Compute the estimates from the rows and write tables/*.csv."""
    _work(audit, out, wait, accept_changes, as_json, ("estimate",))


@click.command()
@_stage_options
@click.option(
    "--figures",
    type=click.Choice(["pdf", "png", "svg"]),
    multiple=True,
    help="Also write the paper's figures and every forest plot into `figures` in the run. Repeatable.",
)
@click.option(
    "--redact",
    type=click.Choice(["blur", "omit"]),
    help="Show portraits as blurred patches of colour, or leave them out; no link leads to the pictures then.",
)
def report(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    figures: tuple[Format, ...],
    redact: Redaction | None,
) -> None:
    """Write report.html: one self-contained page.

    It opens without a network, shows the worst edits first, and leads from every number to its rows. Figures need
    the extra `figures`.
    """
    _work(audit, out, wait, accept_changes, as_json, ("report",), figures=figures, redact=redact or "none")


def _work(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    stages: tuple[Name, ...],
    *,
    figures: tuple[Format, ...] = (),
    redact: Redaction = "none",
) -> None:
    from stillme.cli.progress import progress
    from stillme.pipeline import Ended, Options, run_stages

    with progress(quiet=as_json) as shown:
        options = Options(
            out=out,
            wait=wait,
            accept_changes=accept_changes,
            watch=shown,
            say=shown.say,
            redact=redact,
            figures=figures,
        )
        summary = run_stages(audit, stages, options)
    if as_json:
        print_json(summary.as_json())
    else:
        click.echo(summary.as_text())
    if summary.ended is Ended.INTERRUPTED:
        sys.exit(_EXIT_INTERRUPTED)
    if summary.ended is Ended.OVER_BUDGET or summary.to_retry:
        sys.exit(_EXIT_RETRY)
