"""Which column means what, and what a row therefore says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from stillme import rubric
from stillme.errors import Invalid, Problem, StillmeError, did_you_mean
from stillme.exchange.table_files import Row
from stillme.rubric import Axis
from stillme.types import Abstained, Failed, Rated, Rating

EDIT_COLUMNS = ("edit", "portrait", "prompt", "editor", "arm", "seed")
"""Columns that name the edit: by its key, or by what was requested."""
REPEAT_COLUMNS = ("epoch", "rater")
"""Columns that tell several answers about one edit apart."""
LONG_COLUMNS = ("axis", "score", "outcome", "reason")
"""Columns of a file with one row per axis. Otherwise an axis is a column."""

_ABSTAINED = "abstained"
_PERSONS = (1.0, 2.0)
_NEAR_MISS = 0.8
"""How alike a column and a known name are where a typing error is likely."""


class InvalidJudgements(Invalid):
    """A file of scores that cannot be imported whole."""

    consequence = "nothing was imported"
    shown = 10


def _no_names() -> Mapping[str, str]:
    return {}


def _no_values() -> Mapping[str, tuple[str, ...]]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """What the user says about the file's columns."""

    names: Mapping[str, str] = field(default_factory=_no_names)
    """Our name to the file's: a column, or in a file with one row per axis the word for an axis."""
    fixed: Mapping[str, str] = field(default_factory=_no_names)
    """Values that hold for every row and are in no column."""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=_no_values)
    """The file's column to the values, one of which rows must have there; other rows are left out."""
    unless: Mapping[str, tuple[str, ...]] = field(default_factory=_no_values)
    """The file's column to the values that rows must not have there."""
    ignored: tuple[str, ...] = ()
    """The file's columns that are not read, although their names are close to known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One score in the file."""

    place: str
    which: Mapping[str, str]
    """Those of `EDIT_COLUMNS` that have a value."""
    epoch: int | None
    rater: str
    axis: str
    rating: Rating


