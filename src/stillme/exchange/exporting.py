"""Write rows as CSV, JSON lines or Parquet; each streams, so any size fits."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stillme.errors import MissingExtra, StillmeError
from stillme.estimates.tables import harmless
from stillme.exchange.rows import Table, codebook, rows_of, tables_in
from stillme.stages import described
from stillme.store import Store

Row = Mapping[str, Any]

_GROUP = 5_000
"""Rows of one Parquet row group: what is held in memory at once."""


def export_run(path: Path, out: Path | None, kind: str, to: Path | None) -> list[Path]:
    """Write `edits`, `judgements` and, where there are any, `features` in one format, and `codebook.md`."""
    loaded = described.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    folder = to or loaded.folder / "export"
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with Store.reading(loaded.folder) as store:
        tables = tables_in(store)
        for table in tables:
            file = folder / f"{table.name}.{kind}"
            write_rows(file, kind, table, rows_of(store, table))
            written.append(file)
    with whole(folder / "codebook.md") as partial:
        partial.write_text(codebook(tables), "utf-8")
    return [*written, folder / "codebook.md"]


def write_rows(file: Path, kind: str, table: Table, rows: Iterator[Row]) -> None:
    """Write one table; the file appears only when it is complete."""
    with whole(file) as partial:
        _WRITERS[kind](partial, table, rows)


@contextmanager
def whole(file: Path) -> Generator[Path]:
    """A place to write to, moved to `file` when the block ends well and removed when it does not."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _write_csv(file: Path, table: Table, rows: Iterator[Row]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=[each.name for each in table.columns], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: harmless(value) if isinstance(value, str) else value for name, value in row.items()})


def _write_jsonl(file: Path, table: Table, rows: Iterator[Row]) -> None:
    packed = {each.name for each in table.columns if each.kind == "json"}
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            unpacked = {name: json.loads(value) if name in packed and value else value for name, value in row.items()}
            stream.write(json.dumps(unpacked, ensure_ascii=False) + "\n")


def _write_parquet(file: Path, table: Table, rows: Iterator[Row]) -> None:
    try:
        # Without types of its own, so none are claimed.
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra(
            "Parquet needs pyarrow. Install it with `pip install 'stillme[parquet]'`, or write csv or jsonl."
        ) from None
    types = {"text": pa.string(), "json": pa.string(), "whole": pa.int64(), "number": pa.float64()}
    schema = pa.schema(
        [pa.field(each.name, types[each.kind], metadata={"description": each.meaning}) for each in table.columns]
    )
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(itertools.islice(rows, _GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


_WRITERS: Mapping[str, Callable[[Path, Table, Iterator[Row]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
KINDS = tuple(_WRITERS)
