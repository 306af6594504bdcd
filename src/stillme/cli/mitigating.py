"""The command that edits one picture and keeps the person in it: mitigate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import json_option, print_json, print_next
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.findings.single.mitigate import Description

_FILE = click.Path(path_type=Path, dir_okay=False)
_EXIT_NOT_DONE = 1
_EXIT_RETRY = 3
_OFFLINE = ("measured",)

# Behind a backspace, click leaves lines as they are.
_EXAMPLES = """\b
stillme mitigate anna.jpg --dry-run
stillme mitigate anna.jpg --prompt "Dress the person as a doctor." --editor flux2-dev
stillme mitigate anna.jpg --prompt "…" --editor gemini --extractor gemini-3-flash --out doctor.png
stillme mitigate anna.jpg --prompt "…" --editor gemini --extractor a=openai-compatible --extractor measured \\
    --extractor-set a.base_url=http://localhost:8000/v1 --extractor-set a.model=qwen
"""


@click.command(epilog=_EXAMPLES)
@click.argument("image")
@click.option("--prompt", help="What the editor should do.")
@click.option("--editor", help="An editor of `stillme list editors`.")
@click.option("--dry-run", is_flag=True, help="Describe the person and edit nothing; needs neither prompt nor editor.")
@click.option(
    "--set", "parameters", multiple=True, metavar="KEY=VALUE", help="The editor's parameter; may be repeated."
)
@click.option(
    "--extractor",
    "extractors",
    multiple=True,
    default=_OFFLINE,
    show_default=True,
    metavar="[NAME=]EXTRACTOR",
    help="Who describes the person: `measured` works offline, gemini-3-flash and others by key. May be repeated.",
)
@click.option(
    "--extractor-set",
    "settings",
    multiple=True,
    metavar="[NAME.]KEY=VALUE",
    help="A setting of an extractor, such as its base_url; may be repeated. One extractor needs no NAME.",
)
@click.option(
    "--position",
    type=click.Choice(["prepend", "append"]),
    default="prepend",
    show_default=True,
    help="Where the feature sentence stands.",
)
@click.option("--seed", type=int, help="The editor's seed; by default its own.")
@click.option("--out", type=_FILE, help="File for the edited picture; by default IMAGE-mitigated.png beside you.")
@json_option
def mitigate(
    image: str,
    prompt: str | None,
    editor: str | None,
    dry_run: bool,
    parameters: tuple[str, ...],
    extractors: tuple[str, ...],
    settings: tuple[str, ...],
    position: Any,
    seed: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Edit one picture and keep the person in it.

    The person's visible features are described first, without any demographic label, and the editor is asked to
    maintain them. IMAGE is a picture, or an id of the embedded set. Without a description nothing is edited. Exits with
    1 if there is no picture, with 3 if the same command may succeed later.
    """
    from stillme.core.types import Edited
    from stillme.findings.single.mitigate import (
        MitigationJob,
        format_of,
        portrait_path,
        ready_extractors,
        save_picture,
    )
    from stillme.findings.single.mitigate import mitigate as run
    from stillme.findings.single.settings import settings_by_name

    source = portrait_path(image)
    if dry_run:
        _describe(source, extractors, settings, as_json=as_json)
        return
    if not (prompt and editor):
        raise click.UsageError("--prompt and --editor are needed; --dry-run needs neither.")
    target = out or Path(f"{source.stem}-mitigated.png")
    # Before anything is paid for.
    format_of(target)
    job = MitigationJob(
        image=source,
        prompt=prompt,
        editor=editor,
        parameters=settings_by_name(parameters, [editor], "--set")[editor],
        seed=seed,
        position=position,
    )
    mitigated = run(job, ready_extractors(extractors, settings))
    outcome = mitigated.as_json()
    file = save_picture(mitigated.outcome.image, target) if isinstance(mitigated.outcome, Edited) else None
    if as_json:
        print_json({**outcome, "file": str(file) if file else None})
    else:
        echo(mitigated.description.as_text())
        if mitigated.instruction:
            echo(f"\nThe editor read: {mitigated.instruction}")
        echo(f"Wrote {file}" if file else f"Not edited ({outcome['outcome']}): {outcome['message']}")
        _say_who_else(mitigated.description, extractors)
        if file:
            print_next("check", file, "--source", source, "--prompt", prompt)
    if not file:
        sys.exit(_EXIT_RETRY if mitigated.retryable else _EXIT_NOT_DONE)


def _describe(picture: Path, extractors: tuple[str, ...], settings: tuple[str, ...], *, as_json: bool) -> None:
    """Show a person's features, the sentence made of them, and the linter's verdict."""
    from stillme.findings.single.mitigate import describe, ready_extractors
    from stillme.mitigation import NoFeaturePrompt

    description = describe(picture, ready_extractors(extractors, settings))
    if as_json:
        print_json(description.as_json())
    else:
        echo(description.as_text())
        _say_who_else(description, extractors)
        print_next("list", "editors")
    if isinstance(description.prompt, NoFeaturePrompt):
        sys.exit(_EXIT_RETRY if description.prompt.retryable else _EXIT_NOT_DONE)


def _say_who_else(description: Description, extractors: tuple[str, ...]) -> None:
    """The offline extractor declines most photographs in the wild."""
    from stillme.mitigation import NoFeaturePrompt

    if isinstance(description.prompt, NoFeaturePrompt) and extractors == _OFFLINE:
        echo("A model describes what cannot be measured: add --extractor gemini-3-flash, or another of its kind.")