class Layout:
    """The file's columns under our names."""

    def __init__(
        self, columns: Sequence[str], mapping: ColumnMapping, source: str, *, more: Sequence[str] = ()
    ) -> None:
        self._axes = rubric.load().axes
        self._source, self._mapping, self._more = source, mapping, tuple(more)
        self.columns = list(columns)
        self._check_mapping()
        self._long = all(self._column(name) for name in ("axis", "score"))
        self._axis_by_word = {mapping.names.get(axis, axis): axis for axis in self._axes}
        self._axis_columns = {} if self._long else {axis: name for axis in self._axes if (name := self._column(axis))}
        self.unread = self._unread()
        """Columns that say nothing to us, for a note."""
        if not self._long and not self._axis_columns:
            raise StillmeError(
                f"{source} has no column named like an axis, nor the columns axis and score; it has "
                f"{_list(self.columns)}. Name one, as in --map race_change=COLUMN."
            )

    def selects(self, row: Row) -> bool:
        """Whether `where` and `unless` keep the row."""
        wanted, unwanted = self._mapping.where, self._mapping.unless
        return all(row.cells.get(name, "") in values for name, values in wanted.items()) and not any(
            row.cells.get(name, "") in values for name, values in unwanted.items()
        )

    def read(self, rows: Iterable[Row], problems: list[Problem]) -> Iterator[Answer]:
        """Every score of these rows; a row that cannot be read becomes a problem."""
        for row in rows:
            try:
                yield from self._answers(row)
            except Unreadable as error:
                problems.append(Problem(place=row.place, message=str(error)))

    @property
    def _known(self) -> tuple[str, ...]:
        return (*EDIT_COLUMNS, *REPEAT_COLUMNS, *LONG_COLUMNS, *self._more, *self._axes)

    def _check_mapping(self) -> None:
        mapping = self._mapping
        for ours in (*mapping.names, *mapping.fixed):
            if ours not in self._known:
                near = did_you_mean(ours, self._known)
                raise StillmeError(f"{ours!r} is no name that is read.{near} Known: {_list(self._known)}.")
        has_axes = "axis" in self.columns or "axis" in mapping.names
        axis_words = {theirs for ours, theirs in mapping.names.items() if ours in self._axes and has_axes}
        for theirs in (*mapping.names.values(), *mapping.where, *mapping.unless, *mapping.ignored):
            if theirs not in self.columns and theirs not in axis_words:
                near = did_you_mean(theirs, self.columns)
                raise StillmeError(f"{self._source} has no column {theirs!r}.{near} It has {_list(self.columns)}.")
        if all(self._column(name) for name in REPEAT_COLUMNS):
            raise StillmeError(f"{self._source} has both epoch and rater; keep the one that tells answers apart.")

    def _unread(self) -> tuple[str, ...]:
        """Columns without a meaning. One that is close to a name without a column is an error: it may hold scores."""
        expected = [name for name in self._known if not self._long or name not in self._axes]
        read = {column for name in expected if (column := self._column(name))}
        unread = [
            name
            for name in self.columns
            if name not in (*read, *self._mapping.where, *self._mapping.unless, *self._mapping.ignored)
        ]
        absent = [name for name in expected if not self._column(name) and name not in self._mapping.fixed]
        problems: list[Problem] = []
        for column in unread:
            plain = column.strip().lower().replace(" ", "_").replace("-", "_")
            for near in get_close_matches(plain, absent, n=1, cutoff=_NEAR_MISS):
                how = f"Rename it, or write --map {near}={column!r}; --ignore {column!r} leaves it out"
                problems.append(
                    Problem(place=f"column {column!r}", message=f"not a known name. Did you mean {near!r}? {how}")
                )
        if problems:
            raise InvalidJudgements(self._source, problems)
        return tuple(unread)

    def _column(self, ours: str) -> str:
        named = self._mapping.names.get(ours, ours)
        return named if named in self.columns and named not in self._mapping.ignored else ""

    def has(self, ours: str) -> bool:
        """Whether the file has a column of this meaning."""
        return bool(self._column(ours))

    @property
    def fixed(self) -> Mapping[str, str]:
        """What holds for every row and is in no column."""
        return self._mapping.fixed

    def cell(self, row: Row, ours: str) -> str:
        """What a row says under one of our names; empty where it says nothing."""
        column = self._column(ours)
        return (row.cells.get(column, "") if column else "") or self._mapping.fixed.get(ours, "")

    def _answers(self, row: Row) -> Iterator[Answer]:
        which = {name: value for name in EDIT_COLUMNS if (value := self.cell(row, name))}
        epoch = self.cell(row, "epoch") if self.said_by(row) else ""
        if self._column("rater") and not self.cell(row, "rater"):
            raise Unreadable("no rater; fill it in, or remove the column if there was only one")
        for axis, rating in self.ratings(row):
            yield Answer(
                place=row.place,
                which=which,
                epoch=int(epoch) if epoch else None,
                rater=self.cell(row, "rater"),
                axis=axis,
                rating=rating,
            )

    def said_by(self, row: Row) -> str:
        """What tells this answer about an edit from others: its rater, or its number."""
        rater, epoch = self.cell(row, "rater"), self.cell(row, "epoch")
        if epoch and not epoch.isdecimal():
            raise Unreadable(f"epoch = {epoch!r} is not a whole number; number answers from 0")
        return rater or epoch

    def has_scores(self, row: Row) -> bool:
        """Whether a row says anything on an axis."""
        if self._long:
            return bool(self.cell(row, "score") or self.cell(row, "outcome"))
        return any(row.cells.get(name, "") for name in self._axis_columns.values())

    def ratings(self, row: Row) -> Iterator[tuple[str, Rating]]:
        """Every axis that a row has a score on."""
        if not self._long:
            scores = {axis: score for axis, name in self._axis_columns.items() if (score := row.cells.get(name, ""))}
            if not scores:
                raise Unreadable("no score at all; remove the row")
            yield from ((axis, _rating(self._axes[axis], score, "", "")) for axis, score in scores.items())
            return
        word = self.cell(row, "axis")
        axis = self._axis_by_word.get(word)
        if axis is None:
            near = did_you_mean(word, self._axis_by_word)
            raise Unreadable(f"no axis {word!r}.{near} Name it with --map AXIS={word!r}, or leave it out with --where")
        outcome, reason = self.cell(row, "outcome"), self.cell(row, "reason")
        yield axis, _rating(self._axes[axis], self.cell(row, "score"), outcome, reason)


class Unreadable(ValueError):
    """A row that cannot be read, with the reason."""


def _rating(axis: Axis, score: str, outcome: str, reason: str) -> Rating:
    if outcome == _ABSTAINED or (not outcome and score == _ABSTAINED):
        return Abstained(reason=reason or "no reason given")
    if outcome == "failed":
        return Failed(error=reason or "no reason given", retryable=False)
    if outcome not in ("", "rated"):
        raise Unreadable(f"unknown outcome {outcome!r}; write rated, abstained or failed")
    try:
        value = float(score)
    except ValueError:
        raise Unreadable(f"{axis.name} = {score!r} is not a number; write one, or {_ABSTAINED}") from None
    if not math.isfinite(value):
        raise Unreadable(f"{axis.name} = {score} is not a score; write a number, or {_ABSTAINED}")
    if axis.is_scale and not 1 <= value <= len(axis.scale):
        raise Unreadable(f"{axis.name} = {score} is not on its scale, 1 to {len(axis.scale)}")
    if axis.name == "role_target" and value not in _PERSONS:
        raise Unreadable(f"{axis.name} = {score} is neither person 1 nor 2")
    return Rated(score=value, evidence=reason)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
