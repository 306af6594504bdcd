"""Read CSV, JSON, JSON lines or Parquet row by row, each with its place in the file."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from stillme.core.errors import MissingExtra, StillmeError


@dataclass(frozen=True, slots=True)
class Row:
    """One row as text; an absent value is an empty string."""

    place: str
    """`line 12`, or `row 12` of a file without lines."""
    cells: Mapping[str, str]


def columns_of(path: Path) -> list[str]:
    """Every column that any row of a file has, in the order of appearance."""
    if path.suffix.lower() == ".csv":
        first = next(_safely(path), None)
        if first is None:
            raise StillmeError(f"{path} has no rows.")
        return list(first.cells)
    return list(dict.fromkeys(name for row in _safely(path) for name in row.cells))


def read(path: Path) -> Iterator[Row]:
    """All rows of a file, by its ending, one at a time."""
    return _safely(path)


def _safely(path: Path) -> Iterator[Row]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise StillmeError(f"{path} ends in {path.suffix or 'nothing'!r}; give a .csv, .json, .jsonl or .parquet file.")
    try:
        yield from reader(path)
    except OSError as error:
        raise StillmeError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise StillmeError(f"{path} is not UTF-8; save it as UTF-8.") from None


def _csv(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        columns = list(reader.fieldnames or ())
        if repeated := {name for name in columns if columns.count(name) > 1}:
            raise StillmeError(f"{path} has two columns called {min(repeated)!r}; rename one.")
        try:
            for entry in reader:
                place = f"line {reader.line_num}"
                if None in entry or None in entry.values():
                    raise StillmeError(f"{path}, {place}: has more or fewer cells than the header, {len(columns)}.")
                yield Row(place, {name: cell.strip() for name, cell in entry.items()})
        except csv.Error as error:
            raise StillmeError(f"{path}, line {reader.line_num}: is not CSV ({error}).") from None


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except json.JSONDecodeError as error:
                raise StillmeError(f"{path}, line {number}: is not JSON ({error.msg}).") from None
            yield _json_row(path, f"line {number}", entry)


def _json(path: Path) -> Iterator[Row]:
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


def _json_row(path: Path, place: str, entry: Any) -> Row:
    if not isinstance(entry, dict):
        raise StillmeError(f"{path}, {place}: is not a JSON object.")
    return Row(place, {name: _text(value) for name, value in cast("dict[str, Any]", entry).items()})


def _parquet(path: Path) -> Iterator[Row]:
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
            yield Row(f"row {number}", {name: _text(value) for name, value in entry.items()})


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        # Tables with gaps keep whole numbers as floats; a seed of 1.0 is 1.
        return str(int(value))
    return str(value).strip()


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
