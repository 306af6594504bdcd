"""The command that unites runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stillme.cli.options import json_option, print_json, print_next
from stillme.cli.terminal import echo


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), required=True, help="The run to add to.")
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
        print_json(merging.as_json(merged, into))
    else:
        echo(merging.as_text(merged, into))
        print_next("run", into, "--only", "estimate")
    if merged.conflicts or merged.lost:
        sys.exit(1)
