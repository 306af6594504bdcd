"""Commands that work: run, and each of its stages alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import Command, audit_argument, json_option, out_option, print_json, print_next, print_open
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.pipeline import Name, Summary
    from stillme.report.data import Redaction
    from stillme.stages.shards import Shard

_EXIT_RETRY = 3
_EXIT_INTERRUPTED = 130


def _work_options(command: Command) -> Command:
    """Options of the commands that edit or judge."""
    for option in (
        click.option(
            "--retry-failed",
            is_flag=True,
            help="Do only what failed before. Without it, failures are tried again after everything else.",
        ),
        click.option(
            "--keep-going",
            is_flag=True,
            help="Go on although the first answers all fail alike, which otherwise stops an editor or judge.",
        ),
        click.option(
            "--unknown-cost-ok",
            is_flag=True,
            help="Work although a price is unknown, so that the dollars in [budget] cannot be kept.",
        ),
        click.option(
            "--remake",
            is_flag=True,
            help="Make edits again whose picture was lost, also where that costs money.",
        ),
        click.option(
            "--shard",
            metavar="I/N",
            help="Do one of N parts, counted from 1, in a run folder of its own; `stillme merge` unites them.",
        ),
    ):
        command = option(command)
    return _stage_options(command)


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
@_work_options
def run(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    retry_failed: bool,
    keep_going: bool,
    unknown_cost_ok: bool,
    remake: bool,
    shard: str | None,
) -> None:
    """Edit, judge, estimate and report: the whole audit.

    AUDIT is a folder with an audit.toml, or the file; by default the current folder. Finished work is not
    done again; what failed is tried again. Ctrl-C once finishes what is running and saves; twice stops
    at once. Exits with 3 if something is left to do.
    """
    manner = _Manner(
        retry_failed=retry_failed, keep_going=keep_going, unknown_cost_ok=unknown_cost_ok, remake=remake, shard=shard
    )
    _work(audit, out, wait, accept_changes, as_json, ("edit", "judge", "estimate", "report"), manner=manner)


@click.command()
@_work_options
def edit(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    retry_failed: bool,
    keep_going: bool,
    unknown_cost_ok: bool,
    remake: bool,
    shard: str | None,
) -> None:
    """Make the missing edits."""
    manner = _Manner(
        retry_failed=retry_failed, keep_going=keep_going, unknown_cost_ok=unknown_cost_ok, remake=remake, shard=shard
    )
    _work(audit, out, wait, accept_changes, as_json, ("edit",), manner=manner)


@click.command()
@_work_options
def judge(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    retry_failed: bool,
    keep_going: bool,
    unknown_cost_ok: bool,
    remake: bool,
    shard: str | None,
) -> None:
    """Rate the edits that judges have not rated yet."""
    manner = _Manner(
        retry_failed=retry_failed, keep_going=keep_going, unknown_cost_ok=unknown_cost_ok, remake=remake, shard=shard
    )
    _work(audit, out, wait, accept_changes, as_json, ("judge",), manner=manner)


@click.command()
@_stage_options
def estimate(audit: Path, out: Path | None, wait: float, accept_changes: bool, as_json: bool) -> None:
    """Compute the estimates from the rows and write tables/*.csv."""
    _work(audit, out, wait, accept_changes, as_json, ("estimate",))


@click.command()
@_stage_options
@click.option(
    "--redact",
    type=click.Choice(["blur", "omit"]),
    help="Blur portraits, or omit them. Links to pictures are removed too.",
)
@click.option("--judge", default="", help="Whose scores the first screen and the drawings show, such as people.")
def report(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    redact: Redaction | None,
    judge: str,
) -> None:
    """Write report.html: one self-contained page.

    It needs no network, shows the worst edits first, and links every number to its rows.
    """
    shown = _Shown(redact=redact or "none", judge=judge)
    _work(audit, out, wait, accept_changes, as_json, ("report",), shown=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manner:
    retry_failed: bool = False
    keep_going: bool = False
    unknown_cost_ok: bool = False
    remake: bool = False
    shard: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    redact: Redaction = "none"
    judge: str = ""


def _work(
    audit: Path,
    out: Path | None,
    wait: float,
    accept_changes: bool,
    as_json: bool,
    stages: tuple[Name, ...],
    *,
    manner: _Manner | None = None,
    shown: _Shown | None = None,
) -> None:
    from stillme.cli.progress import progress
    from stillme.pipeline import Ended, Options, run_stages
    from stillme.stages.shards import parse_shard

    manner, shown = manner or _Manner(), shown or _Shown()
    with progress(quiet=as_json) as display:
        options = Options(
            out=out,
            wait=wait,
            accept_changes=accept_changes,
            only_failed=manner.retry_failed,
            keep_going=manner.keep_going,
            unknown_cost_ok=manner.unknown_cost_ok,
            remake=manner.remake,
            shard=parse_shard(manner.shard) if manner.shard else None,
            watch=display,
            say=display.say,
            redact=shown.redact,
            judge=shown.judge,
        )
        summary = run_stages(audit, stages, options)
    if as_json:
        print_json(summary.as_json())
    else:
        echo(summary.as_text())
        if summary.report:
            print_open(summary.report)
        if options.shard:
            _print_next_of_shards(options.shard, stages, summary, audit, out)
        else:
            print_next(_next(stages, summary), audit, out=out)
    if summary.ended is Ended.INTERRUPTED:
        sys.exit(_EXIT_INTERRUPTED)
    if not summary.finished:
        sys.exit(_EXIT_RETRY)


def _print_next_of_shards(
    shard: Shard, stages: tuple[Name, ...], summary: Summary, audit: Path, out: Path | None
) -> None:
    """This shard again if something is left, else one that was not started, else uniting them all."""
    verb = stages[-1] if len(stages) == 1 else "run"
    if not summary.finished:
        print_next(verb, audit, "--shard", str(shard), out=out)
    elif out is not None:
        print_next("merge", summary.folder, "--into", audit)
    elif missing := [other for other in shard.all if not summary.folder.with_name(other.folder_name).is_dir()]:
        print_next(verb, audit, "--shard", str(missing[0]))
    else:
        folders = [summary.folder.with_name(other.folder_name) for other in shard.all]
        print_next("merge", *folders, "--into", audit)


def _next(stages: tuple[Name, ...], summary: Summary) -> str:
    """The command after these stages: the same again if something is left, else the one that follows."""
    last = stages[-1]
    if not summary.finished:
        return last if len(stages) == 1 else "run"
    return {"edit": "judge", "judge": "estimate", "estimate": "report", "report": "tables"}[last]
