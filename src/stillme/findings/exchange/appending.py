"""Append scores to a run: what is there already stays, and what contradicts it is a problem."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stillme.audit.design import JudgeRecord, assessment_key
from stillme.core.errors import Problem
from stillme.core.files import sha256_of
from stillme.core.types import Assessment, Failed, Rated, Rating
from stillme.findings.exchange.row_table import RowTable
from stillme.runs.store import AssessmentRow, Store

CHUNK = 2_000


@dataclass(frozen=True, slots=True)
class RatedEdit:
    """An edit as its assessments are keyed."""

    key: str
    image: str


def provenance_of(file: Path) -> Mapping[str, str]:
    """What every row keeps of its file."""
    return {"file": file.name, "sha256": sha256_of(file)}


def new_assessments(
    store: Store,
    table: RowTable,
    judges: Mapping[str, JudgeRecord],
    edits: Sequence[RatedEdit],
    provenance: Mapping[str, str],
    problems: list[Problem],
) -> Iterator[AssessmentRow]:
    """The assessments that the run does not have yet; one that it has with other scores is a problem."""
    all_of_them = table.assessments()
    while chunk := list(itertools.islice(all_of_them, CHUNK)):
        rows = [
            _row(table, judges[judge], edits[edit], epoch, entries, provenance) for edit, judge, epoch, entries in chunk
        ]
        finished = store.finished("assessment", [row.key for row in rows])
        stored: defaultdict[str, dict[str, tuple[str, float | None]]] = defaultdict(dict)
        for key, axis, outcome, score in store.judgements(sorted(finished)):
            stored[key][axis] = (outcome, score)
        for row, (_, judge, _, entries) in zip(rows, chunk, strict=True):
            if row.key not in finished:
                yield row
            elif stored[row.key] != {axis: _plain(rating) for axis, rating in row.assessment.ratings.items()}:
                message = _differs(judge, stored[row.key], row.assessment.ratings)
                problems.append(Problem(place=f"line {table.line[entries[0]]}", message=message))


def _row(
    table: RowTable,
    judge: JudgeRecord,
    edit: RatedEdit,
    epoch: int,
    entries: Sequence[int],
    provenance: Mapping[str, str],
) -> AssessmentRow:
    rater = table.rater(entries[0])
    lines = sorted({table.line[entry] for entry in entries})
    return AssessmentRow(
        key=assessment_key(edit.key, edit.image, judge.spec.key, epoch),
        edit=edit.key,
        epoch=epoch,
        judge=judge.spec,
        assessment=Assessment(
            ratings={table.axes[table.axis[entry]]: table.rating(entry) for entry in entries},
            effective={**provenance, "lines": lines, **({"rater": rater} if rater else {})},
        ),
        attempts=1,
        seconds=0.0,
        cost=0.0,
    )


def _differs(judge: str, stored: Mapping[str, tuple[str, float | None]], ratings: Mapping[str, Rating]) -> str:
    before = ", ".join(f"{axis} {_shown(*score)}" for axis, score in sorted(stored.items()))
    now = ", ".join(f"{axis} {_shown(*_plain(rating))}" for axis, rating in sorted(ratings.items()))
    return (
        f"{judge!r} already has {before} for this edit, the file {now}. Rows are never changed: import the "
        "corrected scores under another judge's name, all of them"
    )


def _plain(rating: Rating) -> tuple[str, float | None]:
    match rating:
        case Rated(score=score):
            return "rated", score
        case Failed():
            return "failed", None
        case _:
            return "abstained", None


def _shown(outcome: str, score: float | None) -> str:
    return f"{score:g}" if score is not None else outcome
