"""Commands that work: run, and each of its stages alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import Command, audit_argument, json_option, out_option, print_json, print_next, print_open

if TYPE_CHECKING:
    from stillme.pipeline import Name, Summary
    from stillme.report.data import Redaction
    from stillme.report.manuscript import Format

_EXIT_RETRY = 3
_EXIT_INTERRUPTED = 130


def _stage_options(command: Command) -> Command:
    for option in (
        json_option,
        click.option(
            "--accept-changes", is_flag=True, help="Continue although audit.toml changed and work must be redone."
        ),
        click.option(
            "--wait", type=float, default=0.0, metavar="SECONDS", help="How long to wait if another process is writing."
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

    AUDIT is a folder with an audit.toml, or the file; by default the current folder. Finished work is not
    done again. Ctrl-C once finishes what is running and saves; twice stops at once.
    """
    _work(audit, out, wait, accept_changes, as_json, ("edit", "judge", "estimate", "report"))


@click.command()
@_stage_options
def edit(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Make the missing edits."""
    _work(audit, out, wait, accept_changes, as_json, ("edit",))


@click.command()
@_stage_options
def judge(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Rate the edits that judges have not rated yet."""
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
    help="Also write the paper's figures and every forest plot into `figures` in the run. May be repeated.",
)
@click.option(
    "--redact",
    type=click.Choice(["blur", "omit"]),
    help="Blur portraits, or omit them. Links to pictures are removed too.",
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

    It needs no network, shows the worst edits first, and links every number to its rows. Figures need
    `pip install "stillme[figures]"`.
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
        if summary.report:
            print_open(summary.report)
        print_next(_next(stages, summary), audit, out=out)
    if summary.ended is Ended.INTERRUPTED:
        sys.exit(_EXIT_INTERRUPTED)
    if summary.ended is Ended.OVER_BUDGET or summary.to_retry:
        sys.exit(_EXIT_RETRY)


def _next(stages: tuple[Name, ...], summary: Summary) -> str:
    """The command after these stages: the same again if something is left, else the one that follows."""
    from stillme.pipeline import Ended

    last = stages[-1]
    if summary.ended is not Ended.COMPLETE or summary.to_retry:
        return last if len(stages) == 1 else "run"
    return {"edit": "judge", "judge": "estimate", "estimate": "report", "report": "tables"}[last]
