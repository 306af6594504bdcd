"""The command that takes a run elsewhere: tables, a sealed bundle, a model card."""

from __future__ import annotations

from pathlib import Path

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

_FORMATS = ("csv", "jsonl", "parquet")


@click.command()
@audit_argument
@out_option
@click.option(
    "--format", "kind", type=click.Choice(_FORMATS), default="csv", show_default=True, help="What is written."
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
    "--dossier",
    is_flag=True,
    help="Beside the bundle, a page: which documentation duty it speaks to (EU AI Act, NIST AI RMF, ISO/IEC 42001).",
)
@click.option("--model-card", is_flag=True, help="Write a Markdown section for each editor's model card instead.")
@json_option
def export(
    audit: Path,
    out: Path | None,
    kind: str,
    to: Path | None,
    bundle: Path | None,
    with_images: bool,
    sign: Path | None,
    dossier: bool,
    model_card: bool,
    as_json: bool,
) -> None:
    r"""Write a run's rows, a sealed bundle or a model card.

    A bundle holds every row with the raw answers, the configuration, versions, tables and report, and a hash of each
    file. The root hash that is printed covers all of it. The same rows give the same bytes.
    """
    if bundle:
        if to or model_card or kind != "csv":
            raise click.UsageError("--bundle writes one file of its own; leave --to, --format and --model-card out.")
        _seal(audit, out, bundle, with_images=with_images, sign=sign, dossier=dossier, as_json=as_json)
        return
    if with_images or sign or dossier:
        raise click.UsageError("--with-images, --sign and --dossier only work with --bundle.")
    if model_card and kind != "csv":
        raise click.UsageError("--model-card has a format of its own; leave --format out.")
    with opened_run(audit, out) as run:
        if model_card:
            from stillme.report.model_card import model_cards

            written = model_cards(run, to)
        else:
            from stillme.exchange import export_run

            written = export_run(run, kind, to)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        echo("\n".join(f"Wrote {path}" for path in written))
        print_next_bundle(run, audit, out=out)


def _seal(
    audit: Path, out: Path | None, bundle: Path, *, with_images: bool, sign: Path | None, dossier: bool, as_json: bool
) -> None:
    from stillme.evidence import seal, write_dossier

    with opened_run(audit, out) as run:
        sealed = seal(run, bundle, with_images=with_images, key=sign)
    page = write_dossier(sealed) if dossier else None
    if as_json:
        print_json(sealed.as_json() | {"dossier": str(page) if page else None})
    else:
        if page:
            echo(f"Wrote {page}")
        echo(sealed.as_text())
