"""Commands that bring in what was made elsewhere: import judgements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from stillme.cli.options import json_option, out_option, pairs_of, print_json, print_next
from stillme.cli.terminal import echo
from stillme.errors import StillmeError

if TYPE_CHECKING:
    from stillme.exchange import ColumnMapping


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
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Take only rows that have this; the same column again means or, COLUMN!=VALUE leaves rows out.",
)
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
    from stillme.exchange import import_judgements

    mapping = _mapping(names, fixed, where, ignored)
    summary = import_judgements(file, audit, judge, mapping, out=out, declare=declare, wait=wait)
    if as_json:
        print_json(summary.as_json())
    else:
        echo(summary.as_text())
        print_next("run", audit, "--only", "estimate", out=out)


@import_.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--into", required=True, type=click.Path(path_type=Path), metavar="RUN", help="The run that is made.")
@click.option(
    "--group", "groups", multiple=True, metavar="COLUMN", help="Attribute of the portraits to compare; may be repeated."
)
@click.option("--people", multiple=True, metavar="JUDGE", help="This judge is people; may be repeated.")
@click.option("--reference", multiple=True, metavar="COLUMN=LEVEL", help="The group that others are compared with.")
@click.option("--map", "names", multiple=True, metavar="OURS=THEIRS", help="A column, or an axis, under its own name.")
@click.option("--set", "fixed", multiple=True, metavar="OURS=VALUE", help="What holds for all rows.")
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Take only rows that have this; the same column again means or, COLUMN!=VALUE leaves rows out.",
)
@click.option("--ignore", "ignored", multiple=True, metavar="COLUMN", help="Do not read this column; may be repeated.")
@click.option("--title", default="", help="The run's title.")
@click.option(
    "--confidence", type=click.FloatRange(0.5, 1, max_open=True), default=0.95, show_default=True, help="Of intervals."
)
@json_option
def rows(
    file: Path,
    into: Path,
    groups: tuple[str, ...],
    people: tuple[str, ...],
    reference: tuple[str, ...],
    names: tuple[str, ...],
    fixed: tuple[str, ...],
    where: tuple[str, ...],
    ignored: tuple[str, ...],
    title: str,
    confidence: float,
    as_json: bool,
) -> None:
    r"""Make a run of finished scores: no audit.toml, editor or picture is needed.

    FILE is .csv, .jsonl or .parquet with one row for each edit and judge. It has the columns `portrait`, the groups,
    and scores named like the rubric's axes, or `axis` and `score`. Further columns are `editor`, `prompt`, `arm`,
    `seed`, `judge`, `rater` and `block`. `state` is edited, refused or failed.

    \b
    stillme import rows scores.csv --into my-run --group race --group gender \
        --map portrait=image_id --map race_change="Race drift" --people raters

    Then `stillme run --only estimate`, `tables`, `report`, `compare` and `gate` work on the run as on any other.
    Every bad row is reported with its line, and then nothing is imported.
    """
    from stillme.exchange import RowsAsked, import_rows

    asked = RowsAsked(
        groups=tuple(dict.fromkeys(groups)),
        people=people,
        reference=pairs_of("--reference", reference),
        title=title,
        confidence=confidence,
    )
    mapping = _mapping(names, fixed, where, ignored)
    summary = import_rows(file, into, asked, mapping, watch=lambda done: echo(f"{done:,} rows read", err=True))
    if as_json:
        print_json(summary.as_json())
    else:
        echo(summary.as_text())
        print_next("run", into, "--only", "estimate")


def _mapping(
    names: tuple[str, ...], fixed: tuple[str, ...], where: tuple[str, ...], ignored: tuple[str, ...]
) -> ColumnMapping:
    from stillme.exchange import ColumnMapping

    wanted: dict[str, tuple[str, ...]] = {}
    unwanted: dict[str, tuple[str, ...]] = {}
    for text in where:
        name, equals, value = text.partition("=")
        conditions = unwanted if name.endswith("!") else wanted
        name = name.removesuffix("!")
        if not (name and equals):
            raise StillmeError(f"--where {text!r} is neither COLUMN=VALUE nor COLUMN!=VALUE.")
        conditions[name] = (*conditions.get(name, ()), value)
    return ColumnMapping(
        names=pairs_of("--map", names),
        fixed=pairs_of("--set", fixed),
        where=wanted,
        unless=unwanted,
        ignored=ignored,
    )
