"""Commands of the human study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import (
    FILE,
    FOLDER,
    PATH,
    Command,
    address_options,
    json_option,
    opened_run,
    print_json,
    print_next,
    print_written,
)
from stillme.cli.terminal import echo
from stillme.core.tables import counted

if TYPE_CHECKING:
    from stillme.study.opening import Study


def _study_argument(command: Command) -> Command:
    return click.argument("study", type=FOLDER, default=".", metavar="[STUDY]")(command)


@contextmanager
def _opened(folder: Path) -> Generator[Study]:
    from stillme.study.opening import open_study

    with open_study(folder) as study:
        yield study


def _count(*names: str, default: int, text: str, least: int = 0) -> Callable[[Command], Command]:
    return click.option(*names, default=default, show_default=True, type=click.IntRange(least), help=text)


_HELP = """Have raters score edits, blind, and compare them with models.

\b
stillme study new my-audit            draw items from a run; writes my-audit/study
stillme study preview my-audit/study  try it yourself, nothing is kept
stillme study serve my-audit/study    consent, training, rating, completion codes
stillme study status my-audit/study   progress, quality, agreement
stillme study close my-audit/study    add the ratings to the run, as the judge `people`
"""


@click.group("study", help=_HELP)
def study_group() -> None:
    """Have people rate edits, and compare their ratings with the models'."""
    from stillme.web import require

    require("study")


@study_group.command()
@click.argument("run", type=PATH)
@click.option("--out", type=FOLDER, help="Folder of the study; by default `study` inside the run.")
@_count("--items", default=500, text="Items to draw, balanced over prompts, groups and editors.", least=1)
@_count("--per-task", default=50, text="Items per participant.", least=1)
@click.option(
    "--compare",
    type=click.Choice(["auto", "arms", "editors", "none", "roles"]),
    default="auto",
    show_default=True,
    help="What an item compares: baseline and feature arm, two editors, nothing (one picture), or two people (roles).",
)
@click.option(
    "--choose",
    type=click.Choice(["random", "informative", "disputed"]),
    default="random",
    show_default=True,
    help="`informative`: likelier where models disagree, with known chances; corrected means weigh by them. "
    "`disputed`: edits on which judges differ by more than a point come first; group means are then biased.",
)
@_count("--gold", default=2, text="Items with known answers, per task.")
@_count("--attention", default=2, text="Attention checks, per task.")
@_count("--repeats", default=2, text="Items shown twice, per task.")
@_count("--size", "side", default=768, text="Side of the square that every picture is fitted to, in pixels.", least=1)
@click.option(
    "--recruit",
    type=click.Choice(["prolific", "mturk", "class"]),
    help="Add a [recruiting] section: participants enter by the study's address. Without it, by personal links.",
)
@click.option(
    "--disclosure",
    type=click.Choice(["blind", "paper"]),
    default="blind",
    show_default=True,
    help="`paper` shows raters the source's race, gender and age, as the paper's study did.",
)
@click.option("--seed", default=0, show_default=True, help="Of the draw of edits.")
@json_option
def new(run: Path, out: Path | None, as_json: bool, **design: Any) -> None:
    """Draw a study from a run and write its study.toml.

    Pictures are copied blind: one format, one size, no metadata. The admin password is printed once.
    """
    from stillme.study.drawing import StudyDesign, new_study

    with opened_run(run) as recorded:
        design["recruit"] = design["recruit"] or ""
        made = new_study(recorded, out, StudyDesign(**design), lambda text: echo(text, err=True))
    real = sum(item.kind == "real" for item in made.drawn.items)
    if as_json:
        print_json(
            {
                "folder": str(made.folder),
                "items": real,
                "tasks": made.drawn.batches,
                "design": dict(made.drawn.design),
                "picture_bytes": made.picture_bytes,
                "admin_password": made.password,
            }
        )
    else:
        echo(
            f"{made.folder}: {counted(real, 'item')} in {counted(made.drawn.batches, 'task')}; "
            f"compared: {made.drawn.design['compare']}.\n"
            f"Admin password, shown only now: {made.password}\n"
            f"Edit {made.folder / 'study.toml'} before you serve it."
        )
        print_next("study", "preview", made.folder)


