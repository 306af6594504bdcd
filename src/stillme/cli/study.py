"""Commands of the human study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stillme.cli.options import Command, json_option, opened_run, print_json, print_next
from stillme.cli.prolific import prolific
from stillme.cli.terminal import echo

_FOLDER = click.Path(path_type=Path, file_okay=False)


def _study_argument(command: Command) -> Command:
    return click.argument("study", type=_FOLDER, default=".", metavar="[STUDY]")(command)


def _database_option(command: Command) -> Command:
    return click.option(
        "--database", envvar="STILLME_STUDY_DATABASE", help="postgresql://user@host/name; by default SQLite in STUDY."
    )(command)


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
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=_FOLDER, help="Folder of the study; by default `study` inside the run.")
@click.option(
    "--items", default=500, show_default=True, help="Items to draw, balanced over prompts, groups and editors."
)
@click.option("--per-task", default=50, show_default=True, help="Items per participant.")
@click.option(
    "--compare",
    type=click.Choice(["auto", "arms", "editors", "none", "roles"]),
    default="auto",
    show_default=True,
    help="What an item compares: baseline and feature arm, two editors, nothing (one picture), or two people (roles).",
)
@click.option(
    "--first",
    type=click.Choice(["nothing", "disputed", "flagged"]),
    default="nothing",
    show_default=True,
    help="Draw edits first that judges dispute or flag. The sample is then not random, so group means are biased.",
)
@click.option(
    "--choose",
    type=click.Choice(["random", "informative"]),
    default="random",
    show_default=True,
    help="`informative`: likelier where models disagree, with known chances; corrected means weigh by them.",
)
@click.option("--gold", default=2, show_default=True, help="Items with known answers, per task.")
@click.option("--attention", default=2, show_default=True, help="Attention checks, per task.")
@click.option("--repeats", default=2, show_default=True, help="Items shown twice, per task.")
@click.option(
    "--size",
    "side",
    default=768,
    show_default=True,
    help="Side of the square that every picture is fitted to, in pixels.",
)
@click.option("--prolific", is_flag=True, help="Add a [prolific] section to fill in.")
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
    from stillme.study.drawing import Design, new_study

    for name in ("items", "per_task", "gold", "attention", "repeats", "side"):
        least = 0 if name in ("gold", "attention", "repeats") else 1
        if design[name] < least:
            raise click.UsageError(f"--{name.replace('_', '-')} is at least {least}.")
    with opened_run(run) as recorded:
        made = new_study(recorded, out, Design(**design), lambda text: echo(text, err=True))
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
            f"{made.folder}: {real:,} items in {made.drawn.batches} tasks; compared: {made.drawn.design['compare']}.\n"
            f"Admin password, shown only now: {made.password}\n"
            f"Edit {made.folder / 'study.toml'} before you serve it."
        )
        print_next("study", "preview", made.folder)


@study_group.command()
@_study_argument
@_database_option
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 allows other machines.")
@click.option("--port", type=int, help="By default the first free port from 8470.")
@click.option("--public-url", default="", help="The https address of the proxy in front.")
@click.option(
    "--proxy", "proxies", multiple=True, metavar="ADDRESS", help="A proxy that is trusted to name the client."
)
@click.option("--workers", default=1, show_default=True, help="Processes; more than one needs PostgreSQL.")
def serve(study: Path, database: str | None, proxies: tuple[str, ...], **options: Any) -> None:
    """Serve a study until interrupted.

    By default only this machine can connect. Every answer is on disk before the page confirms it. Changed texts or
    questions in study.toml are a new version, for people who have not begun.
    """
    from stillme.study.serving import ServeOptions
    from stillme.study.serving import serve as run

    run(study, ServeOptions(database=database, proxies=proxies, **options), echo)
    print_next("study", "status", study)


@study_group.command()
@_study_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 allows other machines.")
@click.option("--port", type=int, help="By default the first free port from 8470.")
def preview(study: Path, **options: Any) -> None:
    """Show the whole study to yourself, on a database that is thrown away.

    Every page from consent to the completion code, and the admin pages. Nothing of it is kept.
    """
    from stillme.study.serving import ServeOptions
    from stillme.study.serving import preview as run

    run(study, ServeOptions(**options), echo)
    print_next("study", "serve", study)


@study_group.command()
@click.argument("count", type=click.IntRange(1, 10_000))
@_study_argument
@_database_option
@click.option("--address", default="", help="Printed in front of each link, such as https://study.example")
@json_option
def invite(study: Path, database: str | None, count: int, address: str, as_json: bool) -> None:
    """Make COUNT personal invitation links, for participants who are not from Prolific.

    Only their hashes are stored, so save the links now.
    """
    from stillme.study.entry import invite as make
    from stillme.study.opening import open_study

    with open_study(study, database) as opened:
        links = [f"{address.rstrip('/')}/i/{code}" for code in make(opened, count)]
    if as_json:
        print_json(links)
    else:
        echo("\n".join(links))
        print_next("study", "serve", study)


@study_group.command()
@_study_argument
@_database_option
@json_option
def status(study: Path, database: str | None, as_json: bool) -> None:
    """Show a study's progress: tasks, pay per hour, agreement, flags.

    Works while the study is served. Exits with 1 if the median pay is below the study's floor.
    """
    from stillme.study.opening import open_study
    from stillme.study.overview import overview_of

    with open_study(study, database) as opened:
        overview = overview_of(opened)
    if as_json:
        print_json(overview.as_json())
    else:
        echo(overview.as_text())
        print_next("study", "close", study)
    if overview.progress.alarm:
        sys.exit(1)


@study_group.command()
@_study_argument
@_database_option
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the tables.",
)
@click.option("--to", type=_FOLDER, help="By default `export` in the study.")
@json_option
def export(study: Path, database: str | None, kind: Any, to: Path | None, as_json: bool) -> None:
    """Write ratings, items, raters and exclusions as tables, with a codebook.

    Raters have pseudonyms, and times count from each rater's start.
    """
    from stillme.study.export import export_study
    from stillme.study.opening import open_study

    with open_study(study, database) as opened:
        written = export_study(opened, to or study / "export", kind)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        echo("\n".join(f"Wrote {path}" for path in written))
        print_next("study", "close", study)


@study_group.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_study_argument
@_database_option
@json_option
def submissions(study: Path, database: str | None, file: Path, as_json: bool) -> None:
    """Apply the submission statuses of Prolific's export (FILE).

    Returned, timed-out and screened-out submissions free their places. Rejected ones are excluded. The Prolific
    IDs of approved ones are deleted.
    """
    from stillme.study.opening import open_study
    from stillme.study.submissions import apply_statuses

    with open_study(study, database) as opened:
        done = apply_statuses(opened, file)
    if as_json:
        print_json(dict(done))
    else:
        echo(", ".join(f"{count} {what}" for what, count in done.items()) or "nothing to do")
        print_next("study", "status", study)


@study_group.command()
@_study_argument
def password(study: Path) -> None:
    """Set a new password for the admin pages, and print it."""
    from stillme.study.keys import change_password

    echo(change_password(study))
    print_next("study", "serve", study)


@study_group.command()
@_study_argument
@_database_option
@click.option(
    "--run", "run_folder", type=_FOLDER, help="Where the run is now; by default where the study was drawn from."
)
@click.option("--wait", default=0.0, help="Seconds to wait while another process writes to the run.")
@click.option(
    "--demographics",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Prolific's demographic export, for Table 17. Only counts are kept, and none below 5.",
)
@json_option
def close(
    study: Path, database: str | None, run_folder: Path | None, wait: float, demographics: Path | None, as_json: bool
) -> None:
    """Stop taking answers and add the ratings to the run, as the judge `people`.

    Each finished rater's ratings of an edit become one assessment. Whose answers have been added can no longer
    withdraw. Whoever is still rating is thanked and paid. Running it again adds only new ratings.
    """
    from stillme.study.closing import close_study
    from stillme.study.demographics import describe
    from stillme.study.opening import open_study

    with open_study(study, database) as opened:
        done = close_study(opened, run_folder, wait=wait)
        described = describe(opened, demographics, Path(done.run)) if demographics else None
    if as_json:
        print_json(done.as_json())
        return
    if done.ended:
        echo(f"{done.ended} tasks were under way and have been ended; their page says so and pays by code.", err=True)
    if done.waits_until:
        echo(
            f"Closed. Participants may withdraw until the end of {done.waits_until}, so the answers of {done.raters} "
            "raters are not in the run yet. Close again after that day."
        )
        print_next("study", "status", study)
        return
    echo(
        f"{done.added:,} assessments by {done.raters} raters added to {done.run}"
        f"{f'; {done.already:,} were added before' if done.already else ''}"
        f"{f'; {done.excluded} raters excluded' if done.excluded else ''}.\n"
        f"To see them in the report, add to audit.toml:\n\n"
        f'[[judges]]\nuse = "people"\nepochs = {max(1, done.epochs)}\n'
    )
    if described:
        echo(f"Table 17 describes {described.count} of the raters; nothing about single people was kept.")
    print_next("run", done.run, "--only", "estimate")


study_group.add_command(prolific)
