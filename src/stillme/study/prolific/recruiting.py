"""Create the study on Prolific from study.toml, and say how many places it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from stillme.errors import StillmeError
from stillme.files import write_whole
from stillme.study import config as configs
from stillme.study.config import Config, Prolific
from stillme.study.opening import Study
from stillme.study.progress import progress
from stillme.study.prolific.api import ProlificApi
from stillme.types import Json

_NAMES = {"PROLIFIC_PID": "{{%PROLIFIC_PID%}}", "STUDY_ID": "{{%STUDY_ID%}}", "SESSION_ID": "{{%SESSION_ID%}}"}

_ENDED = ("COMPLETED", "UNPUBLISHED")
"""Statuses in which a study's places cannot be raised, or need not be yet."""


def create_study(study: Study, api: ProlificApi, address: str, description: str) -> str:
    """Create a draft on Prolific and write its id into study.toml; returns the id."""
    prolific = prolific_of(study.config)
    if prolific.study_id:
        raise StillmeError(
            f"study.toml already names the study {prolific.study_id}. Remove `study_id` to make another."
        )
    if not address.startswith("https://"):
        raise StillmeError(
            "Prolific needs an address that its participants reach over https; give it with `--address`."
        )
    made = api.create_study(as_prolific_study(study, address, description))
    _keep_id(study.folder, made)
    return made


def as_prolific_study(study: Study, address: str, description: str) -> dict[str, Json]:
    """The body of `POST /api/v1/studies/`."""
    config, prolific = study.config, prolific_of(study.config)
    places = study.drawn.batches * config.raters
    entry = f"{address.rstrip('/')}/enter"
    # Braces and percent signs are Prolific's placeholders, filled in for each participant; they stay as they are.
    query = "&".join(f"{name}={placeholder}" for name, placeholder in _NAMES.items())
    body: dict[str, Json] = {
        "name": config.title,
        "internal_name": f"stillme {study.id}",
        "description": description,
        "external_study_url": f"{entry}?{query}",
        "prolific_id_option": "url_parameters",
        "completion_codes": _completion_codes(prolific, places),
        "total_available_places": places,
        "estimated_completion_time": max(1, round(config.pay.minutes)),
        "reward": round(100 * config.pay.amount),
        "device_compatibility": ["desktop", "tablet"],
        "submissions_config": {"max_submissions_per_participant": 1},
    }
    if prolific.token:
        body["is_external_study_url_secure"] = True
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """How many places Prolific offers."""

    places: int
    more: int
    """How many of them are new."""


def offer_places(study: Study, api: ProlificApi) -> Offered:
    """Raise the places on Prolific where it offers fewer than there are raters to come.

    Prolific reopens the place of a returned or rejected submission by itself, but not of one that we excluded after it
    was approved, nor of somebody who timed out there and was replaced here.
    """
    study_id = require_id(study.config)
    there = api.study(study_id)
    places, taken = int(there.get("total_available_places") or 0), int(there.get("places_taken") or 0)
    with study.database.reading() as connection:
        needed = progress(study, connection).raters_needed
    more = max(0, needed - (places - taken))
    if more and str(there.get("status", "")).upper() not in _ENDED:
        api.set_places(study_id, places + more)
        return Offered(places=places + more, more=more)
    return Offered(places=places, more=0)


def prolific_of(config: Config) -> Prolific:
    """The section `[prolific]`; an error without one."""
    if config.prolific is None:
        raise StillmeError("study.toml has no section [prolific]. `stillme study new RUN --prolific` writes one.")
    return config.prolific


def require_id(config: Config) -> str:
    """The study's id on Prolific; an error without one."""
    if not (study_id := prolific_of(config).study_id):
        raise StillmeError(
            "study.toml names no `study_id`. `stillme study prolific create` makes the study on Prolific."
        )
    return study_id


def _completion_codes(prolific: Prolific, places: int) -> list[Json]:
    codes = prolific.codes
    review: Json = [{"action": "MANUALLY_REVIEW"}]

    def returned(reason: str) -> Json:
        return [{"action": "REQUEST_RETURN", "return_reason": reason}]

    kinds: list[tuple[str, str, Json]] = [
        (codes.completed, "COMPLETED", review),
        (codes.failed_attention, "FAILED_ATTENTION_CHECK", review),
        (codes.no_consent, "NO_CONSENT", returned("You did not agree to take part.")),
        (codes.incompatible_device, "INCOMPATIBLE_DEVICE", returned("Your device does not fit this study.")),
        (codes.other, "OTHER", review),
    ]
    if codes.screened_out and prolific.screen_out_reward:
        pay: Json = [
            {
                "action": "FIXED_SCREEN_OUT_PAYMENT",
                "fixed_screen_out_reward": round(100 * prolific.screen_out_reward),
                # More are screened out than take part only where something is wrong; Prolific then pauses the study.
                "slots": places,
            }
        ]
        kinds.append((codes.screened_out, "FIXED_SCREENOUT", pay))
    elif codes.screened_out:
        # Fixed payment is not open to every workspace; review lets the researcher pay.
        kinds.append((codes.screened_out, "OTHER", review))
    return [{"code": code, "code_type": kind, "actions": actions} for code, kind, actions in kinds if code]


def _keep_id(folder: Path, study_id: str) -> None:
    file = folder / configs.FILE
    text = file.read_text("utf-8")
    changed, count = re.subn(r'(?m)^(\s*study_id\s*=\s*)(""|\'\')', rf'\g<1>"{study_id}"', text, count=1)
    if not count:
        changed, count = re.subn(r"(?m)^(\[prolific\][^\n]*\n)", rf'\g<1>study_id = "{study_id}"\n', text, count=1)
    if not count:
        raise StillmeError(
            f'The draft {study_id} was made. Write `study_id = "{study_id}"` under [prolific] in {file}.'
        )
    write_whole(file, changed)


def completion_address(code: str) -> str:
    """Where a participant goes with a code."""
    return "https://app.prolific.com/submissions/complete?" + urlencode({"cc": code})