@study_group.command()
@_study_argument
@address_options
@click.option("--public-url", default="", help="The https address of the proxy in front.")
@click.option(
    "--proxy", "proxies", multiple=True, metavar="ADDRESS", help="A proxy that is trusted to name the client."
)
def serve(study: Path, **options: Any) -> None:
    """Serve a study until interrupted.

    By default only this machine can connect. Every answer is on disk before the page confirms it. Changed texts or
    questions in study.toml are a new version, for people who have not begun.
    """
    from stillme.study.app import serve as run

    run(study, echo, **options)
    print_next("study", "status", study)


@study_group.command()
@_study_argument
@address_options
def preview(study: Path, **options: Any) -> None:
    """Show the whole study to yourself; nothing is kept.

    Every page from consent to the completion code, and the admin pages, on a database that is thrown away.
    """
    from stillme.study.app import preview as run

    run(study, echo, **options)
    print_next("study", "serve", study)


@study_group.command()
@click.argument("count", type=click.IntRange(1, 10_000))
@_study_argument
@click.option("--address", default="", help="Printed in front of each link, such as https://study.example")
@json_option
def invite(study: Path, count: int, address: str, as_json: bool) -> None:
    """Make COUNT personal invitation links.

    For participants who are not from Prolific. Only their hashes are stored, so save the links now.
    """
    from stillme.study.entry import invite as make

    with _opened(study) as opened:
        links = [f"{address.rstrip('/')}/i/{code}" for code in make(opened, count)]
    if as_json:
        print_json(links)
    else:
        echo("\n".join(links))
        print_next("study", "serve", study)


@study_group.command()
@_study_argument
@json_option
def status(study: Path, as_json: bool) -> None:
    """Show a study's progress.

    Tasks, pay per hour, agreement and flags. Works while the study is served. Exits with 1 if the median pay is below
    the study's floor.
    """
    from stillme.study.progress import overview_of

    with _opened(study) as opened:
        overview = overview_of(opened)
    if as_json:
        print_json(overview)
    else:
        echo(overview.as_text())
        print_next("study", "close", study)
    if overview.progress.alarm:
        sys.exit(1)


@study_group.command()
@_study_argument
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the tables.",
)
@click.option("--to", type=FOLDER, help="By default `export` in the study.")
@json_option
def export(study: Path, kind: Any, to: Path | None, as_json: bool) -> None:
    """Write ratings, items, raters and exclusions as tables.

    With a codebook. Raters have pseudonyms, and times count from each rater's start.
    """
    from stillme.study.export import export_study

    with _opened(study) as opened:
        written = export_study(opened, to or study / "export", kind)
    print_written(written, as_json=as_json)
    if not as_json:
        print_next("study", "close", study)


@study_group.command()
@click.argument("file", type=FILE)
@_study_argument
@json_option
def submissions(study: Path, file: Path, as_json: bool) -> None:
    """Apply the submission statuses of a platform's CSV (FILE).

    Lists whom to approve or reject there. Reads the CSV of Prolific, of MTurk, or one with the columns participant,
    submission and status. Returned, timed-out and screened-out submissions free their places. Rejected ones are
    excluded. The ids of approved ones are deleted. decisions.csv in STUDY has the approvals and rejections to paste
    back.
    """
    from stillme.study.submissions import apply_statuses

    with _opened(study) as opened:
        applied = apply_statuses(opened, file)
    if as_json:
        print_json({"done": dict(applied.done), "decisions": dict(applied.decisions), "file": str(applied.file or "")})
        return
    echo(", ".join(f"{count} {what}" for what, count in applied.done.items()) or "nothing to do")
    if applied.file:
        counts = ", ".join(f"{count} to {what}" for what, count in sorted(applied.decisions.items()))
        echo(f"Wrote {applied.file}: {counts}. Read it before you paste it; it holds ids.")
    print_next("study", "status", study)


