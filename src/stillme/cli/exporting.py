"""The command that takes a run elsewhere: tables, a sealed bundle, other programs' formats, a model card."""

from __future__ import annotations

from pathlib import Path

import click

from stillme.cli.options import (
    audit_argument,
    json_option,
    opened_run,
    out_option,
    pairs_of,
    print_json,
    print_next_bundle,
)
from stillme.cli.terminal import echo

_FORMATS = ("csv", "jsonl", "parquet", "every-eval-ever", "eval-results")
_PUBLISHED = _FORMATS[3:]
_RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")


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
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="EDITOR=ORG/NAME",
    help="Published formats: the model behind an editor, as the Hugging Face Hub or its provider calls it.",
)
@click.option("--evaluator", metavar="NAME", help="every-eval-ever: the organisation that ran the audit.")
@click.option(
    "--relationship", type=click.Choice(_RELATIONSHIPS), help="every-eval-ever: the evaluator's relation to the model."
)
@click.option("--dataset", metavar="ORG/NAME", help="eval-results: the benchmark's data set on the Hugging Face Hub.")
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
    models: tuple[str, ...],
    evaluator: str | None,
    relationship: str | None,
    dataset: str | None,
    as_json: bool,
) -> None:
    r"""Write a run's rows, a sealed bundle or a model card.

    A bundle holds every row with the raw answers, the configuration, versions, tables and report, and a hash of each
    file. The root hash that is printed covers all of it. The same rows give the same bytes.

    \b
    csv, jsonl, parquet  every row, with a codebook
    every-eval-ever      results with intervals, and single answers, in the schema of Every Eval Ever 0.3.0
    eval-results         .eval_results of the Hugging Face Hub: rates and gaps of each editor as YAML
    """
    if kind not in _PUBLISHED and models:
        raise click.UsageError("--model only works with --format every-eval-ever or eval-results.")
    if kind != "every-eval-ever" and (evaluator or relationship):
        raise click.UsageError("--evaluator and --relationship only work with --format every-eval-ever.")
    if (kind == "eval-results") != bool(dataset):
        raise click.UsageError("--dataset ORG/NAME belongs to --format eval-results: neither works without the other.")
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
        elif kind in _PUBLISHED:
            from stillme.exchange import Publication, export_eval_results, export_every_eval_ever

            publication = Publication(
                evaluator=evaluator or "not stated",
                relationship=relationship or "other",
                models=pairs_of("--model", models),
            )
            if dataset:
                written = export_eval_results(run, to, publication, dataset)
            else:
                written = export_every_eval_ever(run, to, publication)
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
