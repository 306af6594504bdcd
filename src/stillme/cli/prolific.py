"""Commands that talk to Prolific for a study: create, set, sync, approve, reject, return, webhook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from stillme.cli.options import Command, json_option, print_json, print_next
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.study.opening import Study
    from stillme.study.prolific.api import ProlificApi
    from stillme.study.prolific.following import Reviewed

_CATEGORIES = (
    *("too_quickly", "too_slowly", "failed_instructions", "incomp_longitudinal", "failed_check", "low_effort"),
    *("malingering", "no_code", "bad_code", "no_data", "unsupp_device", "other"),
)
_WEBHOOK_SECRET = "PROLIFIC_WEBHOOK_SECRET"


def _study_argument(command: Command) -> Command:
    folder = click.Path(path_type=Path, file_okay=False)
    command = click.option(
        "--database", envvar="STILLME_STUDY_DATABASE", help="postgresql://user@host/name; by default SQLite in STUDY."
    )(command)
    return click.argument("study", type=folder, default=".", metavar="[STUDY]")(command)


def _raters_option(required: bool) -> Callable[[Command], Command]:
    return click.option(
        "--rater",
        "raters",
        multiple=True,
        required=required,
        help="A rater, as `study status` names them; may be repeated.",
    )


_HELP = """Prolific for a study: create it there, follow submissions, pay.

\b
Set PROLIFIC_API_TOKEN (Prolific: Settings, API tokens); it is never stored.
  stillme study prolific create my-audit/study --address https://study.example
  stillme study prolific set publish my-audit/study
  stillme study prolific sync my-audit/study       returned places reopen, paid ids are deleted
  stillme study prolific approve my-audit/study    pay everybody who finished and counts
"""


@click.group("prolific", help=_HELP)
def prolific() -> None:
    """Prolific for a study."""


@prolific.command()
@_study_argument
@click.option("--address", required=True, help="Where participants reach the study: https://study.example")
@click.option("--description", default="", help="What participants read on Prolific; by default the title.")
@json_option
def create(study: Path, database: str | None, address: str, description: str, as_json: bool) -> None:
    """Create the study on Prolific, as a draft that nobody sees yet.

    Title, pay, time, places and completion codes come from study.toml; the draft's id is written into it. Look at the
    draft on Prolific, choose whom to invite there, then publish it.
    """
    from stillme.study.prolific.recruiting import create_study

    with _opened(study, database) as (opened, api):
        made = create_study(opened, api, address, description or opened.config.title)
        places = opened.drawn.batches * opened.config.raters
        pay = opened.config.pay
    if as_json:
        print_json({"study_id": made, "places": places})
        return
    echo(
        f"Draft {made} with {places} places at {pay.amount:.2f} {pay.currency} each, before Prolific's fees.\n"
        f"https://app.prolific.com/researcher/studies/{made}"
    )
    print_next("study", "prolific", "set", "publish", study)


@prolific.command("set")
@click.argument("action", type=click.Choice(["publish", "pause", "start", "stop"]))
@_study_argument
@click.option("--yes", is_flag=True, help="Do not ask before money is spent.")
@json_option
def set_state(action: str, study: Path, database: str | None, yes: bool, as_json: bool) -> None:
    """Publish, pause, start or stop the study on Prolific. Publishing spends money, so it asks."""
    from stillme.study.prolific.api import StudyAction
    from stillme.study.prolific.recruiting import require_id

    with _opened(study, database) as (opened, api):
        study_id = require_id(opened.config)
        if action == "publish" and not yes:
            there = api.study(study_id)
            places, reward = int(there.get("total_available_places") or 0), float(there.get("reward") or 0) / 100
            question = f"Publish {study_id}: {places} places at {reward:.2f} each, before Prolific's fees?"
            click.confirm(question, abort=True, err=True)
        status = api.transition_study(study_id, cast("StudyAction", action.upper()))
    if as_json:
        print_json({"study_id": study_id, "status": status})
        return
    echo(f"{study_id}: {status or action}")
    print_next("study", "prolific", "sync", study)


@prolific.command()
@_study_argument
@json_option
def sync(study: Path, database: str | None, as_json: bool) -> None:
    """Apply the status of every submission, and offer places for the raters still needed.

    Returned, rejected, timed-out and screened-out submissions free their places. The ids of approved ones are deleted.
    Where Prolific offers fewer places than the study needs, the number there is raised.
    """
    from stillme.study.prolific.following import sync as apply
    from stillme.study.prolific.recruiting import offer_places

    with _opened(study, database) as (opened, api):
        done = apply(opened, api)
        offered = offer_places(opened, api)
    if as_json:
        print_json({"done": dict(done), "places": offered.places, "raised_by": offered.more})
        return
    echo(", ".join(f"{count} {what}" for what, count in done.items()) or "nothing to do")
    if offered.more:
        echo(f"Prolific now offers {offered.places} places, {offered.more} more than before.")
    print_next("study", "status", study)


@prolific.command()
@_study_argument
@_raters_option(required=False)
@json_option
def approve(study: Path, database: str | None, raters: tuple[str, ...], as_json: bool) -> None:
    """Approve and pay: these raters, or everybody who finished and is not excluded."""
    from stillme.study.prolific.following import approve as act

    with _opened(study, database) as (opened, api):
        reviewed = act(opened, api, raters)
    _tell(reviewed, "approved", study, as_json)


@prolific.command()
@_study_argument
@_raters_option(required=True)
@click.option("--message", required=True, help="What the participant reads: at least 100 characters.")
@click.option(
    "--category",
    type=click.Choice(_CATEGORIES, case_sensitive=False),
    required=True,
    help="Prolific's category of the reason.",
)
@json_option
def reject(
    study: Path, database: str | None, raters: tuple[str, ...], message: str, category: Any, as_json: bool
) -> None:
    """Reject these raters' submissions. They are not paid, their answers do not count, and their places reopen."""
    from stillme.study.prolific.following import reject as act

    with _opened(study, database) as (opened, api):
        reviewed = act(opened, api, raters, message, category.upper())
    _tell(reviewed, "rejected", study, as_json)


