"""Commands that make a run and show it: run, report, serve, merge."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import (
    FOLDER,
    PATH,
    REDACTIONS,
    Command,
    audit_argument,
    browser_option,
    json_option,
    out_option,
    print_json,
    print_next,
    print_open,
)
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.api.pipeline import Name, RunOptions, RunResult
    from stillme.core.types import Redaction
    from stillme.work.shards import Shard


_EXIT_RETRY = 3


def _stage_options(command: Command) -> Command:
    """Options of the commands that work on an audit."""
    for option in (
        json_option,
        click.option("--allow-changes", is_flag=True, help="Continue even if audit.toml changed and work is redone."),
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
@click.option("--only", type=click.Choice(["edit", "judge", "estimate"]), help="Do this stage alone.")
@click.option(
    "--retry-failed",
    "only_failed",
    is_flag=True,
    help="Do only what failed before. Without it, failures are tried again after everything else.",
)
@click.option("--allow-failures", is_flag=True, help="Continue even if the first ten calls fail the same way.")
@click.option(
    "--allow-unknown-cost", is_flag=True, help="Run even if a price is unknown. The budget cannot be enforced."
)
@click.option(
    "--allow-remake", "remake", is_flag=True, help="Make edits again whose picture was lost, even if that costs money."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Do only the first N requests of each editor, judge them, and show the answers: a test before the whole run.",
)
@click.option(
    "--shard",
    metavar="I/N",
    help="Do one of N parts, counted from 1, in a run folder of its own; `stillme merge` unites them.",
)
def run(audit: Path, as_json: bool, only: Name | None, shard: str | None, **options: Any) -> None:
    """Edit, judge, estimate and report: the whole audit.

    AUDIT is a folder with an audit.toml, or the file; by default the current folder. Finished work is not
    done again; what failed is tried again. Ctrl-C once finishes what is running and saves; twice stops
    at once. Exits with 3 if something is left to do.
    """
    from stillme.work.options import RunOptions
    from stillme.work.shards import parse_shard

    stages: tuple[Name, ...] = (only,) if only else ("edit", "judge", "estimate", "report")
    _work(audit, stages, RunOptions(shard=parse_shard(shard) if shard else None, **options), as_json)


@click.command()
@_stage_options
@click.option("--redact", type=REDACTIONS, help="Blur portraits, or omit them. Links to pictures are removed too.")
@click.option("--judge", default="", help="Whose scores the first screen and the drawings show, such as people.")
def report(audit: Path, as_json: bool, redact: Redaction | None, **options: Any) -> None:
    """Write report.html: one self-contained page.

    It needs no network, shows the worst edits first, and links every number to its rows.
    """
    from stillme.work.options import RunOptions

    _work(audit, ("report",), RunOptions(redact=redact or "none", **options), as_json)


def _work(audit: Path, stages: tuple[Name, ...], options: RunOptions, as_json: bool) -> None:
    from stillme.api.pipeline import Ended, run_stages
    from stillme.cli.progress import progress

    with progress(quiet=as_json) as display:
        summary = run_stages(audit, stages, replace(options, watch=display, say=display.say))
    out = options.out
    if as_json:
        print_json(summary)
    else:
        echo(summary.as_text())
        if summary.report:
            print_open(summary.report)
        if options.shard:
            _print_next_of_shards(options.shard, stages, summary, audit, out)
        else:
            verb, *rest = ("run",) if options.limit else _next(stages, summary)
            print_next(verb, audit, *rest, out=out)
    if summary.ended is Ended.INTERRUPTED:
        from stillme.work.interrupt import exit_code

        sys.exit(exit_code())
    if not summary.finished:
        sys.exit(_EXIT_RETRY)


def _print_next_of_shards(
    shard: Shard, stages: tuple[Name, ...], summary: RunResult, audit: Path, out: Path | None
) -> None:
    """This shard again if something is left, else one that was not started, else uniting them all."""
    only = _only(stages)
    if not summary.finished:
        print_next("run", audit, *only, "--shard", str(shard), out=out)
    elif out is not None:
        print_next("merge", summary.folder, "--into", audit)
    elif missing := [other for other in shard.all if not summary.folder.with_name(other.folder_name).is_dir()]:
        print_next("run", audit, *only, "--shard", str(missing[0]))
    else:
        folders = [summary.folder.with_name(other.folder_name) for other in shard.all]
        print_next("merge", *folders, "--into", audit)


def _only(stages: tuple[Name, ...]) -> tuple[str, ...]:
    return ("--only", stages[0]) if len(stages) == 1 else ()


def _next(stages: tuple[Name, ...], summary: RunResult) -> tuple[str, ...]:
    """The command after these stages: the same again if something is left, else the one that follows."""
    last = stages[-1]
    if last == "report":
        return ("tables",) if summary.finished else ("run",)
    if not summary.finished:
        return "run", *_only(stages)
    follows: Mapping[Name, Name] = {"edit": "judge", "judge": "estimate"}
    return ("run", "--only", follows[last]) if last in follows else ("report",)


@click.command()
@audit_argument
@out_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; by default this machine only."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8777, show_default=True, help="0 takes any free one.")
@click.option("--redact", type=REDACTIONS, help="Blur portraits, or leave them out.")
@browser_option
@json_option
def serve(
    audit: Path, out: Path | None, host: str, port: int, redact: Redaction | None, browser: bool, as_json: bool
) -> None:
    """Show the report in a browser while the run is in progress.

    Ctrl-C ends it. The page refreshes as rows come in; a button shows the newer numbers. Nothing is written, so the run
    is never disturbed. Only this machine can connect. With another --host, that network can see the portraits.
    """
    import webbrowser

    from stillme.core.addresses import is_loopback
    from stillme.report.server import Served
    from stillme.report.server import serve as serve_report

    def ready(address: str) -> None:
        if as_json:
            print_json({"address": address})
        else:
            echo(f"{address}  (Ctrl-C ends it)")
        if browser and sys.stdout.isatty():  # in a script no one looks
            webbrowser.open(address)
        if not is_loopback(host) and redact is None:
            echo(f"Anyone who can reach {host} sees the portraits; --redact blur hides them.", err=True)

    serve_report(Served(path=audit, out=out, redact=redact or "none", host=host, port=port), ready)


@click.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@click.option("--into", type=FOLDER, required=True, help="The run to add to.")
@json_option
def merge(runs: tuple[Path, ...], into: Path, as_json: bool) -> None:
    """Add the rows and pictures of RUNS to one run.

    RUNS are shards of one audit, or other runs of it.

    Rows are added by key and never changed; the same merge twice adds nothing. Where two runs have
    different results for the same work, the first counts, the other is named, and the exit code is 1.
    Runs of different audits are refused.
    """
    from stillme.runs.store import merging

    merged = merging.merge(runs, into)
    if as_json:
        print_json({"folder": into, **asdict(merged)})
    else:
        echo(merging.as_text(merged, into))
        print_next("run", into, "--only", "estimate")
    if merged.conflicts or merged.lost_pictures:
        sys.exit(1)
