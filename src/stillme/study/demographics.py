"""Describe a study's raters from Prolific's demographic export: counts only, and no small ones."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from stillme.errors import StillmeError
from stillme.results import participants
from stillme.results.participants import Participants
from stillme.study import schema as t
from stillme.study.opening import Study
from stillme.study.ratings import raters
from stillme.study.submissions import rows_of_export

AGE, PERSON = "Age", "Participant id"
ATTRIBUTES = (
    *("Sex", "Ethnicity simplified", "Student status", "Employment status", "Language"),
    *("Country of birth", "Country of residence", "Nationality"),
)
_WITHHELD = ("CONSENT_REVOKED", "DATA_EXPIRED")
"""What Prolific writes where it has nothing to tell."""


def describe(study: Study, file: Path, run: Path) -> Participants:
    """Add the counts of the raters who finished and were not excluded to the run; returns them."""
    rows = _rows(file)
    with study.database.reading() as connection:
        counted = {rater.participant for rater in raters(study, connection) if rater.counts}
        known = connection.execute(sa.select(t.participant.c.ext_hmac).where(t.participant.c.id.in_(counted))).scalars()
        pseudonyms = set(known)
    ours = [row for row in rows if study.keys.pseudonym("participant", f"prolific:{row[PERSON]}") in pseudonyms]
    attributes = [name for name in ATTRIBUTES if name in rows[0]]
    summary = participants.summarised(study.id, ours, attributes, AGE)
    participants.add(run, summary)
    return summary


def _rows(file: Path) -> list[dict[str, str]]:
    rows = rows_of_export(file)
    if not rows or PERSON not in rows[0] or not {AGE, *ATTRIBUTES} & rows[0].keys():
        raise StillmeError(
            f"{file} lacks the column `{PERSON}`, or any of {', '.join((AGE, *ATTRIBUTES))}. Name a demographic "
            "export from Prolific."
        )
    return [{name: "" if value in _WITHHELD else value for name, value in row.items()} for row in rows]
