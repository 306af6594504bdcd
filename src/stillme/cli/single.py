"""Commands about single pictures and judges: check, calibrate, mitigate."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import FILE, FOLDER, RULES, json_option, print_json, print_next, print_open
from stillme.cli.terminal import echo
from stillme.core.errors import StillmeError

if TYPE_CHECKING:
    from stillme.findings.single.mitigate import PortraitDescription


@click.command()
@click.argument("edited", type=FILE)
@click.option("--source", type=FILE, required=True, help="The picture before the edit.")
@click.option("--prompt", default="", help="What the editor was asked to do.")
@click.option("--judge", "judges", multiple=True, default=["instruments"], show_default=True, help="May be repeated.")
@click.option("--set", "settings", multiple=True, metavar="[JUDGE.]KEY=VALUE", help="A setting of a judge; repeatable.")
@click.option("--years", type=int, help="Aging edits: how many years older the person should look.")
@click.option("--rule", type=RULES, default="mean", show_default=True, help="How several judges' scores become one.")
@click.option("--html", type=FILE, help="Also write one page with both pictures, a slider and the places that changed.")
@click.option("--overlay", type=FILE, help="Also write a PNG that shows where the instruments looked.")
@json_option
def check(
    edited: Path,
    source: Path,
    prompt: str,
    judges: tuple[str, ...],
    settings: tuple[str, ...],
    years: int | None,
    rule: str,
    html: Path | None,
    overlay: Path | None,
    as_json: bool,
) -> None:
    """Check one pair: what did this edit do to this person?

    EDITED is the picture after the edit. A few sentences come first: about skin, identity, apparent age, gender
    presentation and the picture. Each is "sure", "not sure" or "cannot tell", with the reason. They come from the
    offline instruments, which answer by default. Details follow, a card for each judge. --html writes the same as one
    self-contained page to look at or send: it holds both pictures.

    Vision-language models are named with --judge; `stillme list judges` shows all. Without --prompt, models are not
    asked whether the edit succeeded. With several judges, their scores are also combined by --rule, and axes on which
    they are more than a point apart are flagged.

    A model on your own server: --judge openai-compatible --set openai-compatible.model=NAME
    --set openai-compatible.base_url=http://localhost:8000/v1

    Exits with 3 if a judge failed and the same command may succeed later.
    """
    from stillme.findings.single.check import check as check_pair
    from stillme.findings.single.check import draw_overlay, together

    checked = check_pair(edited, source, prompt, judges, years=years, settings=settings)
    combined = together(checked.cards, rule)
    if overlay:
        echo(f"Wrote {draw_overlay(edited, source, overlay)}", err=True)
    if html:
        from stillme.findings.single.page import write_page

        page = write_page(html, edited, source, checked, prompt=prompt, together=combined)
        echo(f"Wrote {page}. It holds both pictures.", err=True)
    if as_json:
        pair = {"statements": checked.statements, "judges": checked.cards, "notes": checked.notes}
        print_json(pair | {"ensemble": combined})
    else:
        sentences = "\n".join(statement.as_text() for statement in checked.statements)
        cards = (card.as_text() for card in [*checked.cards, *([combined] if combined else [])])
        echo("\n\n".join([*([sentences] if sentences else []), *cards]))
        for note in checked.notes:
            echo(f"Note: {note}", err=True)
        if html:
            print_open(html)
        else:
            print_next("check", edited, "--source", source, "--html", "check.html")
    if any(card.is_to_retry for card in checked.cards):
        sys.exit(3)


@click.command()
@click.argument("judge")
@click.option("--parameters", default="", metavar="TOML", help="The judge's parameters, as in audit.toml.")
@click.option("--quick", is_flag=True, help="Only 4 portraits a skin tone. Validates nothing and is not kept.")
@click.option("--renders", type=FOLDER, help="Your own rendered calibration set; by default the embedded one.")
@click.option(
    "--photographs",
    type=FOLDER,
    help="A folder of labelled photographs: only there can `another person` be tested.",
)
@click.option(
    "--stress",
    default=6,
    show_default=True,
    help="Pairs of the stress check: re-encoded, resized, swapped, without a picture, with noise. 0 leaves it out.",
)
@click.option("--second-server", default="", metavar="URL", help="The same model elsewhere, for the stress check.")
@click.option("--out", type=FOLDER, help="Folder for the pairs and answers.")
@json_option
def calibrate(
    judge: str,
    parameters: str,
    quick: bool,
    renders: Path | None,
    photographs: Path | None,
    stress: int,
    second_server: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Test a judge on changes of known size.

    Only axes that pass are validated.
    The pairs: honest edits that change no one, such as mirrored, re-encoded, resized, zoomed and relit pictures. Then
    skin ramps in steps of 2 L*, and a black frame. Also people rendered older, younger, with other
    features, another gender presentation or another identity. Per axis and skin tone it reports false alarms for each
    kind of edit, sensitivity, bias and the smallest change noticed. An axis is validated on a skin tone by the 95 %
    limits of these rates: elsewhere numbers say "cannot tell". Results are kept for every later audit on this machine;
    judges without them are marked. Exits with 1 unless every tested axis passes on every skin tone.
    """
    from stillme.cli.progress import progress
    from stillme.findings.calibration import save
    from stillme.findings.calibration.trials import FULL, QUICK
    from stillme.findings.calibration.trials import calibrate as run
    from stillme.findings.calibration.trials import stress as stressed
    from stillme.work.options import RunOptions

    try:
        chosen = tomllib.loads(parameters)
    except tomllib.TOMLDecodeError as error:
        raise StillmeError(f"--parameters is not TOML: {error}") from None
    folder = out or Path(f"calibration-{judge}")
    with progress(quiet=as_json) as shown:
        options = RunOptions(watch=shown, say=shown.say, allow_changes=True)
        result, file = run(
            judge,
            chosen,
            folder,
            sources=QUICK if quick else FULL,
            options=options,
            renders=renders,
            photographs=photographs,
        )
    if stress:
        moved = stressed(judge, chosen, folder / "stress", pairs=stress, second=second_server)
        result = replace(result, stress=moved)
        file = save(result) if file else None  # a first look is not kept
    if as_json:
        print_json(result)
    else:
        echo(f"{result.as_text()}\n\nSaved in {file}" if file else result.as_text())
        print_next("list", "judges", judge)
    if not result.passed:
        sys.exit(1)


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
@click.option("--out", type=FILE, help="File for the edited picture; by default IMAGE-mitigated.png beside you.")
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
    from stillme.findings.single import settings_by_name
    from stillme.findings.single.mitigate import (
        MitigationJob,
        format_of,
        portrait_path,
        ready_extractors,
        save_picture,
    )
    from stillme.findings.single.mitigate import mitigate as run

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
        print_json({**outcome, "file": file})
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
    from stillme.mitigation.features import NoFeaturePrompt

    description = describe(picture, ready_extractors(extractors, settings))
    if as_json:
        print_json(description)
    else:
        echo(description.as_text())
        _say_who_else(description, extractors)
        print_next("list", "editors")
    if isinstance(description.prompt, NoFeaturePrompt):
        sys.exit(_EXIT_RETRY if description.prompt.retryable else _EXIT_NOT_DONE)


def _say_who_else(description: PortraitDescription, extractors: tuple[str, ...]) -> None:
    """The offline extractor declines most photographs in the wild."""
    from stillme.mitigation.features import NoFeaturePrompt

    if isinstance(description.prompt, NoFeaturePrompt) and extractors == _OFFLINE:
        echo("A model describes what cannot be measured: add --extractor gemini-3-flash, or another of its kind.")
