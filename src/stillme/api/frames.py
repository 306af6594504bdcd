"""Rows for a notebook, as a data frame of pandas or polars; and a user's own rows, as columns for estimates."""

from __future__ import annotations

import html
import importlib
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.errors import MissingExtra, StillmeError, did_you_mean
from stillme.core.files import write_csv
from stillme.core.types import Estimate, ImageFile, Interval, Portrait, Prompt
from stillme.estimates import (
    Disparity,
    Edits,
    EditState,
    RatingState,
    Scores,
    Settings,
    Standing,
    find_gaps,
    headlines,
)
from stillme.findings.tables.estimates import cell_text

Library = Literal["pandas", "polars"]
_SHOWN = 20


class Rows:
    """A table that is read when it is needed. Iterate over its rows, or take it as a data frame."""

    def __init__(self, title: str, read: Callable[[], Iterable[Mapping[str, object]]]) -> None:
        self.title = title
        self._read = read

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self._read())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{self.title}: {len(self):,} rows>"

    @property
    def columns(self) -> list[str]:
        """Every column that any row has, in the order of appearance."""
        return list(dict.fromkeys(name for row in self for name in row))

    def to_frame(self, library: Library | None = None) -> Any:
        """A data frame of pandas or polars: of the library named, else of the one that is installed, pandas first."""
        columns = self.columns
        rows = [{name: row.get(name) for name in columns} for row in self]
        offered: tuple[Library, ...] = ("pandas", "polars")
        chosen = library or next((name for name in offered if find_spec(name)), None)
        if chosen is None or not find_spec(chosen):
            raise MissingExtra(f"A frame needs {chosen or 'pandas or polars'}. Run `pip install {chosen or 'pandas'}`.")
        module: Any = importlib.import_module(chosen)
        if chosen == "pandas":
            return module.DataFrame(rows, columns=columns)
        return module.DataFrame(rows, schema=columns, infer_schema_length=None)

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV."""
        return write_csv(
            Path(path), self.columns, ({n: "" if v is None else v for n, v in row.items()} for row in self)
        )

    def _repr_html_(self) -> str:
        """The first rows as a table, which notebooks show."""
        rows = list(itertools.islice(self, _SHOWN + 1))
        columns = list(dict.fromkeys(name for row in rows for name in row))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell_text(row.get(name)))}</td>" for name in columns) + "</tr>"
            for row in rows[:_SHOWN]
        )
        more = f"<p>… and {len(self) - _SHOWN:,} more rows</p>" if len(rows) > _SHOWN else ""
        return (
            f"<p><b>{html.escape(self.title)}</b></p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )


def headline_rows(
    estimates: Sequence[Estimate], standing: Standing, settings: Settings
) -> Iterator[Mapping[str, object]]:
    """Of the quantities that verdicts go by: everyone, and the largest gap with its Holm-corrected p value."""
    offered = {(one.judge, one.quantity) for one in estimates if headlines.is_headline(one.quantity)}
    decides = headlines.deciding(standing, offered)
    found = {
        (finding.quantity, finding.editor, finding.arm, finding.judge, finding.factor): finding.p
        for finding in find_gaps(estimates, standing, settings)
    }

    def order(row: Estimate) -> tuple[object, ...]:
        return headlines.order_of(row.quantity), row.quantity, row.judge, row.scope, row.factor, row.editor, row.arm

    for row in sorted(estimates, key=order):
        interval = row.outcome if isinstance(row.outcome, Interval) else None
        if row.scope in ("all", "disparity") and (row.judge, row.quantity) in decides and interval:
            yield {
                "editor": row.editor,
                "arm": row.arm,
                "quantity": row.quantity,
                "scope": row.scope,
                "factor": row.factor,
                "group": f"{row.highest} - {row.lowest}" if isinstance(row, Disparity) else row.group,
                "value": interval.value,
                "low": interval.low,
                "high": interval.high,
                "p": found.get((row.quantity, row.editor, row.arm, row.judge, row.factor)),
                "judge": row.judge,
                "judge_note": headlines.mark(standing, row.judge, row.quantity),
            }


def records_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of whatever a user has: a frame of pandas or polars, a list of mappings, or the path of a CSV file."""
    if isinstance(frame, str | Path):
        import csv

        if not Path(frame).is_file():
            raise StillmeError(f"{frame} does not exist. Give the path of a CSV file, a frame or a list of mappings.")
        with Path(frame).open(encoding="utf-8-sig", newline="") as stream:
            return [dict(row) for row in csv.DictReader(stream)]
    if hasattr(frame, "to_dicts"):
        return list(frame.to_dicts())
    if hasattr(frame, "to_dict"):
        return list(frame.to_dict("records"))
    return [dict(row) for row in frame]


_NO_IMAGE = ImageFile(path=Path(), sha256="")
_DEFAULTS = {"editor": "editor", "prompt": "all", "arm": "baseline", "judge": "judge"}
_OF_AN_EDIT = ("editor", "prompt", "arm")

Floats = NDArray[np.float64]


