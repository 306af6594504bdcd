"""Commands that bring in what was made elsewhere: import judgements."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from stillme.cli.options import json_option, out_option, pairs_of, print_json, print_next
from stillme.cli.terminal import echo


@click.group("import")
def import_() -> None:
    """Bring in what was made elsewhere."""


@import_.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--audit", type=click.Path(path_type=Path), default=".", show_default=True, help="Whose edits they rate.")
@click.option("--judge", required=True, metavar="NAME", help="Who gave the scores, by the name in audit.toml.")
@click.option(
    "--declare",
    type=click.Choice(["model", "instrument", "person"]),
    help="Add the judge to audit.toml if it is not there, as one of this kind.",
)
@click.option("--map", "names", multiple=True, metavar="OURS=THEIRS", help="A column, or an axis, under its own name.")
@click.option("--set", "fixed", multiple=True, metavar="OURS=VALUE", help="What holds for all rows, as in arm=feature.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Take only rows that have this.")
@click.option("--ignore", "ignored", multiple=True, metavar="COLUMN", help="Do not read this column; may be repeated.")
@click.option("--wait", type=float, default=0.0, metavar="SECONDS", help="Wait so long if another process is writing.")
@out_option
@json_option
def judgements(
    file: Path,
    audit: Path,
    judge: str,
    declare: Literal["model", "instrument", "person"] | None,
    names: tuple[str, ...],
    fixed: tuple[str, ...],
    where: tuple[str, ...],
    ignored: tuple[str, ...],
    wait: float,
    out: Path | None,
    as_json: bool,
) -> None:
    r"""Import scores made elsewhere, as a judge of their own.

    FILE is .csv, .jsonl or .parquet. A row names its edit by `edit` (the key in `stillme export`) or by `portrait`
    and `prompt`. If the audit has several, it also has `editor`, `arm` and `seed`. Scores are in one column per axis,
    or in one row each with `axis` and `score`. Several answers about one edit need `rater` or `epoch`.

    \b
    stillme import judgements scores.csv --audit my-audit --judge raters --declare person \
        --map portrait=image_id --map race_change="Race drift" --set arm=baseline

    Every bad row is reported with its line, and then nothing is imported. So is a column that looks like a misspelt
    name, and an axis of the judge without any score. Importing the same file again does nothing.
    """
    from stillme.exchange import ColumnMapping, import_judgements

    mapping = ColumnMapping(
        names=pairs_of("--map", names),
        fixed=pairs_of("--set", fixed),
        where=pairs_of("--where", where),
        ignored=ignored,
    )
    summary = import_judgements(file, audit, judge, mapping, out=out, declare=declare, wait=wait)
    if as_json:
        print_json(summary.as_json())
    else:
        echo(summary.as_text())
        print_next("estimate", audit, out=out)
