"""Rows of scores, read once; and as assessments of a run.

What a run has already stays, and what contradicts it is a problem.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from stillme.audit.design import JudgeRecord, assessment_key
from stillme.core import rubric
from stillme.core.errors import Problem
from stillme.core.files import sha256_of
from stillme.core.types import Assessment, Rating, digest
from stillme.findings.exchange.columns import FileRow, Layout, Unreadable
from stillme.runs.store import AssessmentRow, Store
from stillme.runs.store.rows import rating_values

Kind = Literal["model", "instrument", "person"]
JUDGE = "judge"
"""The judge of a file that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """What the user says about the rows. What is left out stays as it is in a run that exists."""

    groups: tuple[str, ...] = ()
    """Columns of the portraits' attributes, whose groups are compared."""
    people: tuple[str, ...] = ()
    """The judges that are people."""
    instruments: tuple[str, ...] = ()
    """The judges that measure."""
    models: tuple[str, ...] = ()
    """The judges that are models: all others too, but an audit takes only judges whose kind is said."""
    reference: Mapping[str, str] = field(default_factory=dict[str, str])
    title: str = ""
    confidence: float | None = None
    rule: str | None = None
    """How models are combined."""
    primary: str = ""
    """The model that decides where two are more than a point apart, under the paper's rule."""
    paper: Mapping[str, str] = field(default_factory=dict[str, str])
    """Editor to the paper's editor that it is, such as `flux2-dev`."""
    race_cut: int | None = None
    """From which score on the paper's Tables 19 and 20 count a race as changed."""

    def kind(self, judge: str) -> Kind | None:
        """What a judge is; None where it is not said."""
        named: Mapping[Kind, Collection[str]] = {
            "person": self.people,
            "instrument": self.instruments,
            "model": self.models,
        }
        return next((kind for kind, names in named.items() if judge in names), None)


class RatedEdits(Protocol):
    """The edits that rows are about: those of a run, or new ones."""

    def find(self, row: FileRow, arm: str, *, has_scores: bool) -> int | None:
        """The number of the edit; None for one without a picture. Raises `Unreadable` with what is wrong."""
        ...

    def subcategory(self, edit: int) -> str:
        """Of its prompt; empty where that is not known."""
        ...


def pseudonym(rater: str) -> str:
    """A rater's name for ledgers and exports: the same for the same person, and no participant id."""
    return f"R{digest(['rater', rater])[:8]}" if rater else ""


@dataclass(slots=True)
class RowAnswer:
    """All that one rater says of one edit."""

    edit: int
    judge: str
    epoch: int
    rater: str
    """The pseudonym; empty where raters are not named."""
    ratings: dict[str, Rating] = field(default_factory=dict[str, Rating])
    lines: dict[str, int] = field(default_factory=dict[str, int])
    """By axis: where the file says so."""


