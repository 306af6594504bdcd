"""Files of scores: their rows one by one, which column means what, and what a row therefore says."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from stillme.core import rubric
from stillme.core.errors import Invalid, MissingExtra, Problem, StillmeError, did_you_mean
from stillme.core.files import wrong_separator
from stillme.core.rubric import Axis
from stillme.core.types import Abstained, Arm, Failed, Rated, Rating

EDIT_COLUMNS = ("edit", "portrait", "prompt", "editor", "arm", "seed")
"""Columns that name the edit: by its key, or by what was requested."""
REPEAT_COLUMNS = ("epoch", "rater")
"""Columns that tell several answers about one edit apart."""
PROMPT_COLUMNS = ("prompt_text", "category", "subcategory", "years", "target", "stereotype", "pronoun")
"""Columns that describe the prompt; the paper's own prompts need none."""
OTHER_COLUMNS = ("judge", "block", "state")
"""`state` says what became of the edit."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """What the user says about the file's columns."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Our name to the file's: a column, or in a file with one row per axis the word for an axis.

    `feature.race_change` is the column of that axis for the arm `feature`, in a file with both arms in one row.
    """
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values that hold for every row and are in no column."""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The file's column to the values, one of which rows must have there; other rows are left out."""
    unless: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The file's column to the values that rows must not have there."""
    ignored: tuple[str, ...] = ()
    """The file's columns that are not read, although their names are close to known ones."""


class Layout:
    """The file's columns under our names."""

    def __init__(
        self, columns: Sequence[str], mapping: ColumnMapping, source: str, *, groups: Sequence[str] = ()
    ) -> None:
        self._axes = rubric.load().axes
        self._source, self._mapping, self._groups = source, mapping, tuple(groups)
        self.columns = list(columns)
        self._by_arm = {name: tuple(name.split(".", 1)) for name in mapping.names if "." in name}
        self._check_mapping()
        self._long = all(self._column(name) for name in ("axis", "score"))
        self._axis_by_word = {mapping.names.get(axis, axis): axis for axis in self._axes}
        self._axis_columns = {} if self._long else self._columns_by_arm()
        self.unread = self._unread()
        """Columns that say nothing to us, for a note."""
        if not self._long and not self._axis_columns:
            raise StillmeError(
                f"{source} has no column named like an axis, nor the columns axis and score; it has "
                f"{_list(self.columns)}. Name one, as in --map race_change=COLUMN, or --map feature.race_change=COLUMN "
                "where a row has the scores of two arms."
            )

    def selects(self, row: FileRow) -> bool:
        """Whether `where` and `unless` keep the row."""
        wanted, unwanted = self._mapping.where, self._mapping.unless
        return all(row.cells.get(name, "") in values for name, values in wanted.items()) and not any(
            row.cells.get(name, "") in values for name, values in unwanted.items()
        )

    @property
    def _known(self) -> tuple[str, ...]:
        others = (*EDIT_COLUMNS, *REPEAT_COLUMNS, *LONG_COLUMNS, *PROMPT_COLUMNS, *OTHER_COLUMNS)
        return (*others, *self._groups, *self._axes)

    def _columns_by_arm(self) -> dict[str, dict[str, str]]:
        """Arm to axis to column; the arm is empty where the row names it."""
        plain = {axis: name for axis in self._axes if (name := self._column(axis))}
        by_arm: dict[str, dict[str, str]] = {"": plain} if plain else {}
        for name, (arm, axis) in self._by_arm.items():
            by_arm.setdefault(arm, {})[axis] = self._mapping.names[name]
        return by_arm

    def _check_mapping(self) -> None:
        mapping = self._mapping
        for ours, (arm, axis) in self._by_arm.items():
            if arm not in tuple(Arm) or axis not in self._axes:
                raise StillmeError(
                    f"{ours!r} is not ARM.AXIS. Arms: {_list(tuple(Arm))}. Axes: {_list(tuple(self._axes))}."
                )
        for ours in (*mapping.names, *mapping.fixed):
            if ours not in self._known and ours not in self._by_arm:
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
        read = {column for name in (*expected, *self._by_arm) if (column := self._column(name))}
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

    def cell(self, row: FileRow, ours: str) -> str:
        """What a row says under one of our names; empty where it says nothing."""
        column = self._column(ours)
        return (row.cells.get(column, "") if column else "") or self._mapping.fixed.get(ours, "")

    def parts(self, row: FileRow) -> Iterator[tuple[str, Mapping[str, Rating]]]:
        """What a row says of each arm: the arm, empty where the row names it, and ratings by axis."""
        if self._long:
            has_score = self.cell(row, "score") or self.cell(row, "outcome")
            yield "", dict([self._long_rating(row)] if has_score else [])
            return
        for arm, columns in self._axis_columns.items():
            scores = {axis: score for axis, name in columns.items() if (score := row.cells.get(name, ""))}
            if scores or len(self._axis_columns) == 1:
                yield arm, {axis: _rating(self._axes[axis], score, "", "") for axis, score in scores.items()}

    def _long_rating(self, row: FileRow) -> tuple[str, Rating]:
        word = self.cell(row, "axis")
        axis = self._axis_by_word.get(word)
        if axis is None:
            near = did_you_mean(word, self._axis_by_word)
            raise Unreadable(f"no axis {word!r}.{near} Name it with --map AXIS={word!r}, or leave it out with --where")
        outcome, reason = self.cell(row, "outcome"), self.cell(row, "reason")
        return axis, _rating(self._axes[axis], self.cell(row, "score"), outcome, reason)


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