@study_group.command()
@_study_argument
@json_option
def purge(study: Path, as_json: bool) -> None:
    """Delete every participant's id.

    Also the keyed hashes by which they could be found again. For when all are paid: the study must be closed, and the
    last day to withdraw over. Answers stay, under pseudonyms.
    """
    from stillme.study.submissions import purge as purge_ids

    with _opened(study) as opened:
        gone = purge_ids(opened)
    if as_json:
        print_json(gone)
        return
    deleted = f"{counted(gone.ids, 'id')} and the keyed hashes of {counted(gone.hashes, 'participant')}"
    echo(f"Deleted {deleted}, in the database and its log.")
    print_next("study", "export", study)


@study_group.command()
@_study_argument
def password(study: Path) -> None:
    """Set a new password for the admin pages, and print it."""
    from stillme.study.keys import change_password

    echo(change_password(study))
    print_next("study", "serve", study)


@study_group.command()
@_study_argument
@click.option(
    "--run", "run_folder", type=FOLDER, help="Where the run is now; by default where the study was drawn from."
)
@click.option("--wait", default=0.0, help="Seconds to wait while another process writes to the run.")
@click.option(
    "--demographics",
    type=FILE,
    help="Prolific's demographic export, for Table 17. Only counts are kept, and none below 5.",
)
@click.option("--exclude-flagged", "flagged", flag_value="exclude", help="Exclude raters who failed checks.")
@click.option("--include-flagged", "flagged", flag_value="include", help="Count raters who failed checks.")
@click.option("--dry-run", is_flag=True, help="Only show who will count; change nothing.")
@json_option
def close(
    study: Path,
    run_folder: Path | None,
    wait: float,
    demographics: Path | None,
    flagged: Any,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Stop taking answers and add the ratings to the run.

    The ratings are those of the judge `people`.

    Raters who failed attention checks, known answers or answered straight down are listed first. Unless `exclude` in
    study.toml says what becomes of them, you are asked. Each finished rater's ratings of an edit become one assessment.
    Whose answers have been added can no longer withdraw. Participants who are still rating are thanked and paid.
    Running it again adds only new ratings.
    """
    from stillme.study.closing import UndecidedRaters, close_study
    from stillme.study.progress import ids_held
    from stillme.study.submissions import describe

    options: dict[str, Any] = {"wait": wait, "dry_run": dry_run}
    with _opened(study) as opened:
        try:
            done = close_study(opened, run_folder, flagged=flagged or "ask", **options)
        except UndecidedRaters as undecided:
            if as_json or not sys.stdin.isatty():
                raise
            echo(str(undecided).rpartition("\n")[0], err=True)
            leave_out = click.confirm("Exclude them?", err=True)
            done = close_study(opened, run_folder, flagged="exclude" if leave_out else "include", **options)
        described = describe(opened, demographics, Path(done.run)) if demographics and not dry_run else None
        held = ids_held(opened)
    if as_json:
        print_json({**asdict(done), "ids_held": asdict(held)})
        return
    for case in done.flagged:
        echo(f"failed checks: {case}", err=True)
    excluded = ", ".join(f"{count} {reason}" for reason, count in done.excluded.items())
    raters = counted(done.raters, "rater counts", "raters count")
    who = f"{raters}; {f'excluded: {excluded}' if excluded else 'no one is excluded'}. {done.rule}"
    if dry_run:
        echo(f"{who}\nNothing was changed.")
        print_next("study", "close", study)
        return
    if done.ended:
        echo(f"{counted(done.ended, 'task')} under way ended; the page says so and pays by code.", err=True)
    if done.waits_until:
        echo(
            f"Closed. Participants may withdraw until the end of {done.waits_until}, so the answers of "
            f"{counted(done.raters, 'rater')} are not in the run yet. Close again after that day."
        )
        print_next("study", "status", study)
        return
    echo(
        f"{counted(done.added, 'assessment')} by {counted(done.raters, 'rater')} added to {done.run}"
        f"{f'; {done.already:,} were added before' if done.already else ''}.\n"
        f"{who}\n"
        f"To see them in the report, add to audit.toml:\n\n"
        f'[[judges]]\nuse = "people"\nepochs = {max(1, done.epochs)}\n'
    )
    if described:
        echo(f"Table 17 describes {described.count} of the raters; nothing about single people was kept.")
    if held:
        echo(str(held))
    print_next("run", done.run, "--only", "estimate")
