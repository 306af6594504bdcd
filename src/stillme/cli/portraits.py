"""Commands about source portraits: sample, import, curate, finalize, verify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import (
    FILE,
    FOLDER,
    Command,
    address_options,
    browser_option,
    json_option,
    print_json,
    print_next,
)
from stillme.cli.terminal import echo
from stillme.core.tables import counted

if TYPE_CHECKING:
    from stillme.curation.versions import Crop, WrittenVersion


# Not a docstring: click keeps these lines apart only after a real backspace character.
_HELP = """Draw, choose, import and verify source portraits.

\b
From FairFace, or any folder with a CSV, to a set that an audit can use:
  stillme portraits sample ~/FairFace pools    candidates over race × gender × age
  stillme portraits curate pools               people choose, blind to pools
  stillme portraits finalize pools my-set      1024 × 1024, hashes, a card: my-set/v1
Or directly from your own pictures:
  stillme portraits import my-pictures my-set
Then, in audit.toml:
  [portraits]
  source = "my-set/v1"
"""


@click.group(help=_HELP)
def portraits() -> None:
    """Source portraits."""


@portraits.command("sample")
@click.argument("source")
@click.argument("pools", type=FOLDER)
@click.option("--by", multiple=True, metavar="ATTRIBUTE", help="Balance over this attribute; may be repeated.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME=VALUE,VALUE",
    help="Use only rows with these values in a column; may be repeated.",
)
@click.option("--pools", "count", default=7, show_default=True, help="How many pools to draw.")
@click.option("--per-cell", default=1, show_default=True, help="Portraits per cell, in each pool.")
@click.option("--seed", default=0, show_default=True, help="The same seed draws the same pools.")
@click.option("--table", type=FILE, help="CSV with a column `file`; by default portraits.csv in SOURCE.")
@click.option("--split", "splits", multiple=True, help="FairFace only: train or val; may be repeated.")
@click.option("--checks/--no-checks", default=True, show_default=True, help="Let instruments check each candidate.")
@json_option
def sample(
    source: str,
    pools: Path,
    by: tuple[str, ...],
    only: tuple[str, ...],
    count: int,
    per_cell: int,
    seed: int,
    table: Path | None,
    splits: tuple[str, ...],
    checks: bool,
    as_json: bool,
) -> None:
    """Draw pools of candidates over a grid of attributes.

    POOLS is a new folder. SOURCE is a copy of FairFace as published, or any folder with a CSV.
    FairFace is a folder with train/, val/ and fairface_label_*.csv; by default it is balanced over the paper's
    7 × 2 × 6 cells. The same rows and seed give the same pools. Pools are disjoint if there are enough pictures.
    Cells that cannot be filled and pictures that cannot be used are listed.
    """
    from stillme.cli.progress import progress
    from stillme.curation.making import sample_pools
    from stillme.curation.pools import SampleOptions
    from stillme.curation.sources import open_source

    options = SampleOptions(by=by, only=_chosen(only), pools=count, per_cell=per_cell, seed=seed)
    opened = open_source(source, table=table, splits=splits)
    with progress(quiet=as_json) as shown:
        drawn = sample_pools(opened, pools, options, check=checks, watch=shown.counter("check"))
    if as_json:
        print_json(drawn)
    else:
        echo(drawn.as_text())
        print_next("portraits", "curate", pools)


def _crop_option(command: Command) -> Command:
    return click.option(
        "--crop",
        type=click.Choice(["face", "centre"]),
        default="face",
        show_default=True,
        help="Cut the largest square in the picture: nearest to the face, or in the middle.",
    )(command)


@portraits.command("curate")
@click.argument("pools", type=FOLDER)
@click.option("--name", "names", multiple=True, help="A curator; each gets a link of their own. May be repeated.")
@click.option("--curators", type=click.IntRange(1, 20), help="How many curators must decide a cell.")
@address_options
@browser_option
def curate(pools: Path, **options: Any) -> None:
    """Choose portraits among candidates, in the browser.

    POOLS comes from `stillme portraits sample`. You see one cell at a time: its candidates in random order,
    without pool names, none preselected. Several people may work at once, each with their own link. No one
    sees another's choice before their own is final; then they settle disagreements. Every action is saved at
    once, so you can stop and resume at any time.
    Needs `pip install "stillme[curate]"`.
    """
    from stillme.web import require

    require("curate")
    from stillme.cli.progress import progress
    from stillme.curation.app import serve

    with progress() as shown:
        serve(pools, say=shown.say, watch=shown.counter("check"), **options)
    print_next("portraits", "finalize", pools, "my-portraits")


@portraits.command("import")
@click.argument("folder", type=FOLDER)
@click.argument("home", type=FOLDER, metavar="DIR")
@click.option("--table", type=FILE, help="CSV with a column `file`; by default portraits.csv in FOLDER.")
@click.option("--licence", default="", help="For rows without one: the terms of use of the picture.")
@click.option("--label-origin", default="", help="For rows without one: who assigned the labels.")
@click.option("--consent", default="", help="For rows without one: what the person agreed to.")
@_crop_option
@json_option
def import_(folder: Path, home: Path, table: Path | None, crop: Crop, as_json: bool, **given: str) -> None:
    """Make a set of portraits from your own pictures.

    Writes DIR/v1, v2 … with hashes and a dataset card. FOLDER holds pictures and a portraits.csv: the column `file`,
    any attributes, and for every picture `licence`, `label_origin` and `consent`. All pictures are used. To choose
    among several, use `stillme portraits sample`.
    """
    from stillme.cli.progress import progress
    from stillme.curation.making import import_portraits

    with progress(quiet=as_json) as shown:
        watch = shown.counter("make")
        written = import_portraits(folder, home, table=table, given=given, crop=crop, say=shown.say, watch=watch)
    _tell(written, as_json)


@portraits.command("finalize")
@click.argument("pools", type=FOLDER)
@click.argument("home", type=FOLDER, metavar="DIR")
@click.option("--partial", is_flag=True, help="Leave out undecided cells; the card lists them.")
@_crop_option
@json_option
def finalize(pools: Path, home: Path, partial: bool, crop: Crop, as_json: bool) -> None:
    """Make a set of portraits from the curators' choices.

    Writes DIR/v1, v2 … with hashes and a dataset card. A version is written completely or not at all, and never
    changed. The same choices again write nothing. The card shows counts per pool and cell, criteria, curators and their
    agreement, terms of use, and light and skin per group.
    """
    from stillme.cli.progress import progress
    from stillme.curation.making import finalize as make

    with progress(quiet=as_json) as shown:
        written = make(pools, home, crop=crop, partial=partial, watch=shown.counter("make"))
    _tell(written, as_json)


@portraits.command("verify")
@click.argument("home", type=FOLDER, metavar="DIR")
@json_option
def verify(home: Path, as_json: bool) -> None:
    """Check that finished portraits are unchanged.

    DIR is one version or a folder of versions. Every file is compared with SHA256SUMS, and every picture is
    checked for size and metadata. Exits with 1 if anything is wrong.
    """
    from stillme.curation.versions import verify as check

    versions = check(home)
    if as_json:
        print_json(versions)
    else:
        for version in versions:
            echo(f"{version.folder}: {counted(version.files, 'file')}, {'; '.join(version.problems) or 'unchanged.'}")
        print_next("list", "portraits", versions[-1].folder, "--sheet", "portraits.html")
    if any(version.problems for version in versions):
        sys.exit(1)


def _chosen(only: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    chosen: dict[str, tuple[str, ...]] = {}
    for option in only:
        name, equals, values = option.partition("=")
        if not (name and equals and values):
            raise click.UsageError(f"--only takes NAME=VALUE,VALUE, not {option!r}.")
        chosen[name] = (*chosen.get(name, ()), *values.split(","))
    return chosen


def _tell(written: WrittenVersion, as_json: bool) -> None:
    if as_json:
        print_json(written)
        return
    if not written.new:
        echo(f"{written.folder} already is this set; nothing was written.")
        return
    echo(
        f"Wrote {written.folder}: {counted(written.portraits, 'portrait')}. Its card is {written.folder / 'card.html'}."
    )
    echo(f'In audit.toml: [portraits] source = "{written.folder}"')
    print_next("portraits", "verify", written.folder)
