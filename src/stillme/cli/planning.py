"""The command that looks ahead: plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from stillme.cli.options import audit_argument, json_option, print_json
from stillme.errors import StillmeError


@click.command()
@audit_argument
@click.option("--detect", type=float, metavar="SHARE", help="A gap that must be found: how many portraits it takes.")
@click.option("--rate", "rates", type=float, multiple=True, help="How common the fault is; by default 0.10 and 0.45.")
@click.option("--icc", type=float, help="Share of the variance between portraits; by default 0.05, from 0.01 to 0.15.")
@click.option("--portrait-sd", type=float, help="The same as a standard deviation on the logit scale.")
@click.option("--sd", type=float, help="Standard deviation of single scores on a 1–5 scale; by default 1.")
@click.option("--power", type=float, default=0.8, show_default=True, help="How often the gap is to be found.")
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
    as_json: bool,
) -> None:
    r"""Before a run: edits, judge calls, dollars, GPU hours, and the smallest gap it can see.

    Edits of one portrait are alike, so what counts is the number of portraits. The last table shows what fewer
    prompts a portrait would keep ([sample] in audit.toml) and which gap the portraits would see that the same edits
    buy. Needs no key, no GPU and no extra.

    \b
    stillme plan my-audit --detect 0.10
    stillme plan my-audit --like earlier-run --seconds-per-edit flux2-dev=14 --gpu-dollars 2.5
    """
    from stillme.planning import Asked, plan_audit

    asked = Asked(
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
    found = plan_audit(audit, asked)
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(found.as_text())


def _seconds(given: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in given:
        name, _, number = each.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise StillmeError(f"--seconds-per-edit {each!r} is neither a number nor EDITOR=SECONDS.") from None
        if not found[name] > 0:
            raise StillmeError(f"--seconds-per-edit {each!r} is not above 0.")
    return found
