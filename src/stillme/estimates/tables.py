"""Estimates as CSV: the same estimates give the same bytes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stillme import rubric
from stillme.estimates.cuts import rate_of
from stillme.estimates.disparity import Disparity
from stillme.estimates.quantities import EDIT_RATES
from stillme.estimates.standing import Standing, mark
from stillme.types import Estimate, Interval

Row = Mapping[str, str]

_NAMED = ("editor", "arm", "judge", "quantity", "factor", "group")
_INTERVAL = ("value", "low", "high", "confidence")
NOTE = "judge_note"
_NULL = ("null_mean", "null_high", "null_p", "omnibus_p")
_EVERYTHING = (
    *_NAMED,
    "prompts",
    "scope",
    *_INTERVAL,
    *_NULL,
    "method",
    "not_estimable",
    "portraits",
    "edits",
    "excluded",
    NOTE,
)
_CHANCE = ("chance alone stays below", "p")
_GROUPS = (*_NAMED, "estimate", "portraits", "edits", NOTE)
_DISPARITIES = (*_NAMED, "estimate", *_CHANCE, "portraits", "edits", NOTE)


def write_tables(estimates: Iterable[Estimate], folder: Path, standing: Standing | None = None) -> list[Path]:
    """Write `estimates.csv` (everything), `groups.csv` and `disparities.csv` into `folder`/tables.

    `standing` says which judges were calibrated; the numbers of the others carry a note.
    """
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    found = sorted(estimates, key=lambda each: (*(getattr(each, name) for name in _NAMED), each.scope))
    notes = [{NOTE: mark(standing or {}, each.judge, each.quantity)} for each in found]
    noted = list(zip(found, notes, strict=True))
    within = [{**_readable(each), **note} for each, note in noted if each.scope in ("all", "group")]
    between = [{**_readable(each), **note} for each, note in noted if each.scope in ("disparity", "contrast")]
    return [
        write_csv(tables / "estimates.csv", _EVERYTHING, [{**_everything(each), **note} for each, note in noted]),
        write_csv(tables / "groups.csv", _GROUPS, within),
        write_csv(tables / "disparities.csv", _DISPARITIES, between),
    ]


def title(quantity: str) -> str:
    """What to call a quantity in front of people."""
    rate = rate_of(quantity)
    return EDIT_RATES.get(quantity) or (rate.title if rate else rubric.load().title(quantity))


def _everything(found: Estimate) -> Row:
    row = {name: str(getattr(found, name)) for name in (*_NAMED, "prompts", "scope", "portraits", "edits")}
    row["excluded"] = "; ".join(f"{reason}: {count}" for reason, count in sorted(found.excluded.items()))
    if isinstance(found.outcome, Interval):
        row |= {name: _number(getattr(found.outcome, name)) for name in _INTERVAL} | {"method": found.outcome.method}
    else:
        row["not_estimable"] = found.outcome.reason
    if isinstance(found, Disparity) and found.null:
        null = found.null
        row |= dict(zip(_NULL, map(_number, (null.mean, null.high, null.p, null.omnibus)), strict=True))
    return row


def _readable(found: Estimate) -> Row:
    row = {name: str(getattr(found, name)) for name in (*_NAMED, "portraits", "edits")}
    row |= {
        "quantity": title(found.quantity),
        "factor": found.factor or "everyone",
        "group": found.group or ("max - min" if found.scope == "disparity" else "all"),
        "estimate": as_text(found),
    }
    if isinstance(found, Disparity) and found.null:
        row |= dict(
            zip(_CHANCE, (number_text(found.quantity, found.null.high), f"{found.null.omnibus:.4f}"), strict=True)
        )
    return row


def as_text(found: Estimate) -> str:
    """`12.5 % [8.0 %, 17.2 %]`, or why there is no number."""
    if not isinstance(found.outcome, Interval):
        return f"not estimable: {found.outcome.reason}"
    interval = found.outcome
    value, low, high = (number_text(found.quantity, each) for each in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def is_rate(quantity: str) -> bool:
    """Whether the quantity is a share of edits, to be shown in percent."""
    return quantity in EDIT_RATES or rate_of(quantity) is not None


def number_text(quantity: str, value: float) -> str:
    """Show a rate in percent, a mean in its own unit."""
    # A rounded zero has no sign.
    if is_rate(quantity):
        return f"{round(100 * value, 1) + 0.0:.1f} %"
    return f"{round(value, 3) + 0.0:.3f}"


def _number(value: float) -> str:
    return f"{value + 0.0:.9g}"


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> Path:
    """Write a table whole or not at all; what a spreadsheet would run as a formula is marked as text."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless(cell) for name, cell in row.items()} for row in rows)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        stream.write(buffer.getvalue())
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    return path


def harmless(cell: str) -> str:
    """Mark as text what a spreadsheet would run as a formula; numbers stay numbers."""
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(cell):
        return "'" + cell
    return cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
