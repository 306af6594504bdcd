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

FORMAT = 2
"""Of the bundle; counts up when an older stillme could not read it any more."""

ROWS = "rows"
REQUESTS = f"{ROWS}/requests.jsonl"
EDITS = f"{ROWS}/edits.jsonl"
JUDGEMENTS = f"{ROWS}/judgements.jsonl"
DESIGN = "design.json"
ABOUT = "evidence.json"
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
        yield asdict(request)


def as_run(folder: Path, into: Path) -> Run:
    """The run of an unpacked bundle, with a ledger rebuilt in `into`."""
    try:
        design = json.loads((folder / DESIGN).read_text("utf-8"))
    except ValueError as error:
        raise Unreadable(f"{DESIGN} cannot be read: {error}") from None
    if not isinstance(design, dict):
        raise Unreadable(f"{DESIGN} holds no design")
    try:
        rebuild(
            into,
            cast("dict[str, Json]", design),
            _requests(folder),
            read_rows(folder, EDITS),
            read_rows(folder, JUDGEMENTS),
        )
    except NotRows as error:
        raise Unreadable(str(error)) from None
    pictures = folder / "images"
    if pictures.is_dir():
        pictures.rename(into / "images")
    return Run.open(into)


def read_rows(folder: Path, name: str) -> Iterator[dict[str, Json]]:
    """The rows of one of a bundle's JSON-lines files, each with all of its columns."""
    columns = _COLUMNS[name]
    with (folder / name).open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                row = json.loads(line)
                lacking = next((column for column in columns if column not in row), None)
            except (ValueError, TypeError) as error:
                raise Unreadable(f"{name} row {number} is no row: {error}") from None
            if lacking:
                raise Unreadable(f"{name} row {number} has no {lacking!r}")
            yield row


def _requests(folder: Path) -> Iterator[RecordedRequest]:
    for number, row in enumerate(read_rows(folder, REQUESTS), start=1):
        try:
            said: dict[str, Any] = {name: row[name] for name in _COLUMNS[REQUESTS]}
            said |= {"portraits": tuple(said["portraits"]), "arm": Arm(said["arm"])}
            yield RecordedRequest(**said)
        except (TypeError, ValueError) as error:
            raise Unreadable(f"{REQUESTS} row {number} is no request: {error}") from None
