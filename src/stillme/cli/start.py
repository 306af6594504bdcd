"""Commands to start with: new, demo, plan."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stillme.cli.options import (
    FILE,
    FOLDER,
    PATH,
    audit_argument,
    json_option,
    print_json,
    print_next,
    print_open,
    use_one_blas_thread,
)
from stillme.cli.terminal import echo
from stillme.core.errors import StillmeError


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--title", default="", help="Shown in the report; by default the folder's name.")
@click.option(
    "--editor", "editors", multiple=True, metavar="NAME", help="An editor of `stillme list editors`; may be repeated."
)
@click.option(
    "--judge", "judges", multiple=True, metavar="NAME", help="A judge of `stillme list judges`; may be repeated."
)
@click.option(
    "--experiment",
    type=click.Choice(["diagnosis", "mitigation", "roles"]),
    help="One of the paper's experiments instead: its portraits' design, prompts, editors and judges.",
)
@click.option(
    "--as",
    "like",
    type=click.Choice(["paper"]),
    help="Use the paper's own settings wherever possible; docs/experiments.md lists the others.",
)
@click.option(
    "--portraits",
    type=FOLDER,
    metavar="FOLDER",
    help="A set such as my-set/v1: factors, reference and genders are written as it has them.",
)
@click.option(
    "--from",
    "run",
    type=PATH,
    metavar="RUN",
    help="For `mitigation`: the first experiment's run, whose baseline edits are taken over.",
)
@click.option(
    "--cases",
    type=click.Choice(["stratified", "drifted"]),
    default="stratified",
    show_default=True,
    help="For `mitigation`: drawn before any result (§4.3, Appendix H), or those of --from that drifted (D.2).",
)
@click.option(
    "--plugin", metavar="NAME", help="A package with an editor and a judge of this name instead, to change and install."
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def new(folder: Path, like: str | None, plugin: str | None, force: bool, **wanted: Any) -> None:
    """Write a small, commented audit.toml into DIR.

    It runs as it is, with the embedded portraits, two known-answer editors and the offline instruments;
    change it from there. --editor and --judge write others instead, such as `--editor python` for your own function.
    With --experiment it is the paper's: `diagnosis` (5,040 edits), `mitigation` (500 requests with and without a
    feature prompt), `roles` (100). Those need GPUs and keys; `stillme plan DIR` needs neither.
    """
    if plugin is not None:
        if like or any(wanted[name] for name in ("experiment", "portraits", "run", "title", "editors", "judges")):
            raise click.UsageError("--plugin writes no audit; leave the other options out.")
        from stillme.plugins.package import write_package

        echo(f"Wrote the package {plugin!r} into {write_package(folder, plugin, force=force)}")
        echo(f"Next: pip install -e {shlex.quote(str(folder))} && pytest {shlex.quote(str(folder))}", err=True)
        return
    from stillme.findings.plan.new_audit import Start, start

    for sentence in start(folder, Start(as_paper=like == "paper", **wanted), force=force):
        echo(sentence)
    print_next("plan" if wanted["experiment"] or wanted["editors"] or wanted["judges"] else "run", folder)


@click.command()
@click.option(
    "--out",
    type=FOLDER,
    default=Path("stillme-demo"),
    show_default=True,
    help="Folder for the demo's run.",
)
@json_option
def demo(out: Path, as_json: bool) -> None:
    """Audit two editors with injected bias on this machine.

    It prints the bias that was injected next to the bias that the audit measured. Computer-generated
    portraits, an even-handed and a biased editor, offline instruments, estimates with intervals, a report. No
    key, no GPU, no download; running it again resumes.
    """
    use_one_blas_thread()
    from stillme.api.demo import run_demo
    from stillme.cli.progress import progress

    with progress(quiet=as_json) as shown:
        result = run_demo(out, watch=shown, say=shown.say)
    if as_json:
        print_json(result)
    else:
        echo(result.as_text())
        print_open(result.report)
        print_next("status", out)
        print_next("new", "my-audit")


def _share(value: Any) -> float:
    """A number that may be left out; a word in its place is the audit, which stands before the option."""
    try:
        return float(value)
    except ValueError:
        typed = f"stillme plan {shlex.quote(str(value))} --power"
        raise StillmeError(f"--power {value!r} is not a share such as 0.8. For an audit: `{typed}`.") from None


@click.command()
@audit_argument
@click.option("--detect", type=float, metavar="SHARE", help="A gap to detect: how many portraits does it take?")
@click.option("--rate", "rates", type=float, multiple=True, help="How common the fault is; by default 0.10 and 0.45.")
@click.option("--icc", type=float, help="Share of the variance between portraits; by default 0.05, from 0.01 to 0.15.")
@click.option("--sd", type=float, help="Standard deviation of single scores on a 1–5 scale; by default 1.")
@click.option(
    "--power",
    type=_share,
    is_flag=False,
    flag_value=0.8,
    metavar="[SHARE]",
    help="Also show every gap that is detected in this share of audits: 0.8 unless given.",
)
@click.option("--like", type=PATH, help="Take rate, spread, seconds and prices from this run.")
@click.option("--quantity", default="", help="With --like: the rate to take, such as soft_erasure.")
@click.option(
    "--seconds-per-edit",
    "seconds",
    multiple=True,
    metavar="[EDITOR=]SECONDS",
    help="How long an edit takes; may be repeated.",
)
@click.option("--gpu-dollars", type=float, help="Price of a GPU hour, to be part of the dollars.")
@click.option(
    "--requests",
    "requests_file",
    type=FILE,
    metavar="FILE.csv",
    help="Also write every request that an editor `folder` must find: source, instruction, seed, file name.",
)
@json_option
def plan(
    audit: Path,
    seconds: tuple[str, ...],
    requests_file: Path | None,
    as_json: bool,
    power: float | None,
    **options: Any,
) -> None:
    r"""Show what a run will take: edits, dollars, GPU hours, precision.

    It counts judge calls too, and computes the smallest gap between groups that the audit can detect.
    Edits of one portrait are correlated, so what counts is the number of portraits. With --power, a table shows the
    smallest gap of every factor, and a line how many human ratings give ±5 points.
    Needs no key, no GPU and no extra.

    \b
    stillme plan my-audit --power
    stillme plan my-audit --detect 0.10
    stillme plan my-audit --like earlier-run --seconds-per-edit flux2-dev=14 --gpu-dollars 2.5
    stillme plan my-audit --requests requests.csv
    """
    from stillme.findings.plan import PlanOptions, plan_audit, write_requests

    options |= {} if power is None else {"power": power}
    planned = plan_audit(audit, PlanOptions(seconds=_seconds(seconds), **options))
    requests = write_requests(audit, requests_file) if requests_file else None
    if as_json:
        print_json(planned.as_json() | ({"requests_file": str(requests_file)} if requests else {}))
        return
    echo(planned.as_text(power=power is not None))
    if requests:
        echo(f"\n{requests}")
    if planned.obstacles:
        print_next("plan", audit)
    elif planned.finished:
        print_next("study", "new", audit)
    else:
        print_next("run", audit)


def _seconds(texts: Sequence[str]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            seconds[name] = float(number)
        except ValueError:
            raise StillmeError(f"--seconds-per-edit {text!r} is neither a number nor EDITOR=SECONDS.") from None
        if not seconds[name] > 0:
            raise StillmeError(f"--seconds-per-edit {text!r} is not above 0.")
    return seconds
