"""What a bundle is made of; unpacked, it is a run like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

from stillme.design import RecordedRequest
from stillme.errors import StillmeError
from stillme.results import Run
from stillme.store import exported
from stillme.store.rebuilding import NotRows, rebuild
from stillme.types import Arm, Json

FORMAT = 3
"""Of the bundle; counts up when an older stillme could not read it any more."""

ROWS = "rows"
IMAGES = "images"
REQUESTS = f"{ROWS}/requests.jsonl"
EDITS = f"{ROWS}/edits.jsonl"
JUDGEMENTS = f"{ROWS}/judgements.jsonl"
DESIGN = "design.json"
ABOUT = "evidence.json"
REPORT = "report.html"
NEEDED = (ABOUT, DESIGN, REQUESTS, EDITS, JUDGEMENTS)
_COLUMNS = {
    REQUESTS: tuple(part.name for part in fields(RecordedRequest)),
    EDITS: tuple(column.name for column in exported.EDITS.columns),
    JUDGEMENTS: tuple(column.name for column in exported.JUDGEMENTS.columns),
}


class Unreadable(StillmeError):
    """A bundle whose contents this stillme cannot make sense of."""


def request_rows(run: Run) -> Iterator[dict[str, Json]]:
    """Every request of a run, as its bundle keeps it."""
    for request in run.requests():
        yield asdict(request) | {"portraits": list(request.portraits)}


def ledger_rows(run: Run, name: str) -> Iterator[dict[str, Json]]:
    """The edits or judgements of a run, as its bundle keeps them."""
    table = exported.EDITS if name == EDITS else exported.JUDGEMENTS
    packed = {column.name for column in table.columns if column.kind == "json"}
    for row in exported.rows_of(run.store, table):
        yield {column: json.loads(value) if column in packed and value else value for column, value in row.items()}


def as_run(folder: Path, into: Path) -> Run:
    """The run of an unpacked bundle, with a ledger rebuilt in `into`."""
    try:
        rebuild(
            into, read_json(folder, DESIGN), _requests(folder), read_rows(folder, EDITS), read_rows(folder, JUDGEMENTS)
        )
    except NotRows as error:
        raise Unreadable(str(error)) from None
    pictures = folder / IMAGES
    if pictures.is_dir():
        pictures.rename(into / IMAGES)
    return Run.open(into)


def read_json(folder: Path, name: str) -> dict[str, Json]:
    """One of a bundle's JSON files, an object."""
    try:
        value = parse_json((folder / name).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{name} holds no object")
    return cast("dict[str, Json]", value)


def read_rows(folder: Path, name: str) -> Iterator[dict[str, Json]]:
    """The rows of one of a bundle's JSON-lines files, each with exactly its columns."""
    columns = set(_COLUMNS[name])
    with (folder / name).open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                row = parse_json(line)
                wrong = min(columns ^ set(row), default=None)
            except (ValueError, TypeError, RecursionError) as error:
                raise Unreadable(f"{name} row {number} is no row: {error}") from None
            if wrong is not None:
                raise Unreadable(f"{name} row {number} has {'no' if wrong in columns else 'an unknown'} {wrong!r}")
            yield row


def parse_json(text: str) -> Json:
    """Parse what stillme writes; a name twice in one object, of which readers pick one or the other, is an error."""
    return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return value


def _no_number(text: str) -> Json:
    raise ValueError(f"{text} is no number")


def _requests(folder: Path) -> Iterator[RecordedRequest]:
    for number, row in enumerate(read_rows(folder, REQUESTS), start=1):
        try:
            parts: dict[str, Any] = row | {"portraits": tuple(row["portraits"]), "arm": Arm(row["arm"])}
            yield RecordedRequest(**parts)
        except (TypeError, ValueError) as error:
            raise Unreadable(f"{REQUESTS} row {number} is no request: {error}") from None
