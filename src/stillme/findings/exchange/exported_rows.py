"""Write rows as CSV, JSON lines or Parquet; each streams, so any size fits."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stillme.core.errors import MissingExtra
from stillme.core.files import whole, write_csv, write_json_lines, write_whole
from stillme.runs import RecordedRun
from stillme.runs.store.exported import Table, codebook, rows_of, tables_in, with_names

Row = Mapping[str, Any]

_GROUP = 5_000
"""Rows of one Parquet row group: what is held in memory at once."""


def export_run(run: RecordedRun, kind: str, to: Path | None) -> list[Path]:
    """Write `edits`, `judgements` and what else the run has in one format, and `codebook.md`."""
    folder = to or run.folder / "export"
    folder.mkdir(parents=True, exist_ok=True)
    tables = [with_names(table) for table in tables_in(run.store)]
    files = [folder / f"{table.name}.{kind}" for table in tables]
    for file, table in zip(files, tables, strict=True):
        write_rows(file, kind, table, rows_of(run.store, table))
    return [*files, write_whole(folder / "codebook.md", codebook(tables))]


def write_rows(file: Path, kind: str, table: Table, rows: Iterator[Row]) -> None:
    """Write one table; the file appears only when it is complete."""
    _WRITERS[kind](file, table, rows)


def _write_csv(file: Path, table: Table, rows: Iterator[Row]) -> None:
    write_csv(file, [column.name for column in table.columns], rows)


def _write_jsonl(file: Path, table: Table, rows: Iterator[Row]) -> None:
    packed = {column.name for column in table.columns if column.kind == "json"}
    write_json_lines(
        file,
        (
            {name: json.loads(value) if name in packed and value else value for name, value in row.items()}
            for row in rows
        ),
    )


def _write_parquet(file: Path, table: Table, rows: Iterator[Row]) -> None:
    try:
        # pyarrow ships no types.
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra(
            "Parquet needs pyarrow. Install it with `pip install 'stillme[parquet]'`, or write csv or jsonl."
        ) from None
    types = {"text": pa.string(), "json": pa.string(), "whole": pa.int64(), "number": pa.float64()}
    schema = pa.schema(
        [
            pa.field(column.name, types[column.kind], metadata={"description": column.meaning})
            for column in table.columns
        ]
    )
    with whole(file) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as writer:
        while group := list(itertools.islice(rows, _GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


_WRITERS: Mapping[str, Callable[[Path, Table, Iterator[Row]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
KINDS = tuple(_WRITERS)