class RowTable:
    """Who said what of which edit."""

    def __init__(self, layout: Layout, edits: RatedEdits) -> None:
        self._layout, self._found = layout, edits
        self.judges: dict[str, set[str]] = {}
        """By name: the axes that the judge answers."""
        self.epochs: dict[str, int] = {}
        """By judge: how many answers there are about one edit at most."""
        self._answers: dict[tuple[int, str, int], RowAnswer] = {}
        self._raters: dict[tuple[str, int], dict[str, int]] = {}
        """By judge and edit: the place of each rater among those who rated it, by pseudonym."""
        self._names_raters: dict[str, bool] = {}

    @property
    def edits(self) -> set[int]:
        """The edits that have an answer."""
        return {edit for edit, _, _ in self._answers}

    @property
    def answers(self) -> list[RowAnswer]:
        """Edit by edit, and of each the judges in the order in which the file names them."""
        order = {judge: place for place, judge in enumerate(self.judges)}
        return sorted(self._answers.values(), key=lambda answer: (answer.edit, order[answer.judge], answer.epoch))

    def count(self, kind: type[Rating]) -> int:
        """How many ratings are of this kind."""
        return sum(isinstance(rating, kind) for answer in self._answers.values() for rating in answer.ratings.values())

    def known_raters(self, judge: str, edit: int, epoch: int, name: str) -> None:
        """Remember who has rated an edit already, so that the next rater gets the next place."""
        self._raters.setdefault((judge, edit), {})[name] = epoch

    def add(self, row: FileRow) -> None:
        """Take a row in, or raise `Unreadable`."""
        for arm, ratings in self._layout.parts(row):
            edit = self._found.find(row, arm, has_scores=bool(ratings))
            # A row without scores is an edit that this judge did not rate.
            if edit is not None and ratings:
                self._rate(row, edit, ratings)

    def _rate(self, row: FileRow, edit: int, ratings: Mapping[str, Rating]) -> None:
        judge = self._layout.cell(row, "judge") or JUDGE
        axes = self.judges.setdefault(judge, set())
        rater = pseudonym(self._layout.cell(row, "rater"))
        epoch = self._epoch(row, judge, edit, rater)
        self.epochs[judge] = max(self.epochs.get(judge, 1), epoch + 1)
        answer = self._answers.setdefault((edit, judge, epoch), RowAnswer(edit, judge, epoch, rater))
        word, _, line = row.place.rpartition(" ")
        for axis, rating in ratings.items():
            only = rubric.load().axes[axis].only
            if only and (subcategory := self._found.subcategory(edit)) and subcategory != only:
                raise Unreadable(f"{axis} is asked only of {only} prompts, and this prompt is {subcategory}; remove it")
            if axis in answer.ratings:
                how = "name the raters in a column `rater`, or number the answers in `epoch`"
                absent = [f"`{name}`" for name in ("prompt", "seed") if not self._layout.has(name)]
                if absent:
                    column = "columns" if len(absent) > 1 else "column"
                    how = (
                        f"if these are two edits, the {column} {' and '.join(absent)} would tell them apart; else {how}"
                    )
                raise Unreadable(f"{axis} of this edit by {judge!r} is already in {word} {answer.lines[axis]}; {how}")
            axes.add(axis)
            answer.ratings[axis], answer.lines[axis] = rating, int(line)

    def _epoch(self, row: FileRow, judge: str, edit: int, rater: str) -> int:
        """Which of the answers about an edit this is: by its number, or by its rater's place among the raters."""
        epoch = self._layout.cell(row, "epoch")
        if epoch and not epoch.isdecimal():
            raise Unreadable(f"epoch = {epoch!r} is not a whole number; number answers from 0")
        if self._names_raters.setdefault(judge, bool(rater or epoch)) != bool(rater or epoch):
            raise Unreadable(
                f"some rows of {judge!r} name a rater or epoch and others do not; fill it in for all of them"
            )
        if not rater:
            return int(epoch or 0)
        places = self._raters.setdefault((judge, edit), {})
        return places.setdefault(rater, len(places))


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
    order = list(rubric.load().axes)
    answers = iter(table.answers)
    while chunk := list(itertools.islice(answers, CHUNK)):
        rows = [_row(answer, judges[answer.judge], edits[answer.edit], provenance, order) for answer in chunk]
        finished = store.finished("assessment", [row.key for row in rows])
        stored: defaultdict[str, dict[str, tuple[str, float | None]]] = defaultdict(dict)
        for key, axis, outcome, score in store.judgements(sorted(finished)):
            stored[key][axis] = (outcome, score)
        for row, answer in zip(rows, chunk, strict=True):
            said = {axis: rating_values(rating)[:2] for axis, rating in row.assessment.ratings.items()}
            if row.key not in finished:
                yield row
            elif (before := stored[row.key]) != said:
                message = (
                    f"{answer.judge!r} already has {_listed(before)} for this edit, the file {_listed(said)}. Rows are "
                    "never changed: import the corrected scores under another judge's name, all of them"
                )
                problems.append(Problem(place=f"line {answer.lines[next(iter(said))]}", message=message))


def _row(
    answer: RowAnswer, judge: JudgeRecord, edit: RatedEdit, provenance: Mapping[str, str], order: Sequence[str]
) -> AssessmentRow:
    lines, named = sorted(set(answer.lines.values())), {"rater": answer.rater} if answer.rater else {}
    return AssessmentRow(
        key=assessment_key(edit.key, edit.image, judge.spec.key, answer.epoch),
        edit=edit.key,
        epoch=answer.epoch,
        judge=judge.spec,
        assessment=Assessment(
            ratings={axis: answer.ratings[axis] for axis in order if axis in answer.ratings},
            effective={**provenance, "lines": lines, **named},
        ),
        attempts=1,
        seconds=0.0,
        cost=0.0,
    )


def _listed(said: Mapping[str, tuple[str, float | None]]) -> str:
    return ", ".join(
        f"{axis} {outcome if score is None else f'{score:g}'}" for axis, (outcome, score) in sorted(said.items())
    )