@prolific.command("return")
@_study_argument
@_raters_option(required=True)
@click.option("--reason", required=True, help="What the participant reads.")
@json_option
def request_return(study: Path, database: str | None, raters: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Ask these raters to return their submissions. Their places reopen when they have: `sync` sees it."""
    from stillme.study.prolific.following import request_return as act

    with _opened(study, database) as (opened, api):
        reviewed = act(opened, api, raters, reason)
    _tell(reviewed, "asked to return", study, as_json)


@prolific.command()
@_study_argument
@click.option("--workspace", required=True, help="The id of the workspace on Prolific.")
@click.option("--address", required=True, help="Where Prolific reaches the study: https://study.example")
@json_option
def webhook(study: Path, database: str | None, workspace: str, address: str, as_json: bool) -> None:
    """Have Prolific report every change of a submission at once, signed.

    A workspace has one signing secret. Set PROLIFIC_WEBHOOK_SECRET to use the one it has; otherwise a new one replaces
    it, for every webhook of the workspace.
    """
    from stillme.study.prolific.webhook import subscribe

    with _opened(study, database) as (opened, api):
        subscription = subscribe(opened, api, workspace, address, os.environ.get(_WEBHOOK_SECRET, "").strip())
    if as_json:
        print_json({"subscription": subscription})
        return
    echo(f"Webhook {subscription}: Prolific reports changes of submissions to {address}.")
    print_next("study", "serve", study)


@contextmanager
def _opened(folder: Path, database: str | None) -> Generator[tuple[Study, ProlificApi]]:
    """The study and Prolific's API, whose token is asked for before anything is opened."""
    from stillme.study.opening import open_study
    from stillme.study.prolific.api import ProlificApi

    api = ProlificApi.from_environment()
    with open_study(folder, database) as study:
        yield study, api


def _tell(reviewed: Reviewed, what: str, study: Path, as_json: bool) -> None:
    if as_json:
        print_json({"done": dict(reviewed.done), "failed": dict(reviewed.failed)})
    else:
        echo(f"{len(reviewed.done)} {what}.")
        for rater, why in reviewed.failed.items():
            echo(f"{rater}: {why}", err=True)
        print_next("study", "status", study)
    if reviewed.failed:
        sys.exit(3)
