"""Commands to start with: new, demo."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import json_option, print_json, print_next, print_open
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.audit.experiments import Cases, Experiment


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--title", default="", help="Shown in the report; by default the folder's name.")
@click.option(
    "--experiment",
    type=click.Choice(["diagnosis", "mitigation", "roles"]),
    help="One of the paper's experiments instead: its portraits' design, prompts, editors and judges.",
)
@click.option(
    "--as",
    "like",
    type=click.Choice(["paper"]),
    help="Set every departure from the paper back that can be set back; docs/experiments.md lists them.",
)
@click.option(
    "--portraits",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="A set such as my-set/v1: factors, reference and genders are written as it has them.",
)
@click.option(
    "--from",
    "run",
    type=click.Path(path_type=Path),
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
def new(
    folder: Path,
    title: str,
    experiment: Experiment | None,
    like: str | None,
    portraits: Path | None,
    run: Path | None,
    cases: Cases,
    plugin: str | None,
    force: bool,
) -> None:
    """Write a small, commented audit.toml into DIR.

    It runs as it is, with the embedded portraits, two known-answer editors and the offline instruments;
    change it from there. With --experiment it is the paper's: `diagnosis` (5,040 edits), `mitigation` (500 requests
    with and without a feature prompt), `roles` (100). Those need GPUs and keys; `stillme plan DIR` needs neither.
    """
    if plugin is not None:
        if experiment or like or portraits or run or title:
            raise click.UsageError("--plugin writes no audit; leave the other options out.")
        from stillme.plugins.package import write_package

        echo(f"Wrote the package {plugin!r} into {write_package(folder, plugin, force=force)}")
        echo(f"Next: pip install -e {shlex.quote(str(folder))} && pytest {shlex.quote(str(folder))}", err=True)
        return
    from stillme.findings.plan.starting import Start, start

    wanted = Start(
        title=title, experiment=experiment, as_paper=like == "paper", portraits=portraits, run=run, cases=cases
    )
    for sentence in start(folder, wanted, force=force):
        echo(sentence)
    print_next("plan" if experiment else "run", folder)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
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
    from stillme.api.demo import run_demo
    from stillme.cli.progress import progress

    with progress(quiet=as_json) as shown:
        result = run_demo(out, watch=shown, say=shown.say)
    if as_json:
        print_json(result.as_json())
    else:
        echo(result.as_text())
        print_open(result.report)
        print_next("status", out)
        print_next("new", "my-audit")
