"""A comparison for people and for programs: what became worse first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from stillme.core.rubric import TOWARD_REFERENCE
from stillme.core.tables import aligned, counted
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import numbers
from stillme.estimates.directions import Shift
from stillme.estimates.headlines import axis_of
from stillme.estimates.rows import Scores
from stillme.findings.compare.changes import (
    Change,
    Comparison,
    GapChange,
    Verdict,
    Worse,
    loss,
    worse_when,
)
from stillme.findings.compare.matched_edits import Matched
from stillme.findings.layout import plain, table
from stillme.runs.thumbnails import data_uri

_TITLES: tuple[tuple[Verdict, str], ...] = (
    ("worse", "Worse"),
    ("better", "Better"),
    ("changed", "Otherwise changed"),
    ("size unclear", "Changed, size unclear"),
)
_GAP_TITLES: tuple[tuple[Verdict, str], ...] = (
    ("worse", "Gaps that grew"),
    ("better", "Gaps that shrank"),
    ("changed", "Gaps that otherwise changed"),
    ("size unclear", "Gaps that changed, size unclear"),
)
_HEADS = ("quantity", "for whom", "before", "after", "change", "interval", "q", "judge")
_GAP_HEADS = ("gap in", "between", "before", "after", "change", "interval", "p", "further pairs", "judge")


_INTO_WHAT = "Into what: share of edits that appear so to a reader"
_APPEARS_HEADS = ("appears", "of portraits labelled", "before", "after", "change", "interval", "p", "", "reader")


def as_text(comparison: Comparison) -> str:
    """For a terminal."""
    lines = [_head(comparison), *comparison.notes]
    for title, heads, rows in _sections(comparison):
        lines += ["", title, *aligned(rows, heads)] if rows else ["", title]
    return "\n".join([*lines, "", _rest(comparison)])


def as_markdown(comparison: Comparison) -> str:
    """For a pull request or a page."""
    lines = [f"# {plain(comparison.labels[1])} against {plain(comparison.labels[0])}", "", plain(_head(comparison))]
    lines += [f"\n{plain(note)}" for note in comparison.notes]
    for title, heads, rows in _sections(comparison):
        lines += ["", f"## {title}", "", *(table(heads, rows) if rows else [])]
    headline = [_row(change) for change in comparison.changes if change.is_headline]
    lines += ["", _rest(comparison), "", "## Every headline comparison", "", *table(_HEADS, headline)]
    return "\n".join(lines) + "\n"


def _sections(comparison: Comparison) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title, heads and rows of each table, what became worse first."""
    for verdict, title in _TITLES:
        changes = comparison.with_verdict(verdict)
        if changes or verdict == "worse":
            yield _counted(comparison, title, changes), _HEADS, [_row(change) for change in changes]
    for verdict, title in _GAP_TITLES:
        gaps = [_gap_row(gap) for gap in _headline_gaps(comparison) if gap.verdict == verdict]
        if gaps:
            yield title, _GAP_HEADS, gaps
    if comparison.appears:
        yield _INTO_WHAT, _APPEARS_HEADS, [_appears_row(shift) for shift in comparison.appears]


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, headline or not."""
    return {
        "first": comparison.labels[0],
        "second": comparison.labels[1],
        "pairs": comparison.cells,
        "portraits": comparison.portraits,
        "left_out": {"first": comparison.left_out[0], "second": comparison.left_out[1]},
        "notes": list(comparison.notes),
        "confidence": comparison.confidence,
        "tested": comparison.tested,
        "changes": [_change_json(change) for change in comparison.changes],
        "gaps": [_change_json(gap) for gap in comparison.gaps],
    } | ({"appears": [_appears_json(shift) for shift in comparison.appears]} if comparison.appears else {})


def _head(comparison: Comparison) -> str:
    first, second = comparison.labels
    return (
        f"{first} → {second}: {counted(comparison.cells, 'request')} to both, "
        f"{counted(comparison.portraits, 'portrait')}. "
        "Each change is second minus first on the same requests."
    )


def _counted(comparison: Comparison, title: str, changes: Sequence[Change]) -> str:
    if not comparison.tested and not comparison.untestable:
        return f"{title}: not known, nothing could be compared"
    return f"{title}: {len(changes):,} of {counted(comparison.tested, 'comparison')}"


def _rest(comparison: Comparison) -> str:
    unclear = [change for change in comparison.changes if change.is_headline and change.verdict == "unclear"]
    share = f"{100 * (1 - comparison.confidence):.0f} %"
    few = counted(comparison.untestable, "more rests", "more rest") + " on too few portraits that changed at all. "
    few *= bool(comparison.untestable)
    q = [change.adjusted for change in comparison.changes if change.is_headline and change.verdict != "unclear"]
    tied = len(set(q)) < len(q)
    ties = "Equal q are no mistake: the correction gives neighbouring p-values the same q. " * tied
    return (
        f"{counted(len(unclear), 'comparison shows', 'comparisons show')} no significant change; "
        "their intervals show what could be missed. "
        "Worse and better are changes larger than the smallest effect that matters. "
        f"Of the changes listed, at most {share} are expected to be chance (q, Benjamini and Hochberg). {ties}"
        f"{few}Intervals of changes are by portrait and not adjusted for multiple comparisons; those of gaps hold for "
        "all pairs of a factor's groups together."
    )


def _headline_gaps(comparison: Comparison) -> list[GapChange]:
    headline = {(change.quantity, change.judge) for change in comparison.changes if change.is_headline}
    return [gap for gap in comparison.gaps if (gap.quantity, gap.judge) in headline]


def _row(change: Change) -> tuple[str, ...]:
    return (
        _titled(change),
        f"{numbers.factor_name(change.factor)} {change.group}" if change.factor else "everyone",
        _number(change.quantity, change.before),
        _number(change.quantity, change.after),
        *_interval(change.quantity, change.outcome),
        "" if change.adjusted is None else numbers.p_number(change.adjusted),
        "; ".join(filter(None, (change.judge, change.note, "fewer edits were made" if change.fewer_made else ""))),
    )


def _gap_row(gap: GapChange) -> tuple[str, ...]:
    between = f"{numbers.factor_name(gap.factor)} {gap.groups[0]} - {gap.groups[1]}"
    return (
        _titled(gap),
        between,
        *(numbers.difference(gap.quantity, value, plus=True) for value in (gap.before, gap.after)),
        *_interval(gap.quantity, gap.outcome),
        "" if gap.p is None else numbers.p_number(gap.p),
        str(gap.others),
        "; ".join(filter(None, (gap.judge, gap.note))),
    )


def _appears_row(shift: Shift) -> tuple[str, ...]:
    arm = f" ({shift.arm})" if shift.arm != "baseline" else ""
    return (
        f"{shift.target}{arm}",
        shift.group,
        *(numbers.percent(share) for share in (shift.before, shift.after)),
        *_interval(TOWARD_REFERENCE, shift.outcome),
        "" if shift.holm is None else numbers.p_number(shift.holm),
        shift.word or "",
        shift.judge,
    )


def _titled(change: Change | GapChange) -> str:
    arm = f" ({change.arm})" if change.arm != "baseline" else ""
    return f"{numbers.title(change.quantity)}{arm}"


def _number(quantity: str, value: float | None) -> str:
    return "–" if value is None else numbers.number(quantity, value, plus=numbers.is_signed(quantity))


def _interval(quantity: str, outcome: Interval | NotEstimable) -> tuple[str, str]:
    if isinstance(outcome, NotEstimable):
        return "–", outcome.reason
    value, span = numbers.difference, numbers.difference_span
    return value(quantity, outcome.value, plus=True), span(quantity, outcome, plus=True)


_KEYS = {
    "adjusted": "q",
    "worse": "worse_when",
    "others": "further_pairs",
    "growth": "largest_growth",
    "note": "judge_note",
    "fewer_made": "fewer_edits_made",
}
"""Fields that programs know by another name."""


def _change_json(change: Change | GapChange) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in fields(change):
        value = getattr(change, field.name)
        if isinstance(value, Interval | NotEstimable):
            value = _outcome_json(value)
        row |= value if field.name == "outcome" else {_KEYS.get(field.name, field.name): value}
    return row


def _appears_json(shift: Shift) -> dict[str, Any]:
    names = ("arm", "judge", "axis", "group", "target", "before", "after", "p", "holm", "word")
    row: dict[str, Any] = {name: getattr(shift, name) for name in names}
    return row | _outcome_json(shift.outcome) | {"portraits": shift.units}


def _outcome_json(outcome: Interval | NotEstimable) -> dict[str, Any]:
    if isinstance(outcome, NotEstimable):
        return {"change": None, "low": None, "high": None, "not_estimable": outcome.reason}
    return {"change": outcome.value, "low": outcome.low, "high": outcome.high, "method": outcome.method}


PAIRS = 12


def worst_pairs(matched: Matched, comparison: Comparison, find_picture: Callable[[str], Path | None]) -> str:
    """As HTML: for each change for the worse the requests that lost most; without one, those of every headline change.

    Source, first editor and second editor, with the pictures inside; empty where none can be shown.
    """
    changes = comparison.with_verdict("worse") or [change for change in comparison.changes if change.is_headline]
    scores = {(score.judge, score.axis): score for score in matched.scores}
    rated = ((change, scores.get((change.judge, axis_of(change.quantity)))) for change in changes)
    queues = [(score, _losses(matched, change, score)) for change, score in rated if score is not None]
    chosen: dict[int, Scores] = {}
    # In turns, so that one failure does not hide the others.
    while queues and len(chosen) < PAIRS:
        for score, rows in list(queues):
            row = next((row for row in rows if row not in chosen), None)
            if row is None:
                queues.remove((score, rows))
            elif len(chosen) < PAIRS:
                chosen[row] = score
    figures = "".join(_figure(matched, score, row, find_picture) for row, score in chosen.items())
    return f'<h2>Edits that became worst</h2>\n<div class="pairs">\n{figures}</div>\n' if figures else ""


def _losses(matched: Matched, change: Change, score: Scores) -> Iterator[int]:
    """The rows of the first editor that lost most on the change's axis, in its group; none where nothing was lost."""
    edits = matched.edits
    size = len(edits) // 2
    # No visible change is worse, though the axis has no mean: the edit may not have been made.
    worse = Worse.LOWER if score.axis == "visible_change" else worse_when(score.axis)
    worse = Worse.HIGHER if worse is Worse.UNKNOWN else worse
    lost = loss(score.axis, worse, score.value[:size], score.value[size:])
    rows = (edits.editor[:size] == edits.editors.index(change.arm)) & edits.counting(score.axis)[:size]
    if change.factor:
        levels, codes = edits.levels(change.factor)
        rows = rows & (codes[edits.portrait[:size]] == levels.index(change.group))
    with np.errstate(invalid="ignore"):
        places = np.flatnonzero(rows & (lost > 0))
    yield from places[np.argsort(-lost[places], kind="stable")].tolist()


