"""Scores made elsewhere become rows of a run: of an audit's run, or of one that is made of rows alone.

A run of rows needs no audit.toml, no editor and no picture. Every reader works on it: estimates, tables, report
(without pictures), compare and gate.
"""

from __future__ import annotations

import importlib
import itertools
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stillme.audit.loading import FILE
from stillme.core.errors import MissingExtra, Problem, StillmeError, did_you_mean
from stillme.core.files import whole, write_csv, write_json_lines, write_whole
from stillme.core.tables import counted
from stillme.core.types import Abstained, Rated
from stillme.findings.exchange.audit_run import RunEdits, append_rows
from stillme.findings.exchange.columns import ColumnMapping, InvalidJudgements, Layout, Unreadable, columns_of, read
from stillme.findings.exchange.row_run import STATES, NewEdits, RunOfRows, imported_as, is_papers
from stillme.findings.exchange.row_table import RowsAsked, RowTable
from stillme.runs import RecordedRun, folder_of
from stillme.runs.store import Store
from stillme.runs.store.exported import Table, codebook, rows_of, tables_in, with_names
from stillme.work.changes import adopt


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSummary:
    """What became of the rows."""

    file: Path
    into: Path
    edits: int
    """Edits that the rows are about."""
    scores: int
    abstained: int
    judges: tuple[str, ...]
    left_out: int
    unread_columns: tuple[str, ...]
    new: int = 0
    """Assessments that were added; the others were there with the same scores."""
    portraits: int = 0
    editors: tuple[str, ...] = ()
    refused: int = 0
    failed: int = 0
    has_states: bool = False
    """Whether the rows say which edits were refused or failed."""
    already: bool = False
    """Whether the run holds exactly this import already."""
    declared: tuple[str, ...] = ()
    """Judges that were added to audit.toml."""
    notes: tuple[str, ...] = ()
    """What the user should know, each as a sentence."""

    def as_text(self) -> str:
        """For the terminal."""
        if self.already:
            return f"{self.into} holds exactly these rows already; nothing was changed."
        lost = f" ({self.refused:,} refused, {self.failed:,} failed)" if self.has_states else ""
        by = ", ".join(self.judges) or "no judge"
        edits = f"{counted(self.edits, 'edit')} of {counted(self.portraits, 'portrait')}"
        lines = [
            f"{edits} by {', '.join(self.editors)}{lost}",
            f"{counted(self.scores, 'score')} by {by} ({self.abstained:,} abstained); {self.new:,} new",
            *self.notes,
        ]
        if self.left_out:
            lines.append(f"{counted(self.left_out, 'row')} skipped by --where.")
        if self.unread_columns:
            lines.append(f"Columns that were not read: {', '.join(self.unread_columns)}.")
        lines += [f"The judge {judge!r} was added to audit.toml." for judge in self.declared]
        return "\n".join(lines)


def import_rows(
    file: Path,
    into: Path,
    asked: RowsAsked,
    mapping: ColumnMapping,
    *,
    out: Path | None = None,
    wait: float = 0.0,
    watch: Callable[[int], None] = lambda _: None,
) -> RowsSummary:
    """Import the rows of `file` into the run or audit `into`: all of them, or none.

    Where there is no run, and no audit.toml, a run is made of the rows.
    """
    reading = _Reading(file, asked, mapping, watch)
    is_new = not into.exists() or (into.is_dir() and not any(into.iterdir()))
    folder = out or (into if is_new else folder_of(into))
    if not Store.exists(folder):
        if (folder / FILE).is_file():
            command = f"stillme run {shlex.quote(str(folder))} --only edit"
            raise StillmeError(f"{folder} has no run yet. `{command}` makes the edits to rate.")
        return _into_rows(reading, folder, None, wait)
    with Store.reading(folder) as store:
        latest = store.latest_audit()
        of_rows = latest is not None and "rows" in latest.resolved
        if of_rows:
            run = RecordedRun(store) if store.designs.latest() is not None else None
            return _into_rows(reading, folder, run, wait)
    with Store.writing(folder, wait=wait) as store:
        # A judge that was just added to audit.toml is known from here on.
        adopt(folder, store)
        return _into_audit(reading, store, RecordedRun(store))


class _Reading:
    """A file with what the user says of it."""

    def __init__(self, file: Path, asked: RowsAsked, mapping: ColumnMapping, watch: Callable[[int], None]) -> None:
        self.file, self.asked, self.mapping, self._watch = file, asked, mapping, watch
        self.layout = Layout(columns_of(file), mapping, str(file), groups=asked.groups)
        self.left_out = 0

    def fill(self, table: RowTable) -> None:
        """Read every row into the table; one that cannot be read stops the import."""
        problems: list[Problem] = []
        rows = 0
        for row in read(self.file):
            if not self.layout.selects(row):
                self.left_out += 1
                continue
            rows += 1
            try:
                table.add(row)
            except Unreadable as error:
                problems.append(Problem(place=row.place, message=str(error)))
            if rows % 100_000 == 0:
                self._watch(rows)
        if not rows:
            raise StillmeError(f"{self.file} has no rows" + (" that match --where." if self.left_out else "."))
        if problems:
            raise InvalidJudgements(str(self.file), problems)
        for name in (*self.asked.people, *self.asked.instruments, *self.asked.models):
            if name not in table.judges:
                near = did_you_mean(name, table.judges)
                raise StillmeError(f"No row is by a judge {name!r}.{near} The rows have {', '.join(table.judges)}.")

    def summary(self, table: RowTable, folder: Path) -> RowsSummary:
        """What was read."""
        return RowsSummary(
            file=self.file,
            into=folder,
            edits=len(table.edits),
            scores=table.count(Rated),
            abstained=table.count(Abstained),
            judges=tuple(table.judges),
            left_out=self.left_out,
            unread_columns=self.layout.unread,
        )


