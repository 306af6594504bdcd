"""Commands about source portraits: sample, import, curate, finalize, verify."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import Command, json_option, print_json

if TYPE_CHECKING:
    from stillme.cli.progress import Progress
    from stillme.curation.squares import Crop
    from stillme.curation.versions import Written

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


# Not a docstring: click keeps these lines apart only after a real backspace character.
_HELP = """Source portraits: draw candidates, choose among them, finalize, verify.

\b
From FairFace, or any folder with a CSV, to a set that an audit can use:
  stillme portraits sample ~/FairFace pools    candidates over race × gender × age
  stillme curate pools                         people choose, blind to pools
  stillme portraits finalize pools my-set      1024 × 1024, hashes, a card: my-set/v1
Or straight from pictures of your own:
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
@click.argument("pools", type=_FOLDER)
@click.option("--by", multiple=True, metavar="ATTRIBUTE", help="Cross this attribute; may be repeated.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME=VALUE,VALUE",
    help="Take only these levels of an attribute, or rows with these values in any column; may be repeated.",
)
@click.option("--pools", "count", default=7, show_default=True, help="How many pools to draw.")
@click.option("--per-cell", default=1, show_default=True, help="Portraits wanted per cell; each pool holds so many.")
@click.option("--seed", default=0, show_default=True, help="Another seed, other pools; the same seed, the same.")
@click.option("--table", type=_FILE, help="The CSV, with a column `file`; by default portraits.csv in SOURCE.")
@click.option("--split", "splits", multiple=True, help="FairFace or hub: train, val …; may be repeated.")
@click.option("--configuration", default="1.25", show_default=True, help="Hub only: the dataset's configuration.")
@click.option("--checks/--no-checks", default=True, show_default=True, help="Have instruments look at each candidate.")
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
    configuration: str,
    checks: bool,
    as_json: bool,
) -> None:
    """Draw pools of candidates over a grid of attributes into the new folder POOLS.

    SOURCE is a copy of FairFace as published (train/, val/ and fairface_label_*.csv; crossed over the paper's
    7 × 2 × 6 unless told otherwise), any folder with a CSV, or hf:REPO with the `datasets` library. The same
    rows and seed give the same pools; pools are disjoint where there are enough pictures. Cells that cannot be
    filled and pictures that cannot be used are listed.
    """
    from stillme.cli.progress import progress
    from stillme.curation.drawing import SampleOptions
    from stillme.curation.making import sample_pools
    from stillme.curation.sources import open_source

    options = SampleOptions(by=by, only=_chosen(only), pools=count, per_cell=per_cell, seed=seed)
    opened = open_source(source, table=table, splits=splits, configuration=configuration)
    with progress(quiet=as_json) as shown:
        drawn = sample_pools(opened, pools, options, check=checks, say=shown.say, watch=_watch(shown, "check"))
    if as_json:
        print_json(drawn.as_json())
    else:
        click.echo(drawn.as_text())


def _crop_option(command: Command) -> Command:
    return click.option(
        "--crop",
        type=click.Choice(["face", "centre"]),
        default="face",
        show_default=True,
        help="Cut the largest square inside of the picture, nearest to the face or in the middle.",
    )(command)


@portraits.command("import")
@click.argument("folder", type=_FOLDER)
@click.argument("home", type=_FOLDER, metavar="DIR")
@click.option("--table", type=_FILE, help="The CSV, with a column `file`; by default portraits.csv in FOLDER.")
@click.option("--licence", default="", help="For rows without one: under which terms a picture may be used.")
@click.option("--label-origin", default="", help="For rows without one: who gave the labels.")
@click.option("--consent", default="", help="For rows without one: what the person agreed to.")
@_crop_option
@json_option
def import_(
    folder: Path,
    home: Path,
    table: Path | None,
    licence: str,
    label_origin: str,
    consent: str,
    crop: Crop,
    as_json: bool,
) -> None:
    """Make a set of portraits of your own pictures: DIR/v1, v2 … with hashes and a dataset card.

    FOLDER holds pictures and a portraits.csv: the column `file`, any attributes, and for every picture
    `licence`, `label_origin` and `consent`. All pictures are taken; to choose among several, use
    `stillme portraits sample`.
    """
    from stillme.cli.progress import progress
    from stillme.curation.making import import_portraits

    given = {"licence": licence, "label_origin": label_origin, "consent": consent}
    with progress(quiet=as_json) as shown:
        watch = _watch(shown, "make")
        written = import_portraits(folder, home, table=table, given=given, crop=crop, watch=watch)
    _tell(written, as_json)


