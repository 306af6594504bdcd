"""From the rows of a bundle to its numbers, the same way when it is sealed and when it is verified."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stillme import estimates, results
from stillme.evidence.design import REQUEST_COLUMNS, SealedAudit, Unreadable, restore
from stillme.exchange import rows as tables
from stillme.results import settings_of
from stillme.store import Store
from stillme.store.ledger import LEDGER
from stillme.store.schema import migrate
from stillme.types import Json

FORMAT = 1
"""Of the bundle; counts up when an older stillme could not read it any more."""

ROWS = "rows"
REQUESTS = f"{ROWS}/requests.jsonl"
EDITS = f"{ROWS}/edits.jsonl"
JUDGEMENTS = f"{ROWS}/judgements.jsonl"
DESIGN = "design.json"
ABOUT = "evidence.json"
_COLUMNS = {
    REQUESTS: REQUEST_COLUMNS,
    EDITS: tuple(column.name for column in tables.EDITS.columns),
    JUDGEMENTS: tuple(column.name for column in tables.JUDGEMENTS.columns),
}
NEEDED = (ABOUT, DESIGN, REQUESTS, EDITS, JUDGEMENTS)

_EDIT = (
    "INSERT INTO edit (key, final, portraits, prompt, arm, instruction, editor, seed, outcome, image, message,"
    " effective, truth, attempts, seconds, cost, at)"
    " VALUES (:edit, :final, '[]', :prompt, :arm, '', :editor_key, :seed, :outcome, :image, :message,"
    " '{}', :truth, :attempts, :seconds, :cost, :at)"
)
_ASSESSMENT = (
    "INSERT INTO assessment (id, key, final, edit, judge, epoch, raw, effective, attempts, seconds, cost, at)"
    " VALUES (:number, :assessment, :final, :edit, :judge_key, :epoch, NULL, '{}', :attempts, :seconds, :cost, :at)"
)
_JUDGEMENT = "INSERT INTO judgement VALUES (:number, :axis, :outcome, :score, :reason)"


def open_design(folder: Path) -> tuple[SealedAudit, estimates.Standing]:
    """The audit of an unpacked bundle, and what calibration said of its judges."""
    try:
        design = json.loads((folder / DESIGN).read_text("utf-8"))
        standing: estimates.Standing = design["standing"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{DESIGN} cannot be read: {error}") from None
    return restore(design, folder / REQUESTS), standing


def recompute(bundle: Path, into: Path) -> list[Path]:
    """Compute every table from the rows of an unpacked bundle, and write `tables/*.csv` into `into`."""
    audit, standing = open_design(bundle)
    with tempfile.TemporaryDirectory(prefix="stillme-ledger-") as name:
        _rebuild(bundle, Path(name))
        with Store.reading(Path(name)) as store:
            gathered = results.gather(audit, store)
            found = estimates.estimate(gathered.edits, gathered.scores, settings_of(audit))
    return estimates.write_tables(found, into, standing)


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


def _rebuild(bundle: Path, folder: Path) -> None:
    """A ledger with what the numbers are made of."""
    connection = sqlite3.connect(folder / LEDGER, isolation_level=None)
    try:
        migrate(connection)
        connection.execute("BEGIN")
        place = EDITS
        try:
            for row in read_rows(bundle, EDITS):
                truth = None if row["truth"] is None else json.dumps(row["truth"])
                connection.execute(_EDIT, _bound(row) | {"truth": truth})
            place, last = JUDGEMENTS, None
            for row in read_rows(bundle, JUDGEMENTS):
                if row["number"] != last:
                    connection.execute(_ASSESSMENT, _bound(row))
                    last = row["number"]
                connection.execute(_JUDGEMENT, _bound(row))
        except sqlite3.Error as error:
            raise Unreadable(f"{place} does not hold rows of a run: {error}") from None
        connection.execute("COMMIT")
    finally:
        connection.close()


def _bound(row: dict[str, Json]) -> dict[str, Json]:
    """What SQLite can take: the columns that hold no JSON."""
    return {name: value for name, value in row.items() if not isinstance(value, dict | list)}