def _into_audit(reading: _Reading, store: Store, run: RecordedRun) -> RowsSummary:
    for option, given in (("--group", reading.asked.groups), ("--reference", reading.asked.reference)):
        if given:
            raise StillmeError(f"{run.folder} is an audit's run: {option} is in its audit.toml. Leave the option out.")
    edits = RunEdits(reading.layout, run)
    table = RowTable(reading.layout, edits)
    for judge in run.judges:
        _remember(table, store, judge.spec.key, judge.name, edits.place)
    reading.fill(table)
    new, declared = append_rows(table, edits, reading.file, store, reading.asked, run)
    rated = [edits.requests[edit] for edit in table.edits]
    return replace(
        reading.summary(table, run.folder),
        new=new,
        declared=declared,
        portraits=len({name for request in rated for name in request.portraits}),
        editors=tuple(dict.fromkeys(request.editor for request in edits.requests)),
    )


def _into_rows(reading: _Reading, folder: Path, run: RecordedRun | None, wait: float) -> RowsSummary:
    edits = NewEdits(reading.layout, reading.asked.groups, run)
    table = RowTable(reading.layout, edits)
    _require_groups(reading)
    known = len(edits.requests)
    if run:
        keys = {request.key: place for place, request in enumerate(run.requests())}
        for judge in run.judges:
            _remember(table, run.store, judge.spec.key, judge.name, keys.get)
    reading.fill(table)
    _require_reference(edits, reading.asked)
    already = run is not None and imported_as(reading.file, reading.mapping) in run.design.resolved["rows"]
    new = 0
    if not already:
        made = RunOfRows(table, edits, reading.file, reading.asked, reading.mapping, run.design if run else None)
        folder.mkdir(parents=True, exist_ok=True)
        with Store.writing(folder, wait=wait) as store:
            new = made.write(store)
    states = np.asarray(edits.states)[known:]
    return replace(
        reading.summary(table, folder),
        edits=len(states) or len(table.edits),
        refused=int((states == STATES.index("refused")).sum()),
        failed=int((states == STATES.index("failed")).sum()),
        new=new,
        portraits=len(edits.portraits),
        editors=tuple(edits.editors),
        has_states=edits.has_states,
        already=already,
        notes=tuple(_notes(edits)),
    )


def _remember(table: RowTable, store: Store, judge_key: str, judge: str, place: Callable[[str], int | None]) -> None:
    """Who has rated which edit as which of its raters."""
    for key, epoch, said in store.answers_by(judge_key):
        edit = place(key)
        if edit is not None and (rater := str(said.get("rater", ""))):
            table.known_raters(judge, edit, epoch, rater)


def _notes(edits: NewEdits) -> Iterator[str]:
    """What the rows leave open, or may not mean."""
    total = len(edits.portraits)
    for group, count in edits.unlabelled.items():
        yield f"{count:,} of {total:,} portraits have no {group}; they count for everyone and in no group of it."
    if not edits.has_states:
        yield "There is no column `state`, so refusals and failures are not known and not estimated."
    papers = sum(is_papers(prompt) for prompt in edits.prompts.values())
    if papers:
        yield f"{papers:,} of {len(edits.prompts):,} prompts are the paper's, by id or text."
    people = Counter(name for _, names, *_ in edits.requests for name in names)
    if max(people.values()) == 1 and (len(edits.prompts) > 1 or len(edits.editors) > 1):
        yield (
            f"Is `portrait` the person? Each of {total:,} portraits has one edit, although there are "
            f"{len(edits.prompts):,} prompts and {len(edits.editors):,} editors. If it names the edit, intervals are "
            "too narrow: name the person's column with --map portrait=COLUMN."
        )


def _require_groups(reading: _Reading) -> None:
    if not reading.layout.has("portrait") and "portrait" not in reading.layout.fixed:
        raise StillmeError(
            f"{reading.file} has no column `portrait`: who is in the picture. Name it with --map portrait=COLUMN. "
            f"It has {', '.join(reading.layout.columns)}."
        )
    for group in reading.asked.groups:
        if not reading.layout.has(group):
            near = did_you_mean(group, reading.layout.columns)
            raise StillmeError(
                f"{reading.file} has no column {group!r}.{near} It has {', '.join(reading.layout.columns)}."
            )


def _require_reference(edits: NewEdits, asked: RowsAsked) -> None:
    """What the user names must be in the rows: a run whose reference does not exist could never be estimated."""
    for factor, level in asked.reference.items():
        if factor not in edits.groups:
            raise StillmeError(
                f"--reference names {factor!r}, which is no --group.{did_you_mean(factor, edits.groups)}"
            )
        levels = sorted({portrait.attributes.get(factor, "") for portrait in edits.portraits.values()} - {""})
        if level not in levels:
            near = did_you_mean(level, levels)
            raise StillmeError(f"No portrait has {factor} {level!r}.{near} The rows have {', '.join(levels)}.")


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
