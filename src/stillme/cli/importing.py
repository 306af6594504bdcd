"""The command that brings in scores made elsewhere: import rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import json_option, out_option, pairs_of, print_json, print_next
from stillme.cli.terminal import echo
from stillme.core.errors import StillmeError

if TYPE_CHECKING:
    from stillme.findings.exchange import ColumnMapping


@click.group("import")
def import_() -> None:
    """Bring in what was made elsewhere."""


@import_.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="An audit whose edits were rated, a run of rows to add to, or a new folder.",
)
@click.option(
    "--group", "groups", multiple=True, metavar="COLUMN", help="Attribute of the portraits to compare; may be repeated."
)
@click.option("--people", multiple=True, metavar="JUDGE", help="This judge is human raters; may be repeated.")
@click.option("--instrument", "instruments", multiple=True, metavar="JUDGE", help="This judge measures.")
@click.option(
    "--model", "models", multiple=True, metavar="JUDGE", help="This judge is a model, as all are that are not named."
)
@click.option("--reference", multiple=True, metavar="COLUMN=LEVEL", help="The group that others are compared with.")
@click.option(
    "--ensemble",
    "rule",
    type=click.Choice(["mean", "paper", "code", "median", "worst"]),
    help="How models are combined: mean unless set; `paper` is Eq. 3.",
)
@click.option(
    "--primary", default="", metavar="JUDGE", help="With `paper` or `code`: the model that decides beyond a point."
)
@click.option(
    "--paper",
    multiple=True,
    metavar="EDITOR=NAME",
    help="Which of the paper's editors this one is, such as ours=flux2-dev, where its name does not say.",
)
@click.option(
    "--race-cut",
    type=click.IntRange(2, 5),
    help="From which score on the paper's Tables 19 and 20 count a race as changed: 3 unless set.",
)
@click.option(
    "--map",
    "names",
    multiple=True,
    metavar="OURS=THEIRS",
    help="A column, or an axis, under its own name; ARM.AXIS=COLUMN where a row has two arms.",
)
@click.option(
    "--set", "fixed", multiple=True, metavar="OURS=VALUE", help="What holds for all rows, as in judge=raters."
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Take only rows that have this; the same column again means or, COLUMN!=VALUE leaves rows out.",
)
@click.option("--ignore", "ignored", multiple=True, metavar="COLUMN", help="Do not read this column; may be repeated.")
@click.option("--title", default="", help="The run's title.")
@click.option("--confidence", type=click.FloatRange(0.5, 1, max_open=True), help="Of intervals: 0.95 unless set.")
@click.option("--wait", type=float, default=0.0, metavar="SECONDS", help="Wait so long if another process is writing.")
@out_option
@json_option
def rows(
    file: Path,
    into: Path,
    groups: tuple[str, ...],
    people: tuple[str, ...],
    instruments: tuple[str, ...],
    models: tuple[str, ...],
    reference: tuple[str, ...],
    rule: str | None,
    primary: str,
    paper: tuple[str, ...],
    race_cut: int | None,
    names: tuple[str, ...],
    fixed: tuple[str, ...],
    where: tuple[str, ...],
    ignored: tuple[str, ...],
    title: str,
    confidence: float | None,
    wait: float,
    out: Path | None,
    as_json: bool,
) -> None:
    r"""Import scores made elsewhere: as a run without an audit, or for the edits of an audit.

    FILE is .csv, .json, .jsonl or .parquet with one row for each edit and judge. It has the columns `portrait`, the
    groups, and scores named like the rubric's axes, or `axis` and `score`. Further columns are `editor`, `prompt`,
    `arm`, `seed`, `judge`, `rater` or `epoch`, `block`, and `state`: edited, refused or failed. The paper's prompts
    are known by id or `prompt_text`. Others are described by `category`, `subcategory` and `years` (an aging prompt's
    offset), role prompts by `target` and `stereotype`. Two people in one request are written `a+b`.

    \b
    stillme import rows scores.csv --into my-run --group race --group gender \
        --map portrait=image_id --map race_change="Race drift" --people raters
    stillme import rows both-arms.csv --into my-run \
        --map baseline.race_change=edited_race --map feature.race_change=preserved_race
    stillme import rows ratings.csv --into my-audit --set judge=raters --people raters

    A further file adds to the run. In an audit, rows name its edits by `portrait` and `prompt`, or by `edit` (the key
    in `stillme export`). A judge that audit.toml does not have is added to it. Every bad row is reported with its line,
    and then nothing is imported. Importing the same file again does nothing.
    """
    from stillme.findings.exchange import RowsAsked, import_rows

    asked = RowsAsked(
        groups=tuple(dict.fromkeys(groups)),
        people=people,
        instruments=instruments,
        models=models,
        reference=pairs_of("--reference", reference),
        title=title,
        confidence=confidence,
        rule=rule or "",
        primary=primary,
        paper=pairs_of("--paper", paper),
        race_cut=race_cut,
    )
    mapping = _mapping(names, fixed, where, ignored)

    def watch(done: int) -> None:
        echo(f"{done:,} rows read", err=True)

    summary = import_rows(file, into, asked, mapping, out=out, wait=wait, watch=watch)
    if as_json:
        print_json(summary.as_json())
    else:
        echo(summary.as_text())
        print_next("run", into, "--only", "estimate", out=out)


def _mapping(
    names: tuple[str, ...], fixed: tuple[str, ...], where: tuple[str, ...], ignored: tuple[str, ...]
) -> ColumnMapping:
    from stillme.findings.exchange import ColumnMapping

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
