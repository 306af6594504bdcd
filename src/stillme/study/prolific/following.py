"""Bring Prolific's submissions and ours together: sync, approve, reject, ask for a return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from stillme.errors import StillmeError
from stillme.study import schema as t
from stillme.study import shredding
from stillme.study.opening import Study
from stillme.study.prolific.api import ProlificApi, ProlificError, RejectionCategory, RemoteSubmission
from stillme.study.prolific.recruiting import require_id
from stillme.study.submissions import Submission, apply_status, submissions

SHORTEST_MESSAGE = 100
"""Characters that Prolific asks of a rejection's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """What became of the submissions that were to be approved, rejected or returned."""

    done: Mapping[str, str]
    """By rater, the submission's status on Prolific."""
    failed: Mapping[str, str]
    """By rater, why not."""


def sync(study: Study, api: ProlificApi) -> Mapping[str, int]:
    """Apply the status of every submission on Prolific; returns counts."""
    listed = list(api.submissions(require_id(study.config)))
    return apply_all(study, listed, "prolific sync")


def apply_all(study: Study, listed: Iterable[RemoteSubmission], source: str) -> Mapping[str, int]:
    """Apply these statuses in one transaction; returns counts of what was done."""
    done: Counter[str] = Counter()
    with study.database.writing() as connection:
        for remote in listed:
            done[apply_status(study, connection, remote.pid, remote.status, remote.id)] += 1
        del done[""]
        study.record(connection, "prolific", "applied statuses", source=source, **done)
    if not shredding.shred(study.database, study.id):
        done["deletion still to be finished, as another program reads the database"] = 1
    return done


def approve(study: Study, api: ProlificApi, raters: Sequence[str]) -> Reviewed:
    """Approve these raters' submissions, or without any those of everybody who finished and counts."""
    with study.database.reading() as connection:
        listed = submissions(study, connection)
        excluded = _excluded(study, connection)
    chosen = _named(listed, raters) if raters else [one for one in listed if one.slot_state == "done"]
    return _review(study, chosen if raters else [one for one in chosen if one.rater not in excluded], api.approve)


def reject(
    study: Study, api: ProlificApi, raters: Sequence[str], message: str, category: RejectionCategory
) -> Reviewed:
    """Reject these raters' submissions, with a message to each."""
    if len(message) < SHORTEST_MESSAGE:
        raise StillmeError(
            f"Prolific wants at least {SHORTEST_MESSAGE} characters that explain a rejection; this has {len(message)}."
        )
    return _review(study, _chosen(study, raters), lambda submission: api.reject(submission, message, category))


def request_return(study: Study, api: ProlificApi, raters: Sequence[str], reason: str) -> Reviewed:
    """Ask these raters to return their submissions."""
    if not reason.strip():
        raise StillmeError("Say why, in words for the participant: `--reason`.")
    return _review(study, _chosen(study, raters), lambda submission: api.request_return(submission, [reason]))


def _review(study: Study, chosen: Sequence[Submission], act: Callable[[str], str]) -> Reviewed:
    done: dict[str, str] = {}
    failed: dict[str, str] = {}
    for one in chosen:
        try:
            status = act(one.submission)
        except ProlificError as error:
            failed[one.rater] = str(error)
            continue
        done[one.rater] = status
        # At once, so that a crash in the middle leaves nobody paid and unknown.
        apply_all(study, [RemoteSubmission(id=one.submission, pid=one.pid, status=status)], "prolific review")
    return Reviewed(done=done, failed=failed)


def _chosen(study: Study, raters: Sequence[str]) -> list[Submission]:
    with study.database.reading() as connection:
        return _named(submissions(study, connection), raters)


def _named(listed: Sequence[Submission], raters: Sequence[str]) -> list[Submission]:
    known = {one.rater: one for one in listed}
    for rater in raters:
        if rater not in known:
            raise StillmeError(
                f"No submission of {rater} is known. `stillme study status` lists raters; paid ones are forgotten."
            )
    return [known[rater] for rater in dict.fromkeys(raters)]


def _excluded(study: Study, connection: sa.Connection) -> set[str]:
    from stillme.study.ratings import pseudonym

    rows = connection.execute(
        sa.select(t.participant.c.id).where(t.participant.c.study == study.id, t.participant.c.excluded.is_not(None))
    )
    return {pseudonym(study, participant) for participant in rows.scalars()}
