"""A comparison for people and for programs: what became worse first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stillme import numbers
from stillme.comparison.changes import Change, Comparison, GapChange, Verdict
from stillme.comparison.markdown import plain, table
from stillme.types import Interval, NotEstimable

_TITLES: tuple[tuple[Verdict, str], ...] = (("worse", "Worse"), ("better", "Better"), ("changed", "Otherwise changed"))
_HEADS = ("quantity", "for whom", "before", "after", "change", "interval", "q", "judge")
_GAP_HEADS = ("gap in", "between groups of", "before", "after", "change", "interval", "judge")


def as_text(found: Comparison) -> str:
    """For a terminal."""
    lines = [_head(found), *found.notes]
    for verdict, title in _TITLES:
        changes = found.with_verdict(verdict)
        if changes or verdict == "worse":
            lines += ["", _counted(found, title, changes), *_aligned(_HEADS, [_row(each) for each in changes])]
    for verdict, title in (("worse", "Gaps that grew"), ("better", "Gaps that shrank")):
        gaps = [each for each in _headline_gaps(found) if each.verdict == verdict]
        if gaps:
            lines += ["", title, *_aligned(_GAP_HEADS, [_gap_row(each) for each in gaps])]
    return "\n".join([*lines, "", _rest(found)])


def as_markdown(found: Comparison) -> str:
    """For a pull request or a page."""
    lines = [f"# {plain(found.labels[1])} against {plain(found.labels[0])}", "", plain(_head(found))]
    lines += [f"\n{plain(note)}" for note in found.notes]
    for verdict, title in _TITLES:
        changes = found.with_verdict(verdict)
        if changes or verdict == "worse":
            lines += ["", f"## {_counted(found, title, changes)}", ""]
            lines += table(_HEADS, map(_row, changes)) if changes else []
    gaps = [each for each in _headline_gaps(found) if each.verdict != "unclear"]
    lines += ["", "## Gaps between groups that changed", ""]
    lines += table(_GAP_HEADS, map(_gap_row, gaps)) if gaps else ["None that the data can tell from chance."]
    lines += ["", _rest(found), "", "## Every headline comparison", ""]
    lines += table(_HEADS, [_row(each) for each in found.changes if each.is_headline])
    return "\n".join(lines) + "\n"


def as_json(found: Comparison) -> dict[str, Any]:
    """Everything, headline or not."""
    return {
        "first": found.labels[0],
        "second": found.labels[1],
        "pairs": found.cells,
        "portraits": found.portraits,
        "left_out": {"first": found.left_out[0], "second": found.left_out[1]},
        "notes": list(found.notes),
        "confidence": found.confidence,
        "tested": found.tested,
        "changes": [_change_json(each) for each in found.changes],
        "gaps": [_gap_json(each) for each in found.gaps],
    }


def _head(found: Comparison) -> str:
    return (
        f"{found.labels[0]} → {found.labels[1]}: {found.cells:,} requests to both, {found.portraits:,} portraits; "
        "each number is the second less the first on the same requests."
    )


def _counted(found: Comparison, title: str, changes: Sequence[Change]) -> str:
    return f"{title}: {len(changes):,} of {found.tested:,} comparisons"


def _rest(found: Comparison) -> str:
    quiet = [each for each in found.changes if each.is_headline and each.verdict == "unclear"]
    share = f"{100 * (1 - found.confidence):.0f} %"
    return (
        f"{len(quiet):,} comparisons show no change beyond chance, which is no proof of none: their intervals say how "
        f"much could hide. Of the changes listed, at most {share} are expected to be chance (Benjamini and Hochberg's "
        "q); intervals are by portrait and not widened for being many."
    )


def _headline_gaps(found: Comparison) -> list[GapChange]:
    shown = {(each.quantity, each.judge) for each in found.changes if each.is_headline}
    return [each for each in found.gaps if (each.quantity, each.judge) in shown]


def _row(change: Change) -> tuple[str, ...]:
    return (
        _titled(change),
        f"{numbers.factor_name(change.factor)} {change.group}" if change.factor else "everyone",
        _number(change.quantity, change.before),
        _number(change.quantity, change.after),
        *_interval(change.quantity, change.outcome),
        "" if change.adjusted is None else f"{change.adjusted:.3f}",
        change.note,
    )


def _gap_row(gap: GapChange) -> tuple[str, ...]:
    before, after = (each.value if isinstance(each, Interval) else None for each in (gap.before, gap.after))
    return (
        _titled(gap),
        numbers.factor_name(gap.factor),
        # A gap has no direction.
        *("–" if value is None else numbers.number(gap.quantity, value) for value in (before, after)),
        *_interval(gap.quantity, gap.outcome),
        gap.note,
    )


def _titled(change: Change | GapChange) -> str:
    arm = f" ({change.arm})" if change.arm != "baseline" else ""
    return f"{numbers.title(change.quantity)}{arm}"


def _number(quantity: str, value: float | None) -> str:
    return "–" if value is None else numbers.number(quantity, value, plus=numbers.is_signed(quantity))


def _interval(quantity: str, outcome: Interval | NotEstimable) -> tuple[str, str]:
    if isinstance(outcome, NotEstimable):
        return "–", outcome.reason
    return numbers.number(quantity, outcome.value, plus=True), numbers.span(quantity, outcome, plus=True)


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for row in (heads, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "quantity": change.quantity,
        "arm": change.arm,
        "judge": change.judge,
        "factor": change.factor,
        "group": change.group,
        "before": change.before,
        "after": change.after,
        **_outcome_json(change.outcome),
        "p": change.p,
        "q": change.adjusted,
        "worse_when": str(change.worse),
        "verdict": change.verdict,
        "portraits": change.portraits,
        "pairs": change.pairs,
        "judge_note": change.note,
    }


def _gap_json(gap: GapChange) -> dict[str, Any]:
    return {
        "quantity": gap.quantity,
        "arm": gap.arm,
        "judge": gap.judge,
        "factor": gap.factor,
        "before": _outcome_json(gap.before),
        "after": _outcome_json(gap.after),
        "lowest": list(gap.lowest),
        "highest": list(gap.highest),
        **_outcome_json(gap.outcome),
        "verdict": gap.verdict,
        "judge_note": gap.note,
    }


def _outcome_json(outcome: Interval | NotEstimable) -> dict[str, Any]:
    if isinstance(outcome, NotEstimable):
        return {"change": None, "low": None, "high": None, "not_estimable": outcome.reason}
    return {"change": outcome.value, "low": outcome.low, "high": outcome.high, "method": outcome.method}
