"""Commands that bring in what was made elsewhere: import judgements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from stillme.cli.options import json_option, out_option, print_json
from stillme.errors import StillmeError


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
    wait: float,
    out: Path | None,
    as_json: bool,
) -> None:
    r"""Import scores made elsewhere, as a judge of their own.

    FILE is .csv, .jsonl or .parquet. A row names its edit by `edit` (the key in `stillme export`) or by `portrait`
    and `prompt`, and by `editor`, `arm` and `seed` where the audit has several. Scores stand in one column per axis,
    or one row each with `axis` and `score`; several answers about one edit are told apart by `rater` or `epoch`.

    \b
    stillme import judgements scores.csv --audit my-audit --judge raters --declare person \
        --map portrait=image_id --map race_change="Race drift" --set arm=baseline

    Every bad row is reported with its line, and then nothing is imported. Importing the same file again does nothing.
    """
    from stillme.exchange import Choice, import_judgements

    choice = Choice(names=_pairs("--map", names), fixed=_pairs("--set", fixed), where=_pairs("--where", where))
    found = import_judgements(file, audit, judge, choice, out=out, declare=declare, wait=wait)
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(f"{found.as_text()}\nNext: stillme estimate {audit}")


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise StillmeError(f"{option} {each!r} is not NAME=VALUE.")
        if name in pairs:
            raise StillmeError(f"{option} names {name!r} twice.")
        pairs[name] = value
    return pairs
