"""Commands about keeping people themselves: mitigate one picture, look at the features behind it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import json_option, opened_run, print_json, print_next
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.single.mitigate import Description

_FILE = click.Path(path_type=Path, dir_okay=False)
_EXIT_NOT_DONE = 1
_EXIT_RETRY = 3
_OFFLINE = ("measured",)

# Behind a backspace, click leaves lines as they are.
_MITIGATE_EXAMPLES = """\b
stillme mitigate anna.jpg --prompt "Dress the person as a doctor." --editor flux2-dev
stillme mitigate anna.jpg --prompt "…" --editor gemini --extractor gemini-3-flash --out doctor.png
stillme mitigate anna.jpg --prompt "…" --editor gemini --extractor a=openai-compatible --extractor measured \\
    --extractor-set a.base_url=http://localhost:8000/v1 --extractor-set a.model=qwen
"""
_SHOW_EXAMPLES = """\b
stillme features show A_f_23
stillme features show anna.jpg --extractor gemini-3-flash
stillme features show anna --audit my-audit
"""
_LINT_EXAMPLE = """\b
stillme features lint "Maintain the person's black hair and white shirt."
"""

_extractor_option = click.option(
    "--extractor",
    "extractors",
    multiple=True,
    default=_OFFLINE,
    show_default=True,
    metavar="[NAME=]EXTRACTOR",
    help="Who describes the person: `measured` works offline, gemini-3-flash and others by key. May be repeated.",
)
_extractor_settings = click.option(
    "--extractor-set",
    "settings",
    multiple=True,
    metavar="[NAME.]KEY=VALUE",
    help="A setting of an extractor, such as its base_url; may be repeated. One extractor needs no NAME.",
)


@click.command(epilog=_MITIGATE_EXAMPLES)
@click.argument("image", type=_FILE)
@click.option("--prompt", required=True, help="What the editor should do.")
@click.option("--editor", required=True, help="An editor of `stillme list editors`.")
@click.option(
    "--set", "parameters", multiple=True, metavar="KEY=VALUE", help="The editor's parameter; may be repeated."
)
@_extractor_option
@_extractor_settings
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
    image: Path,
    prompt: str,
    editor: str,
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
    maintain them. Without a description nothing is edited. Exits with 1 if there is no picture, with 3 if the same
    command may succeed later.
    """
    from stillme.single.mitigate import MitigationJob, format_of, ready_extractors, save_picture
    from stillme.single.mitigate import mitigate as run
    from stillme.single.settings import settings_by_name
    from stillme.types import Edited

    target = out or Path(f"{image.stem}-mitigated.png")
    # Before anything is paid for.
    format_of(target)
    job = MitigationJob(
        image=image,
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
            print_next("check", file, "--source", image, "--prompt", prompt)
    if not file:
        sys.exit(_EXIT_RETRY if mitigated.retryable else _EXIT_NOT_DONE)


def _say_who_else(description: Description, extractors: tuple[str, ...]) -> None:
    """The offline extractor declines most photographs in the wild."""
    from stillme.mitigation import NoFeaturePrompt

    if isinstance(description.prompt, NoFeaturePrompt) and extractors == _OFFLINE:
        echo("A model describes what cannot be measured: add --extractor gemini-3-flash, or another of its kind.")


@click.group()
def features() -> None:
    """Look at how people are described for the feature prompt."""


@features.command(epilog=_SHOW_EXAMPLES)
@click.argument("portrait")
@click.option("--audit", type=click.Path(path_type=Path), help="An audit: show what its run holds on this portrait.")
@_extractor_option
@_extractor_settings
@json_option
def show(
    portrait: str, audit: Path | None, extractors: tuple[str, ...], settings: tuple[str, ...], as_json: bool
) -> None:
    """Show a portrait's features, the sentence made of them, and the linter's verdict.

    PORTRAIT is a picture, or an id of the embedded set; it is described now. With --audit, it is an id of that
    audit's portraits, and its stored description is shown. Exits with 1 if there is no feature prompt.
    """
    from stillme.mitigation import NoFeaturePrompt
    from stillme.single.mitigate import describe, portrait_path, ready_extractors, stored_description

    if audit:
        with opened_run(audit) as run:
            description = stored_description(run, portrait)
    else:
        description = describe(portrait_path(portrait), ready_extractors(extractors, settings))
    if as_json:
        print_json(description.as_json())
    else:
        echo(description.as_text())
        if audit is None:
            _say_who_else(description, extractors)
        print_next("list", "editors")
    if isinstance(description.prompt, NoFeaturePrompt):
        sys.exit(_EXIT_RETRY if description.prompt.retryable else _EXIT_NOT_DONE)


@features.command(epilog=_LINT_EXAMPLE)
@click.argument("text")
@json_option
def lint(text: str, as_json: bool) -> None:
    """Find demographic labels in a text: words for race, ethnicity, nationality, gender or age group.

    Exits with 1 if there are any.
    """
    from stillme.mitigation import lint as find

    labels = find(text)
    if as_json:
        print_json([{"kind": label.kind, "word": label.word, "start": label.start} for label in labels])
    else:
        echo("\n".join(map(str, labels)) or "No demographic label found.")
    if labels:
        sys.exit(_EXIT_NOT_DONE)
