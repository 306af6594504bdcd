"""Estimates as CSV: the same estimates give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from stillme.core.files import write_csv, write_json
from stillme.core.types import Estimate, Interval
from stillme.estimates import Disparity, Finding, Settings, find_gaps, numbers
from stillme.estimates.headlines import Standing, abstentions, mark, uneven

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
    some = {row.place for row in rows if row.abstained}
    for row in rows:
        if row.place in some:
            yield {
                **{name: str(getattr(row, name)) for name in (*_NAMED, "answered", "abstained")},
                "share": numbers.machine(row.share),
                "note": silent.get(row.place, ""),
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