@dataclass(frozen=True, slots=True)
class FileRow:
    """One row as text; an absent value is an empty string."""

    place: str
    """`line 12`, or `row 12` of a file without lines."""
    cells: Mapping[str, str]


def columns_of(path: Path) -> list[str]:
    """Every column that any row of a file has, in the order of appearance."""
    if path.suffix.lower() == ".csv":
        first = next(read(path), None)
        if first is None:
            raise StillmeError(f"{path} has no rows.")
        return list(first.cells)
    return list(dict.fromkeys(name for row in read(path) for name in row.cells))


def read(path: Path) -> Iterator[FileRow]:
    """All rows of a file, by its ending, one at a time."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise StillmeError(f"{path} ends in {path.suffix or 'nothing'!r}; give a .csv, .json, .jsonl or .parquet file.")
    try:
        yield from reader(path)
    except OSError as error:
        raise StillmeError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise StillmeError(f"{path} is not UTF-8; save it as UTF-8.") from None


def _csv(path: Path) -> Iterator[FileRow]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        columns = list(reader.fieldnames or ())
        if fault := wrong_separator(columns):
            raise StillmeError(f"{path} {fault}.")
        if repeated := {name for name in columns if columns.count(name) > 1}:
            raise StillmeError(f"{path} has two columns called {min(repeated)!r}; rename one.")
        try:
            for entry in reader:
                place = f"line {reader.line_num}"
                if None in entry or None in entry.values():
                    raise StillmeError(f"{path}, {place}: has more or fewer cells than the header, {len(columns)}.")
                yield FileRow(place, {name: cell.strip() for name, cell in entry.items()})
        except csv.Error as error:
            raise StillmeError(f"{path}, line {reader.line_num}: is not CSV ({error}).") from None


def _json_lines(path: Path) -> Iterator[FileRow]:
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except json.JSONDecodeError as error:
                raise StillmeError(f"{path}, line {number}: is not JSON ({error.msg}).") from None
            yield _json_row(path, f"line {number}", entry)


def _json(path: Path) -> Iterator[FileRow]:
    """An array of objects."""
    try:
        entries = json.loads(path.read_text("utf-8-sig"))
    except json.JSONDecodeError as error:
        how = "; one object a line is .jsonl" if error.msg == "Extra data" else ""
        raise StillmeError(f"{path} is not JSON ({error.msg}, line {error.lineno}){how}.") from None
    if not isinstance(entries, list):
        raise StillmeError(f"{path} is not an array of rows; write [{{...}}, {{...}}], or one object a line as .jsonl.")
    for number, entry in enumerate(cast("list[Any]", entries), start=1):
        yield _json_row(path, f"row {number}", entry)


def _json_row(path: Path, place: str, entry: Any) -> FileRow:
    if not isinstance(entry, dict):
        raise StillmeError(f"{path}, {place}: is not a JSON object.")
    return FileRow(place, {name: _text(value) for name, value in cast("dict[str, Any]", entry).items()})


def _parquet(path: Path) -> Iterator[FileRow]:
    if find_spec("pyarrow") is None:
        raise MissingExtra(f'{path} needs pyarrow, which is not installed: run `pip install "stillme[parquet]"`.')
    import pyarrow.parquet as parquet

    try:
        file: Any = cast("Any", parquet).ParquetFile(path)
    except ValueError as error:
        raise StillmeError(f"{path} is not a Parquet file ({error}).") from None
    number = 0
    for batch in file.iter_batches(batch_size=5_000):
        for entry in cast("list[dict[str, Any]]", batch.to_pylist()):
            number += 1
            yield FileRow(f"row {number}", {name: _text(value) for name, value in entry.items()})


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        # Tables with gaps keep whole numbers as floats; a seed of 1.0 is 1.
        return str(int(value))
    return str(value).strip()


_READERS: Mapping[str, Callable[[Path], Iterator[FileRow]]] = {
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