def columns_of(
    rows: Sequence[Mapping[str, Any]],
    *,
    portrait: str,
    groups: Sequence[str],
    scores: Sequence[str],
    names: Mapping[str, str | None],
) -> tuple[Edits, tuple[Scores, ...]]:
    """One entry per row; a score that is empty, None or NaN is an abstention."""
    if not rows:
        raise StillmeError("There are no rows to estimate from.")
    wanted = {portrait, *groups, *scores, *(name for name in names.values() if name)}
    for number, row in enumerate(rows, start=1):
        if absent := sorted(wanted - row.keys()):
            place = "" if number == 1 else f"Row {number}: "
            near = did_you_mean(absent[0], map(str, row))
            raise StillmeError(f"{place}There is no column {absent[0]!r}.{near} Known: {', '.join(map(str, row))}.")
    people = _portraits(rows, portrait, groups, names.get("block"))
    codes = {name: _coded(rows, names.get(name), _DEFAULTS[name]) for name in _DEFAULTS}
    place = {person.id: index for index, person in enumerate(people)}
    portraits = np.array([place[str(row[portrait])] for row in rows], dtype=np.int32)
    judges, judge = codes["judge"]
    edit, first = _edits_of(np.stack([portraits, *(codes[name][1] for name in _OF_AN_EDIT)]), judge)
    edits = Edits(
        keys=[str(number) for number in range(len(first))],
        portrait=portraits[first],
        prompt=codes["prompt"][1][first],
        editor=codes["editor"][1][first],
        arm=codes["arm"][1][first],
        state=np.full(len(first), EditState.EDITED, dtype=np.int32),
        image=[""] * len(first),
        portraits=people,
        prompts=tuple(Prompt(id=name, text=name, category="own", subcategory="own") for name in codes["prompt"][0]),
        editors=codes["editor"][0],
        arms=codes["arm"][0],
        second=None,
        matching=None,
        seed=None,
        has_states=False,
    )
    values = {axis: _values(rows, axis) for axis in scores}
    return edits, tuple(
        _scores(name, axis, values[axis][judge == code], edit[judge == code], len(first))
        for code, name in enumerate(judges)
        for axis in scores
    )


def _edits_of(cells: NDArray[np.int32], judge: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Each row's edit, and each edit's first row.

    Each row of a judge is an edit of its own; the next judge's rows with the same portrait, editor, prompt and arm are
    about these, one after the other.
    """
    numbers: dict[tuple[int, ...], int] = {}
    edits: dict[tuple[int, ...], int] = {}
    edit: list[int] = []
    first: list[int] = []
    for row, cell in enumerate(zip(*cells.tolist(), strict=True)):
        by_judge = (*cell, int(judge[row]))
        numbers[by_judge] = number = numbers.get(by_judge, -1) + 1
        edit.append(edits.setdefault((*cell, number), len(edits)))
        if edit[-1] == len(first):
            first.append(row)
    return np.array(edit, dtype=np.int32), np.array(first, dtype=np.int32)


def _portraits(
    rows: Sequence[Mapping[str, Any]], portrait: str, groups: Sequence[str], block: str | None
) -> tuple[Portrait, ...]:
    people: dict[str, Portrait] = {}
    for number, row in enumerate(rows, start=1):
        name = _named(row, portrait, number)
        labels = {group: _label(row[group]) for group in groups}
        in_block = _label(row[block]) if block else ""
        known = people.setdefault(
            name,
            Portrait(
                id=name,
                image=_NO_IMAGE,
                attributes=labels,
                label_origin="given with the rows",
                licence="",
                block=in_block,
            ),
        )
        before, now = {**known.attributes, "block": known.block}, {**labels, "block": in_block}
        for changed in before:
            if before[changed] != now[changed]:
                raise StillmeError(
                    f"Row {number}: portrait {name!r} has {changed} {now[changed]!r}, and {before[changed]!r} in an "
                    "earlier row. A portrait belongs to one group and one block."
                )
    return tuple(people.values())


def _label(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _named(row: Mapping[str, Any], column: str, number: int) -> str:
    """A cell that must hold something: an unnamed portrait or editor would be one more of them."""
    if name := _label(row[column]):
        return name
    raise StillmeError(f"Row {number}: {column} is empty. Fill it in, or leave the row out.")


def _coded(
    rows: Sequence[Mapping[str, Any]], column: str | None, default: str
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    if column is None:
        return (default,), np.zeros(len(rows), dtype=np.int32)
    values = [_named(row, column, number) for number, row in enumerate(rows, start=1)]
    levels = {level: code for code, level in enumerate(dict.fromkeys(values))}
    return tuple(levels), np.array([levels[value] for value in values], dtype=np.int32)


def _scores(judge: str, axis: str, value: Floats, edit: NDArray[np.int32], edits: int) -> Scores:
    values = np.full(edits, np.nan)
    state = np.full(edits, RatingState.MISSING, dtype=np.int32)
    values[edit] = value
    state[edit] = np.where(np.isnan(value), RatingState.ABSTAINED, RatingState.RATED)
    return Scores(judge=judge, axis=axis, value=values, state=state)


def _values(rows: Sequence[Mapping[str, Any]], axis: str) -> Floats:
    value = np.array([_number(row[axis], axis, number) for number, row in enumerate(rows, start=1)])
    known = rubric.load().axes.get(axis)
    is_scale = known is not None and known.is_scale
    low, high = (1, len(known.scale)) if known and is_scale else (-sys.float_info.max, sys.float_info.max)
    if len(off := np.flatnonzero((value < low) | (value > high))):
        scale = f"its scale, {low} to {high}" if is_scale else "any scale"
        raise StillmeError(
            f"Row {off[0] + 1}: {axis} is {value[off[0]]:g}, which is not on {scale}. "
            "Leave it empty if there is no score."
        )
    return value


def _number(value: Any, axis: str, row: int) -> float:
    if value is None or value == "":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise StillmeError(
            f"Row {row}: {axis} is {value!r}, which is not a number. Leave it empty if there is no score."
        ) from None
