"""Rows of scores as codes and numbers, read once with a few bytes for each score; and as assessments of a run.

What a run has already stays, and what contradicts it is a problem.
"""

from __future__ import annotations

import itertools
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from stillme.audit.design import JudgeRecord, assessment_key
from stillme.core import rubric
from stillme.core.errors import Problem
from stillme.core.files import sha256_of
from stillme.core.types import Abstained, Assessment, Failed, Rated, Rating, digest
from stillme.findings.exchange.columns import FileRow, Layout, Unreadable
from stillme.runs.store import AssessmentRow, Store
from stillme.runs.store.rows import rating_values

Kind = Literal["model", "instrument", "person"]
JUDGE = "judge"
"""The judge of a file that names none."""
RATED, ABSTAINED, FAILED = range(3)
_OUTCOMES = ("rated", "abstained", "failed")


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


class RowTable:
    """Who said what of which edit."""

    def __init__(self, layout: Layout, edits: RatedEdits) -> None:
        self._layout, self._found = layout, edits
        self.judges: dict[str, set[str]] = {}
        """By name: the axes that the judge answers."""
        self.epochs: dict[str, int] = {}
        """By judge: how many answers there are about one edit at most."""
        self._raters: dict[tuple[str, int], dict[str, int]] = {}
        """By judge and edit: the place of each rater among those who rated it, by pseudonym."""
        self._names_raters: dict[str, bool] = {}
        self.axes = tuple(rubric.load().axes)
        self._axis_codes = {axis: code for code, axis in enumerate(self.axes)}
        # One entry a score.
        self.edits, self.by, self.epoch, self.line = array("i"), array("h"), array("i"), array("i")
        self.axis, self.outcome, self.scores = array("h"), array("b"), array("d")
        self._reasons: dict[int, str] = {}
        self._seen: dict[int, int] = {}

    def known_raters(self, judge: str, edit: int, epoch: int, name: str) -> None:
        """Remember who has rated an edit already, so that the next rater gets the next place."""
        self._raters.setdefault((judge, edit), {})[name] = epoch

    def rater(self, entry: int) -> str:
        """The pseudonym of who gave a score; empty where raters are not named."""
        places = self._raters.get((list(self.judges)[self.by[entry]], self.edits[entry]), {})
        return next((name for name, place in places.items() if place == self.epoch[entry]), "")

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
        code = list(self.judges).index(judge)
        epoch = self._epoch(row, judge, edit)
        self.epochs[judge] = max(self.epochs.get(judge, 1), epoch + 1)
        line = int(row.place.rpartition(" ")[2])
        for axis, rating in ratings.items():
            only = rubric.load().axes[axis].only
            if only and (subcategory := self._found.subcategory(edit)) and subcategory != only:
                raise Unreadable(f"{axis} is asked only of {only} prompts, and this prompt is {subcategory}; remove it")
            place = self._axis_codes[axis]
            answer = hash((edit, code, epoch, place))
            if answer in self._seen:
                how = "name the raters in a column `rater`, or number the answers in `epoch`"
                absent = [f"`{name}`" for name in ("prompt", "seed") if not self._layout.has(name)]
                if absent:
                    column = "columns" if len(absent) > 1 else "column"
                    how = (
                        f"if these are two edits, the {column} {' and '.join(absent)} would tell them apart; else {how}"
                    )
                word = row.place.rpartition(" ")[0]
                raise Unreadable(f"{axis} of this edit by {judge!r} is already in {word} {self._seen[answer]}; {how}")
            self._seen[answer] = line
            axes.add(axis)
            outcome, score, reason = rating_values(rating)
            if reason and reason != _NO_REASON:
                self._reasons[len(self.edits)] = reason
            self.edits.append(edit)
            self.by.append(code)
            self.epoch.append(epoch)
            self.line.append(line)
            self.axis.append(place)
            self.outcome.append(_OUTCOMES.index(outcome))
            self.scores.append(float("nan") if score is None else score)

    def _epoch(self, row: FileRow, judge: str, edit: int) -> int:
        """Which of the answers about an edit this is: by its number, or by its rater's place among the raters."""
        rater, epoch = pseudonym(self._layout.cell(row, "rater")), self._layout.cell(row, "epoch")
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

    def rating(self, entry: int) -> Rating:
        """One entry as it is kept in the ledger."""
        reason = self._reasons.get(entry, "")
        match self.outcome[entry]:
            case 0:
                return Rated(score=self.scores[entry], evidence=reason)
            case 1:
                return Abstained(reason=reason or _NO_REASON)
            case _:
                return Failed(error=reason or _NO_REASON, retryable=False)

    def assessments(self) -> Iterator[tuple[int, str, int, list[int]]]:
        """Edit, judge, epoch and the entries of every assessment: all that one rater says of one edit."""
        import numpy as np

        edits, judges, epochs = (np.asarray(column) for column in (self.edits, self.by, self.epoch))
        order = np.lexsort((np.asarray(self.axis), epochs, judges, edits))
        first = np.ones(len(order), dtype=np.bool_)
        if len(order):
            columns = np.stack([edits[order], judges[order].astype(np.int32), epochs[order]])
            first[1:] = (np.diff(columns, axis=1) != 0).any(axis=0)
        starts = np.flatnonzero(first)
        names = list(self.judges)
        for entries in np.split(order, starts[1:]) if len(order) else ():
            entry = int(entries[0])
            yield self.edits[entry], names[self.by[entry]], self.epoch[entry], entries.tolist()


_NO_REASON = "no reason given"


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
            said = {axis: rating_values(rating)[:2] for axis, rating in row.assessment.ratings.items()}
            if row.key not in finished:
                yield row
            elif (before := stored[row.key]) != said:
                message = (
                    f"{judge!r} already has {_listed(before)} for this edit, the file {_listed(said)}. Rows are never "
                    "changed: import the corrected scores under another judge's name, all of them"
                )
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


def _listed(said: Mapping[str, tuple[str, float | None]]) -> str:
    return ", ".join(
        f"{axis} {outcome if score is None else f'{score:g}'}" for axis, (outcome, score) in sorted(said.items())
    )
