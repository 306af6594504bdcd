"""The command for before a run: plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from stillme.cli.options import audit_argument, command_line, json_option, print_json, print_next
from stillme.cli.terminal import echo
from stillme.core.errors import StillmeError


@click.command()
@audit_argument
@click.option("--detect", type=float, metavar="SHARE", help="A gap to detect: how many portraits does it take?")
@click.option("--rate", "rates", type=float, multiple=True, help="How common the fault is; by default 0.10 and 0.45.")
@click.option("--icc", type=float, help="Share of the variance between portraits; by default 0.05, from 0.01 to 0.15.")
@click.option("--portrait-sd", type=float, help="The same as a standard deviation on the logit scale.")
@click.option("--sd", type=float, help="Standard deviation of single scores on a 1–5 scale; by default 1.")
@click.option("--power", type=float, default=0.8, show_default=True, help="How often the gap must be detected.")
@click.option("--like", type=click.Path(path_type=Path), help="Take rate, spread, seconds and prices from this run.")
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
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.csv",
    help="Also write every request that an editor `folder` must find: source, instruction, seed, file name.",
)
@json_option
def plan(
    audit: Path,
    detect: float | None,
    rates: tuple[float, ...],
    icc: float | None,
    portrait_sd: float | None,
    sd: float | None,
    power: float,
    like: Path | None,
    quantity: str,
    seconds: tuple[str, ...],
    gpu_dollars: float | None,
    requests_file: Path | None,
    as_json: bool,
) -> None:
    r"""Show what a run will take: edits, dollars, GPU hours, precision.

    It counts judge calls too, and computes the smallest gap between groups that the audit can detect.
    Edits of one portrait are correlated, so what counts is the number of portraits. One table shows sparser
    designs ([sample] in audit.toml): the information that they keep, and the gap that the same edits of more
    portraits detect. One line is for before a human study: how many ratings give ±5 points.
    Needs no key, no GPU and no extra.

    \b
    stillme plan my-audit --detect 0.10
    stillme plan my-audit --like earlier-run --seconds-per-edit flux2-dev=14 --gpu-dollars 2.5
    stillme plan my-audit --requests requests.csv
    """
    from stillme.findings.plan import PlanOptions, plan_audit, write_requests

    options = PlanOptions(
        detect=detect,
        rates=rates,
        icc=icc,
        portrait_sd=portrait_sd,
        sd=sd,
        power=power,
        like=like,
        quantity=quantity,
        seconds=_seconds(seconds),
        gpu_dollars=gpu_dollars,
    )
    planned = plan_audit(audit, options)
    requests = write_requests(audit, requests_file) if requests_file else None
    if as_json:
        print_json(planned.as_json() | ({"requests_file": str(requests.file)} if requests else {}))
        return
    echo(planned.as_text())
    if requests:
        echo(f"\n{requests.as_text()}")
    if planned.obstacles:
        again = command_line("plan", audit)
        echo(f"Next: correct what would be refused, or move to a machine that has it; then {again}", err=True)
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
