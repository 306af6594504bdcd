"""Estimates as CSV, and any result's fields as the cells of a row: the same numbers give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from stillme.core.files import write_csv, write_json
from stillme.core.types import Estimate, Interval, NotEstimable
from stillme.estimates import Disparity, Finding, Settings, find_gaps, numbers
from stillme.estimates.headlines import Standing, abstentions, mark, place_of, uneven

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
_BETWEEN = ("disparity", "contrast")
"""Differences between groups; of rates they are in points."""
_CHANCE = ("chance alone stays below", "p")
_GROUPS = (*_NAMED, "estimate", "portraits", "edits", NOTE)
_ABSTENTIONS = (*_NAMED, "answered", "abstained", "share", "note")
_DISPARITIES = (*_NAMED, "estimate", *_CHANCE, "portraits", "edits", NOTE)


def write_tables(
    estimates: Iterable[Estimate], folder: Path, settings: Settings, standing: Standing | None = None
) -> list[Path]:
    """Write `estimates.csv` (everything), `groups.csv`, `disparities.csv`, `abstentions.csv` and `findings.json`.

    They go into `folder`/tables.

    `standing` says which judges were calibrated; the numbers of the others carry a note.
    """
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    ordered = sorted(estimates, key=lambda estimate: (*(getattr(estimate, name) for name in _NAMED), estimate.scope))
    noted = [
        (estimate, {NOTE: mark(standing or {}, estimate.judge, estimate.quantity, estimate)}) for estimate in ordered
    ]
    within = [_readable(estimate) | note for estimate, note in noted if estimate.scope in ("all", "group")]
    between = [_readable(estimate) | note for estimate, note in noted if estimate.scope in _BETWEEN]
    return [
        write_csv(tables / "estimates.csv", _EVERYTHING, [_everything(estimate) | note for estimate, note in noted]),
        write_csv(tables / "groups.csv", _GROUPS, within),
        write_csv(tables / "disparities.csv", _DISPARITIES, between),
        write_csv(tables / "abstentions.csv", _ABSTENTIONS, _abstentions(ordered)),
        write_findings(find_gaps(ordered, standing or {}, settings), tables),
    ]


def _abstentions(estimates: Sequence[Estimate]) -> Iterator[dict[str, str]]:
    """By group, where a judge abstained at all, and whether groups differ too much to be compared."""
    silent, rows = uneven(estimates), abstentions(estimates)
    some = {place_of(row) for row in rows if row.abstained}
    for row in rows:
        if place_of(row) in some:
            yield {
                **{name: str(getattr(row, name)) for name in (*_NAMED, "answered", "abstained")},
                "share": numbers.machine(row.share),
                "note": silent.get(place_of(row), ""),
            }


def write_findings(findings: Sequence[Finding], tables: Path) -> Path:
    """Write `findings.json`: a record of every gap that can make a headline, with its word."""
    return write_json(tables / "findings.json", [asdict(finding) for finding in findings])


def _everything(estimate: Estimate) -> dict[str, str]:
    row = {name: str(getattr(estimate, name)) for name in (*_NAMED, "prompts", "scope", "portraits", "edits")}
    row["excluded"] = "; ".join(f"{reason}: {count}" for reason, count in sorted(estimate.excluded.items()))
    if isinstance(estimate.outcome, Interval):
        row |= {name: numbers.machine(getattr(estimate.outcome, name)) for name in _INTERVAL} | {
            "method": estimate.outcome.method
        }
    else:
        row["not_estimable"] = estimate.outcome.reason
    if isinstance(estimate, Disparity) and estimate.null:
        null = estimate.null
        row |= dict(zip(_NULL, map(numbers.machine, (null.mean, null.high, null.p, null.omnibus)), strict=True))
    return row


def _readable(estimate: Estimate) -> dict[str, str]:
    row = {name: str(getattr(estimate, name)) for name in (*_NAMED, "portraits", "edits")}
    row |= {
        "quantity": numbers.title(estimate.quantity),
        "factor": estimate.factor or "everyone",
        "group": estimate.group or ("max - min" if estimate.scope == "disparity" else "all"),
        "estimate": as_text(estimate),
    }
    if isinstance(estimate, Disparity) and estimate.null:
        row |= dict(
            zip(
                _CHANCE,
                (numbers.difference(estimate.quantity, estimate.null.high), numbers.p_number(estimate.null.omnibus)),
                strict=True,
            )
        )
    return row


def as_text(estimate: Estimate) -> str:
    """`12.5 % [8.0 %, 17.2 %]`, `12.5 points [8.0 points, 17.2 points]`, or why there is no number."""
    if not isinstance(estimate.outcome, Interval):
        return f"not estimable: {estimate.outcome.reason}"
    interval = estimate.outcome
    write = numbers.difference if estimate.scope in _BETWEEN else numbers.number
    value, low, high = (write(estimate.quantity, end) for end in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


_SUBJECT = ("outcome", "icc")
"""The one number that a row is about needs no prefix."""
_PLAIN = (str, int, float, bool, type(None))
"""What most cells hold; tables have tens of thousands of rows."""


def row_of(result: object) -> dict[str, object]:
    """The cells as they are: numbers are numbers, what is absent is None."""
    row: dict[str, object] = {}
    _fill(row, result, "")
    return row


def text_row_of(result: object) -> dict[str, str]:
    """The cells as a CSV file has them."""
    return {name: value if type(value) is str else cell_text(value) for name, value in row_of(result).items()}


def _fill(row: dict[str, object], result: object, prefix: str) -> None:
    if is_dataclass(result):
        items = [(name, getattr(result, name)) for name in _names(type(result))]
    else:
        items = list(cast("Mapping[str, Any]", result).items())
    for name, value in items:
        if type(value) in _PLAIN:
            row[prefix + name] = value
        else:
            _fill_cells(row, prefix + name, value)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind) if part.metadata.get("cell", True))


def _fill_cells(row: dict[str, object], name: str, value: Any) -> None:
    stem = "" if name in _SUBJECT else f"{name}_"
    match value:
        case Interval():
            for part in ("value", "low", "high"):
                row[stem + part] = getattr(value, part) + 0.0
            row[f"{stem}method"] = value.method
        case NotEstimable():
            # The columns of a number are there also where no row has one.
            row.update((f"{stem}{part}", None) for part in ("value", "low", "high"))
            row[f"{stem}not_estimable"] = value.reason
        case Mapping():
            counted = cast("Mapping[str, object]", value)
            row[name] = "; ".join(f"{key}: {count}" for key, count in sorted(counted.items()))
        case _ if is_dataclass(value):
            _fill(row, value, f"{name}_")
        case _:
            row[name] = value


def cell_text(value: object) -> str:
    """A cell as a text: what is absent is empty, and a float has all its digits."""
    if value is None:
        return ""
    return numbers.machine(value) if isinstance(value, float) else str(value)
