"""Whether the tables of a bundle are those that its rows give: computed the same way when sealed and verified."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from stillme import estimates
from stillme.findings.calibration import standing_of
from stillme.findings.evidence.bundle import Difference
from stillme.findings.tables.estimates import write_tables
from stillme.runs import Run

_CLOSE = 1e-6
"""Relative: other processors and libraries add up in another order."""

Rows = list[list[str]]


def write_tables_of(run: Run, into: Path) -> list[Path]:
    """Compute every table from the rows, and write `tables/*.csv` into `into`."""
    estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
    return write_tables(estimated, into, run.settings, standing_of(run))


def table_differences(given: Path, computed: Path) -> tuple[int, list[Difference]]:
    """How many cells were compared, and those that differ."""
    cells = 0
    differences: list[Difference] = []
    names = sorted({path.name for folder in (given, computed) for path in folder.glob("*")})
    for name in names:
        file = f"tables/{name}"
        if not (given / name).is_file() or not (computed / name).is_file():
            differences.append(
                Difference(
                    file=file, what="is missing" if (computed / name).is_file() else "is not a table of this run"
                )
            )
            continue
        actual, expected = _read(given / name), _read(computed / name)
        cells += sum(map(len, expected))
        differences += _cells(file, actual, expected)
    return cells, differences


def _read(file: Path) -> Rows:
    if file.suffix == ".json":
        return _records(file)
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def _records(file: Path) -> Rows:
    """A list of records as a table; what is none has other columns than one."""
    try:
        given: Any = json.loads(file.read_text("utf-8"))
    except ValueError:
        return [["unreadable"]]
    if not isinstance(given, list) or not all(isinstance(record, dict) for record in cast("list[Any]", given)):
        return [["unreadable"]]
    records = cast("list[dict[str, Any]]", given)
    heads = sorted({name for record in records for name in record})
    return [heads, *([str(record.get(name)) for name in heads] for record in records)]


def _cells(file: str, actual: Rows, expected: Rows) -> Iterator[Difference]:
    heads = expected[0]
    if not actual or actual[0] != heads:
        columns = ", ".join(actual[0] if actual else [])
        yield Difference(file=file, what="has other columns", expected=", ".join(heads), found=columns)
        return
    for number, (row, should) in enumerate(zip(actual[1:], expected[1:], strict=False), start=1):
        if len(row) != len(heads):
            yield Difference(file=file, row=number, what="has another number of cells")
            continue
        for head, cell, wanted in zip(heads, row, should, strict=True):
            if not _same(cell, wanted):
                yield Difference(
                    file=file, row=number, column=head, what=_named(heads, should), expected=wanted, found=cell
                )
    if len(actual) != len(expected):
        rows = str(len(actual) - 1)
        yield Difference(file=file, what="has another number of rows", expected=str(len(expected) - 1), found=rows)


def _named(heads: list[str], row: list[str]) -> str:
    """Whose number it is, from the row itself."""
    known = dict(zip(heads, row, strict=True))
    parts = (known.get(name, "") for name in ("editor", "arm", "judge", "quantity", "factor", "group", "scope"))
    return " ".join(part for part in parts if part)


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=_CLOSE, abs_tol=1e-9)
    except ValueError:
        return False
