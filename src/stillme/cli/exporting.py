"""The command that takes a run elsewhere: rows, a sealed bundle, figures, a model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import (
    audit_argument,
    json_option,
    opened_run,
    out_option,
    print_json,
    print_next_bundle,
)
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.core.types import Redaction

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
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), help="Folder; by default `export` in the run.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one sealed file instead, .zip or .tar, for `stillme verify`.",
)
@click.option("--with-images", is_flag=True, help="Include portraits and edited pictures in the bundle.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Sign the bundle with an SSH private key; writes FILE.sig.",
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the report's drawings as SVG and grids of pictures as PNG into DIR instead.",
)
@click.option(
    "--redact", type=click.Choice(["blur", "omit"]), help="With --figures: blur portraits, or omit their pictures."
)
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
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        echo("\n".join(f"Wrote {path}" for path in written))
        print_next_bundle(run, audit, out=out)


def _draw(audit: Path, out: Path | None, folder: Path, *, redact: Redaction, judge: str, as_json: bool) -> None:
    from stillme.estimates import estimate
    from stillme.report.data import report_data
    from stillme.report.figure_files import write_figures

    with opened_run(audit, out) as run:
        estimates = estimate(run.results.edits, run.results.scores, run.settings)
        written = write_figures(folder, report_data(run, estimates, redact=redact, judge=judge))
    if as_json:
        print_json({"files": [str(path) for path in written.files], "skipped": dict(written.skipped)})
    else:
        echo("\n".join(f"Wrote {path}" for path in written.files))
        echo("\n".join(f"Without {name}: {reason}" for name, reason in written.skipped), err=True)


def _seal(audit: Path, out: Path | None, bundle: Path, *, with_images: bool, sign: Path | None, as_json: bool) -> None:
    from stillme.findings.evidence import seal

    with opened_run(audit, out) as run:
        sealed = seal(run, bundle, with_images=with_images, key=sign)
    if as_json:
        print_json(sealed.as_json())
    else:
        echo(sealed.as_text())
