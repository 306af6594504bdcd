"""Which column means what, and what a row therefore says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stillme import rubric
from stillme.errors import Problem, StillmeError, did_you_mean
from stillme.exchange.table_files import Row
from stillme.rubric import Axis
from stillme.types import Abstained, Failed, Rated, Rating

WHICH = ("edit", "portrait", "prompt", "editor", "arm", "seed")
"""Columns that say which edit is meant: its key, or what it was asked as."""
REPEATS = ("epoch", "rater")
"""Columns that tell several answers about one edit apart."""
LONG = ("axis", "score", "outcome", "reason")
"""Columns of a file with one row per axis. Otherwise an axis is a column."""

_ABSTAINED = "abstained"
_PERSONS = (1.0, 2.0)


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the user says of the file's columns."""

    names: Mapping[str, str] = field(default_factory=_nothing)
    """Our name to the file's: a column, or in a file with one row per axis the word for an axis."""
    fixed: Mapping[str, str] = field(default_factory=_nothing)
    """What holds for every row and stands in no column."""
    where: Mapping[str, str] = field(default_factory=_nothing)
    """The file's column to the word that rows must have there; others are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One score as the file tells it."""

    place: str
    which: Mapping[str, str]
    """Those of `WHICH` that are known; empty words are left out."""
    epoch: int | None
    rater: str
    axis: str
    rating: Rating


class Layout:
    """The file's columns under our names."""

    def __init__(self, rows: Sequence[Row], choice: Choice, source: str) -> None:
        self._axes = rubric.load().axes
        self._source, self._choice = source, choice
        self.columns = list(dict.fromkeys(name for row in rows for name in row.cells))
        self._check(choice)
        self._long = all(self._column(name) for name in ("axis", "score"))
        self._words = {choice.names.get(axis, axis): axis for axis in self._axes}
        self._wide = {} if self._long else {axis: column for axis in self._axes if (column := self._column(axis))}
        if not self._long and not self._wide:
            raise StillmeError(
                f"{source} has no column that is called like an axis, nor the columns axis and score; it has "
                f"{', '.join(self.columns) or 'none'}. Name one, as in --map race_change=COLUMN."
            )

    def chosen(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that `where` leaves."""
        wanted = self._choice.where.items()
        return [row for row in rows if all(row.cells.get(name, "") == word for name, word in wanted)]

    def read(self, rows: Sequence[Row], problems: list[Problem]) -> Iterator[Answer]:
        """Every score of these rows; what cannot be read becomes a problem."""
        for row in rows:
            try:
                yield from self._answers(row)
            except _Unreadable as error:
                problems.append(Problem(place=row.place, message=str(error)))

    def _check(self, choice: Choice) -> None:
        known = (*WHICH, *REPEATS, *LONG, *self._axes)
        for ours in (*choice.names, *choice.fixed):
            if ours not in known:
                raise StillmeError(
                    f"{ours!r} is nothing that is read.{did_you_mean(ours, known)} Known: {_list(known)}."
                )
        has_axes = "axis" in self.columns or "axis" in choice.names
        for ours, theirs in choice.names.items():
            if theirs not in self.columns and not (ours in self._axes and has_axes):
                near = did_you_mean(theirs, self.columns)
                raise StillmeError(f"{self._source} has no column {theirs!r}.{near} It has {_list(self.columns)}.")
        for theirs in choice.where:
            if theirs not in self.columns:
                near = did_you_mean(theirs, self.columns)
                raise StillmeError(f"{self._source} has no column {theirs!r}.{near} It has {_list(self.columns)}.")
        if all(self._column(name) for name in REPEATS):
            raise StillmeError(f"{self._source} has both epoch and rater; keep the one that tells answers apart.")

    def _column(self, ours: str) -> str:
        named = self._choice.names.get(ours, ours)
        return named if named in self.columns else ""

    def _cell(self, row: Row, ours: str) -> str:
        column = self._column(ours)
        return (row.cells.get(column, "") if column else "") or self._choice.fixed.get(ours, "")

    def _answers(self, row: Row) -> Iterator[Answer]:
        which = {name: word for name in WHICH if (word := self._cell(row, name))}
        written = self._cell(row, "epoch")
        epoch = _whole(written, "epoch") if written else None
        rater = self._cell(row, "rater")
        if self._column("rater") and not rater:
            raise _Unreadable("no rater; fill it in, or leave the column out where one answered")
        for axis, rating in self._ratings(row):
            yield Answer(place=row.place, which=which, epoch=epoch, rater=rater, axis=axis, rating=rating)

    def _ratings(self, row: Row) -> Iterator[tuple[str, Rating]]:
        if not self._long:
            found = [(axis, word) for axis, column in self._wide.items() if (word := row.cells.get(column, ""))]
            if not found:
                raise _Unreadable("no score at all; remove the row")
            yield from ((axis, _rating(self._axes[axis], word, "", "")) for axis, word in found)
            return
        word = self._cell(row, "axis")
        axis = self._words.get(word)
        if axis is None:
            near = did_you_mean(word, self._words)
            raise _Unreadable(f"no axis {word!r}.{near} Name it with --map AXIS={word!r}, or leave it out with --where")
        outcome, reason = self._cell(row, "outcome"), self._cell(row, "reason")
        yield axis, _rating(self._axes[axis], self._cell(row, "score"), outcome, reason)


class _Unreadable(ValueError):
    """A row that says nothing usable, in words."""


def _rating(axis: Axis, score: str, outcome: str, reason: str) -> Rating:
    if outcome == _ABSTAINED or (not outcome and score == _ABSTAINED):
        return Abstained(reason=reason or "no reason given")
    if outcome == "failed":
        return Failed(error=reason or "no reason given", retryable=False)
    if outcome not in ("", "rated"):
        raise _Unreadable(f"outcome {outcome!r} is none; write rated, abstained or failed")
    try:
        value = float(score)
    except ValueError:
        raise _Unreadable(f"{axis.name} = {score!r} is no number; write one, or {_ABSTAINED}") from None
    if not math.isfinite(value):
        raise _Unreadable(f"{axis.name} = {score} is no score")
    if axis.is_scale and not 1 <= value <= len(axis.scale):
        raise _Unreadable(f"{axis.name} = {score} is not on its scale, 1 to {len(axis.scale)}")
    if axis.name == "role_target" and value not in _PERSONS:
        raise _Unreadable(f"{axis.name} = {score} is neither person 1 nor 2")
    return Rated(score=value, evidence=reason)


def _whole(word: str, name: str) -> int:
    if not word.isdecimal():
        raise _Unreadable(f"{name} = {word!r} is no whole number from 0")
    return int(word)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