def _figure(matched: Matched, score: Scores, row: int, find_picture: Callable[[str], Path | None]) -> str:
    edits = matched.edits
    portrait = edits.portraits[int(edits.portrait[row])]
    other = row + len(edits) // 2
    first, second = (find_picture(edits.image[place]) if edits.image[place] else None for place in (row, other))
    source = find_picture(portrait.image.sha256) or portrait.image.path
    pictures = [data_uri(path, "none") for path in (source, first, second)]
    if not all(pictures):
        return ""
    images = "".join(
        f'<span><img src="{uri}" alt="{escape(name)}: portrait {escape(portrait.id)}">{escape(name)}</span>'
        for uri, name in zip(pictures, ("source", *matched.labels), strict=True)
    )
    prompt = edits.prompts[int(edits.prompt[row])].text
    answers = f"{numbers.title(score.axis)}: {_answer(score, row)} → {_answer(score, other)}"
    caption = escape(f"{answers}. {portrait.id}: {prompt}")
    return f"<figure><div>{images}</div><figcaption>{caption}</figcaption></figure>\n"


def _answer(score: Scores, row: int) -> str:
    value = float(score.value[row])
    return f"{value:g}" if value.is_integer() else numbers.number(score.axis, value, plus=numbers.is_signed(score.axis))
