"""Commands between a run and other programs: export rows, bundles, figures and model cards; import rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import (
    FILE,
    FOLDER,
    PATH,
    REDACTIONS,
    RULES,
    audit_argument,
    json_option,
    opened_run,
    out_option,
    pairs_of,
    print_json,
    print_next,
    print_next_bundle,
    print_written,
)
from stillme.cli.terminal import echo
from stillme.core.errors import StillmeError

if TYPE_CHECKING:
    from stillme.core.types import Redaction
    from stillme.findings.exchange import ColumnMapping


_FORMATS = ("csv", "jsonl", "parquet")


@click.command()
@audit_argument
@out_option
@click.option(
    "--rows",
    "kind",
    type=click.Choice(_FORMATS),
    help="Edits, judgements and the rest of the rows in this format, with a codebook; by default csv.",
)
@click.option("--to", type=FOLDER, help="Folder; by default `export` in the run.")
@click.option(
    "--bundle",
    type=FILE,
    metavar="FILE",
    help="Write one sealed .zip file instead, for `stillme verify`.",
)
@click.option("--with-images", is_flag=True, help="Include portraits and edited pictures in the bundle.")
@click.option("--sign", type=FILE, metavar="KEY", help="Sign the bundle with an SSH private key; writes FILE.sig.")
@click.option(
    "--figures",
    type=FOLDER,
    metavar="DIR",
    help="Write the report's drawings as SVG into DIR instead.",
)
@click.option("--redact", type=REDACTIONS, help="With --figures: blur portraits, or omit their pictures.")
@click.option("--judge", default="", help="With --figures: whose scores are drawn, such as people.")
@click.option("--model-card", is_flag=True, help="Write a Markdown section for each editor's model card instead.")
@json_option
def export(
    audit: Path,
    out: Path | None,
    kind: str | None,
    to: Path | None,
    bundle: Path | None,
    with_images: bool,
    sign: Path | None,
    figures: Path | None,
    redact: Redaction | None,
    judge: str,
    model_card: bool,
    as_json: bool,
) -> None:
    """Write a run's rows, a sealed bundle, figures or a model card.

    A bundle holds a copy of the run's database, tables, report and a hash of each file. Raters are not named in it. The
    root hash that is printed covers all of it. The same rows give the same bytes.
    """
    if bundle:
        if to or model_card or kind or figures:
            raise click.UsageError(
                "--bundle writes one file of its own; leave --to, --rows, --figures and --model-card out."
            )
        _seal(audit, out, bundle, with_images=with_images, sign=sign, as_json=as_json)
        return
    if with_images or sign:
        raise click.UsageError("--with-images and --sign only work with --bundle.")
    if model_card and kind:
        raise click.UsageError("--rows and --model-card are two exports; give one of them.")
    if figures:
        if to or model_card or kind:
            raise click.UsageError("--figures has its own folder; leave --to, --rows and --model-card out.")
        _draw(audit, out, figures, redact=redact or "none", judge=judge, as_json=as_json)
        return
    if redact or judge:
        raise click.UsageError("--redact and --judge only work with --figures.")
    with opened_run(audit, out) as run:
        if model_card:
            from stillme.report.model_card import model_cards

            written = model_cards(run, to)
        else:
            from stillme.findings.exchange import export_run

            written = export_run(run, kind or "csv", to)
    print_written(written, as_json=as_json)
    if not as_json:
        print_next_bundle(run, audit, out=out)


def _draw(audit: Path, out: Path | None, folder: Path, *, redact: Redaction, judge: str, as_json: bool) -> None:
    from stillme.estimates import estimate
    from stillme.report.data import report_data
    from stillme.report.figure_files import write_figures

    with opened_run(audit, out) as run:
        estimates = estimate(run.results.edits, run.results.scores, run.settings)
        written = write_figures(folder, report_data(run, estimates, redact=redact, judge=judge))
    print_written(written, as_json=as_json)


def _seal(audit: Path, out: Path | None, bundle: Path, *, with_images: bool, sign: Path | None, as_json: bool) -> None:
    from stillme.findings.evidence import seal

    with opened_run(audit, out) as run:
        sealed = seal(run, bundle, with_images=with_images, key=sign)
    if as_json:
        print_json(sealed)
    else:
        echo(sealed.as_text())
        print_next("verify", bundle, "--root", sealed.root)


@click.group("import")
def import_() -> None:
    """Bring in what was made elsewhere."""


@import_.command()
@click.argument("file", type=FILE)
@click.option(
    "--into",
    required=True,
    type=PATH,
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
@click.option("--ensemble", "rule", type=RULES, help="How models are combined: mean unless set; `paper` is Eq. 3.")
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
    names: tuple[str, ...],
    fixed: tuple[str, ...],
    where: tuple[str, ...],
    ignored: tuple[str, ...],
    wait: float,
    out: Path | None,
    as_json: bool,
    **asked: Any,
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

    asked |= {name: pairs_of(f"--{name}", asked[name]) for name in ("reference", "paper")}
    mapping = _mapping(names, fixed, where, ignored)

    def watch(done: int) -> None:
        echo(f"{done:,} rows read", err=True)

    summary = import_rows(file, into, RowsAsked(**asked), mapping, out=out, wait=wait, watch=watch)
    if as_json:
        print_json(summary)
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