@portraits.command("finalize")
@click.argument("pools", type=_FOLDER)
@click.argument("home", type=_FOLDER, metavar="DIR")
@click.option("--partial", is_flag=True, help="Leave out cells that are not decided; the card lists them.")
@_crop_option
@json_option
def finalize(pools: Path, home: Path, partial: bool, crop: Crop, as_json: bool) -> None:
    """Make a set of portraits of what the curators chose: DIR/v1, v2 … with hashes and a dataset card.

    A version is written whole or not at all and never changed; the same choice again writes nothing. The card
    shows counts per pool and cell, criteria, curators and their agreement, terms, and light and skin per group.
    """
    from stillme.cli.progress import progress
    from stillme.curation.making import finalize as make

    with progress(quiet=as_json) as shown:
        written = make(pools, home, crop=crop, partial=partial, watch=_watch(shown, "make"))
    _tell(written, as_json)


@portraits.command("verify")
@click.argument("home", type=_FOLDER, metavar="DIR")
@json_option
def verify(home: Path, as_json: bool) -> None:
    """Check that finished portraits are still what was written.

    DIR is one version or a folder of versions. Every file is compared with SHA256SUMS, every picture decoded
    and looked at for size and metadata. Exits with 1 if anything is wrong.
    """
    from stillme.curation.verifying import verify as check

    found = check(home)
    if as_json:
        print_json([each.as_json() for each in found])
    else:
        for each in found:
            click.echo(f"{each.folder}: {each.files} files, {'; '.join(each.problems) or 'all as written.'}")
    if any(each.problems for each in found):
        sys.exit(1)


@click.command()
@click.argument("pools", type=_FOLDER)
@click.option("--curators", type=click.IntRange(1, 20), help="How many must decide a cell before it counts.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines in, with the key.")
@click.option("--port", type=int, help="By default the first free one from 8470.")
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page.")
def curate(pools: Path, curators: int | None, host: str, port: int | None, browser: bool) -> None:
    """Choose portraits among candidates, in the browser.

    POOLS is what `stillme portraits sample` made. One cell at a time, candidates side by side in an order of
    your own, without pool names; nothing is ticked beforehand. Several people may work at once, each under
    their name; what they disagree on is settled on a page of its own. Every action is kept at once: stop and
    start again at will. Needs `pip install "stillme[curate]"`.
    """
    from stillme.web import require

    require("curate")
    from stillme.cli.progress import progress
    from stillme.curation.pages.serving import serve

    with progress() as shown:
        serve(
            pools,
            curators=curators,
            host=host,
            port=port,
            browser=browser,
            say=shown.say,
            watch=_watch(shown, "check"),
        )


def _chosen(only: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    chosen: dict[str, tuple[str, ...]] = {}
    for each in only:
        name, equals, values = each.partition("=")
        if not (name and equals and values):
            raise click.UsageError(f"--only takes NAME=VALUE,VALUE, not {each!r}.")
        chosen[name] = (*chosen.get(name, ()), *values.split(","))
    return chosen


def _watch(shown: Progress, name: str) -> Callable[[int, int], None]:
    from stillme.stages.loop import Tally

    tally = Tally(name=name, total=0)

    def watch(done: int, total: int) -> None:
        tally.total = total
        tally.counts["done"] = done
        shown(tally)

    return watch


def _tell(written: Written, as_json: bool) -> None:
    if as_json:
        print_json(written.as_json())
        return
    if not written.new:
        click.echo(f"{written.folder} already is this very set; nothing was written.")
        return
    click.echo(f"Wrote {written.folder}: {written.portraits} portraits. Look at {written.folder / 'card.html'}.")
    if written.flagged:
        click.echo(f"Groups differ in: {', '.join(written.flagged)}. The card shows how far.", err=True)
    click.echo(f'In audit.toml: [portraits] source = "{written.folder}"')
