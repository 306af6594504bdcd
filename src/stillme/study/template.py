"""Write the study.toml of a new study, with every setting explained where it stands."""

from __future__ import annotations

import secrets
from importlib.resources import files

from stillme.study.config import Codes
from stillme.study.items import Drawn

SECONDS_PER_ITEM = 30
"""What careful raters needed for two outputs and five questions."""
SECONDS_PER_PAIR = 15
"""For one question about two people and a scene."""
RETENTION = (
    "Your answers, without anything that identifies you: for good, and they may be published for research. "
    "A Prolific ID: encrypted, apart from your answers, until you have been paid."
)

_TEMPLATE = """\
# A human study: {items} items in {tasks} tasks of about {per_task}, drawn from {run}
# `stillme study preview` shows it to you, `stillme study serve` to participants. Changed texts and questions are a new
# version, for people who have not begun.

title = "How well do image editors follow instructions?"
contact = ""                    # to fill in: whom participants may ask, such as an e-mail address; on every page
raters = 3                      # people per item
lease_minutes = 60              # after so long without an answer a place goes to somebody else
can_abstain = true              # offer "cannot tell" beside 1 to 5
min_width = 740                 # pixels; narrower windows are turned away
{questions}

[pay]
amount = {amount:.2f}                   # for one task
currency = "USD"
minutes = {minutes}                    # expected for one task
floor = 12.00                   # per hour; below it the admin pages raise an alarm

# The consent page states these below its text, with pay, time and contact.
[consent]
retention = "{retention}"
# withdraw_until = 2030-12-31   # the last day to withdraw; without it, until `stillme study close`

[checks]
seconds_per_item = 4.0          # less active time than this counts as too fast
training_tries = 0              # wrong tries at the training after which somebody is screened out; 0: no limit
send_failed_code = false        # whether failing every attention check changes the completion code
{prolific}
# What participants read, in Markdown. Have your ethics board approve it.
[texts]
consent = '''
{consent}'''
guide = '''
{guide}'''
debrief = '''
{debrief}'''
"""

_QUESTIONS = """\
# The rubric's own wording is shown, as the models get it. age_accuracy is asked only where a prompt names years.
questions = ["edit_success", "skin_tone", "race_change", "gender_change", "age_change", "age_accuracy"]"""

_PAIR_QUESTIONS = """\
# Who of two people is drawn as the target; the sentence is not shown, because its pronoun would tell.
questions = ["role_target"]"""

_PROLIFIC = """
[prolific]
study_id = ""                   # if given, entries for another study are refused
screen_out_reward = 0           # paid at once to whoever is screened out, where your workspace offers it
[prolific.codes]                # `stillme study prolific create` sends them; or enter them on the study's page there
completed = "{completed}"
failed_attention = "{failed_attention}"
no_consent = "{no_consent}"
screened_out = "{screened_out}"
incompatible_device = "{incompatible_device}"
other = "{other}"                # study full, technical trouble: paid
# [prolific.token]              # signed entries only; docs/study.md tells how
# audience = "https://study.example"
"""


def study_toml(drawn: Drawn, *, prolific: bool) -> str:
    """The file's text."""
    real = sum(item.kind == "real" for item in drawn.items)
    shown = sum(item.batch == 0 for item in drawn.items)
    in_pairs = any(item.second for item in drawn.items)
    minutes = max(5, round(shown * (SECONDS_PER_PAIR if in_pairs else SECONDS_PER_ITEM) / 60) + 4)
    return _TEMPLATE.format(
        items=real,
        tasks=drawn.batches,
        per_task=shown,
        run=drawn.run,
        minutes=minutes,
        amount=-(-minutes * 12 * 100 // 60) / 100,
        prolific=_PROLIFIC.format(**{kind: _new_code() for kind in Codes.model_fields}) if prolific else "",
        retention=RETENTION,
        consent=_text("consent"),
        questions=_PAIR_QUESTIONS if in_pairs else _QUESTIONS,
        guide=_text("guide-pairs" if in_pairs else "guide"),
        debrief=_text("debrief"),
    )


def _text(name: str) -> str:
    return files("stillme.study").joinpath("texts", f"{name}.md").read_text("utf-8")


def _new_code() -> str:
    """As Prolific's own: eight letters and digits, without those that look alike."""
    return "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(8))
