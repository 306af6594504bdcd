"""The first screen: did edits happen, did people stay themselves, for whom worst, how sure, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.core import rubric
from stillme.core.types import Estimate, Interval
from stillme.estimates import EditState, RatingState, headlines, mark, numbers
from stillme.report import sentences
from stillme.report.answers import Answer, answers
from stillme.report.data import ReportData
from stillme.report.gaps import Gap, deciding, decisive_gaps, not_compared, worst_by_editor
from stillme.report.happened import rows_to_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One number of one editor, with its interval."""

    estimate: Estimate
    value: str
    span: str
    share: float | None
    """For the bar; None where the quantity is not a rate."""
    unchanged: str = ""
    """The answer that means no change, where the quantity is a mean of a scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Quantities down, editors across."""

    columns: tuple[tuple[str, str], ...]
    """Editor and arm."""
    rows: tuple[tuple[str, str, tuple[Line | None, ...]], ...]
    """Title, judge and unit, and one line per column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The answers of the first screen."""

    answers: tuple[Answer, ...]
    edits_made: Grid
    preservation: Grid
    failed: Grid
    """Numbers of judges that failed calibration on the axis, or their control pairs: they decide nothing."""
    unvalidated: tuple[str, ...]
    """Titles of axes that were rated, but by no validated judge."""
    gaps: tuple[Gap, ...]
    """All that decide, the smallest p value first."""
    not_compared: tuple[str, ...]
    """Numbers that decide nothing, as the groups got too unequal shares of answers."""
    worst: tuple[Gap, ...]
    """Of each editor and each failure, its significant gap with the smallest p value, if any."""
    portraits: int
    identities: int
    """Portraits of one block show one."""
    edits: int
    requested: int
    left_out: tuple[tuple[str, str, int, int], ...]
    """Whose, why, how many, of how many."""

    smallest_effects: tuple[str, ...]
    """As in `rates 5 points`: what is taken for the smallest difference that matters."""

    @property
    def tested(self) -> int:
        """The number of comparisons with a test that can reject."""
        return sum(gap.finding.p is not None for gap in self.gaps)

    @property
    def significant(self) -> int:
        """Those of them that are significant."""
        return sum(gap.is_significant for gap in self.gaps)


def find(data: ReportData) -> Findings:
    """Take the answers from the estimates and the rows."""
    lines = sorted(
        (
            _line(estimate, estimate.outcome)
            for estimate in data.headlines
            if estimate.scope == "all" and isinstance(estimate.outcome, Interval)
            if headlines.is_headline(estimate.quantity)
        ),
        key=_line_order,
    )
    failed = [line for line in lines if headlines.is_unfit(_note(data, line))]
    lines = [line for line in lines if line not in failed]
    gaps = decisive_gaps(data)
    edits = data.edits
    used = set(edits.portrait.tolist())
    portraits = [portrait for index, portrait in enumerate(edits.portraits) if index in used]
    return Findings(
        answers=answers(data, gaps),
        edits_made=_grid(data, _informative([line for line in lines if line.estimate.quantity in headlines.EDIT_MADE])),
        preservation=_grid(data, [line for line in lines if line.estimate.quantity not in headlines.EDIT_MADE]),
        failed=_grid(data, failed),
        unvalidated=tuple(_unvalidated(data)),
        gaps=gaps,
        not_compared=tuple(sentences.not_compared(not_compared(data))),
        worst=worst_by_editor(gaps),
        portraits=len(portraits),
        identities=len({portrait.block or f"/{portrait.id}" for portrait in portraits}),
        edits=int(np.count_nonzero(edits.state == EditState.EDITED)),
        requested=len(edits),
        left_out=tuple(_left_out(data)),
        smallest_effects=tuple(_smallest_effects(gaps)),
    )


def _smallest_effects(gaps: Sequence[Gap]) -> Iterator[str]:
    """Rates have one in common; every other quantity has its own."""
    known = {gap.finding.quantity: gap.finding.smallest_effect for gap in gaps if gap.finding.smallest_effect}
    texts = {
        ("rates" if numbers.is_rate(quantity) else numbers.title(quantity)): numbers.difference(quantity, effect)
        for quantity, effect in known.items()
    }
    yield from (f"{what} {effect}" for what, effect in texts.items())


def clustering(data: ReportData) -> str:
    """What many edits of the same face cost: the headline quantity with the largest design effect, in a sentence."""
    decides = deciding(data)
    clustered = [
        icc for icc in data.intraclass_correlations if (icc.judge, icc.quantity) in decides and icc.design_effect
    ]
    worst = max(clustered, key=lambda icc: (icc.design_effect or 0.0, icc.editor, icc.quantity), default=None)
    if worst is None or not isinstance(worst.icc, Interval) or worst.effective is None:
        return ""
    value, low, high = (numbers.decimal(icc, 2) for icc in (worst.icc.value, worst.icc.low, worst.icc.high))
    return (
        f"Edits of one portrait are alike: intraclass correlation {value} ({low} to {high}) for "
        f"“{numbers.title(worst.quantity)}” ({worst.editor}). These {worst.edits:,} edits "
        f"carry as much information as {worst.effective:,.0f} independent ones."
    )


def _note(data: ReportData, line: Line) -> str:
    return mark(data.standing, line.estimate.judge, line.estimate.quantity)


def _unvalidated(data: ReportData) -> Iterator[str]:
    """Axes that were rated, though by no judge that passed calibration on them."""
    rated = [score for score in data.headline_scores if headlines.is_headline_axis(score.axis)]
    validated = {score.axis for score in rated if not mark(data.standing, score.judge, score.axis)}
    for axis in dict.fromkeys(score.axis for score in rated if (score.state == RatingState.RATED).any()):
        if axis not in validated:
            yield numbers.title(axis)


def _line(estimate: Estimate, interval: Interval) -> Line:
    quantity = estimate.quantity
    plus = numbers.is_signed(quantity)
    axis = rubric.load().axes.get(quantity)
    is_scale = axis is not None and axis.is_scale and axis.unchanged is not None
    value = numbers.number(quantity, interval.value, plus=plus)
    return Line(
        estimate=estimate,
        value=f"{value} {numbers.symbol(quantity)}".strip(),
        span=numbers.span(quantity, interval, plus=plus),
        share=interval.value if numbers.is_rate(quantity) else None,
        unchanged=f"{axis.unchanged:g} is unchanged" if axis is not None and is_scale else "",
    )


def _line_order(line: Line) -> tuple[int, str, str, str, str]:
    estimate = line.estimate
    order = headlines.order_of(estimate.quantity)
    return order, estimate.quantity, estimate.judge, estimate.editor, estimate.arm


def _informative(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Leave out refusals where nothing was refused: the last card counts them anyway."""
    refused = any(line.share for line in lines if line.estimate.quantity == "refused")
    return tuple(line for line in lines if line.estimate.quantity != "refused" or refused)


def _grid(data: ReportData, lines: Sequence[Line]) -> Grid:
    columns = tuple(sorted({(line.estimate.editor, line.estimate.arm) for line in lines}))
    cells = {(e.quantity, e.judge, e.editor, e.arm): line for line in lines for e in [line.estimate]}
    rows = dict.fromkeys((line.estimate.quantity, line.estimate.judge) for line in lines)
    return Grid(
        columns=columns,
        rows=tuple(
            (
                numbers.title(quantity),
                _source(data, quantity, judge),
                tuple(cells.get((quantity, judge, *column)) for column in columns),
            )
            for quantity, judge in rows
        ),
    )


def _source(data: ReportData, quantity: str, judge: str) -> str:
    unit = "" if numbers.symbol(quantity) else numbers.unit(quantity)
    return ", ".join(part for part in (judge, mark(data.standing, judge, quantity), unit) if part)


def _left_out(data: ReportData) -> Iterable[tuple[str, str, int, int]]:
    edits = data.edits
    for code, editor in enumerate(edits.editors):
        states: Counter[int] = Counter(edits.state[edits.editor == code].tolist())
        total = sum(states.values())
        for state, reason in (
            (EditState.MISSING, "not edited yet"),
            (EditState.REFUSED, "refused"),
            (EditState.FAILED, "failed"),
            (EditState.WITHHELD, "no feature prompt"),
        ):
            if states[state]:
                yield editor, reason, states[state], total
    unrated: dict[tuple[str, str, int, int], list[str]] = {}
    for score in data.scores:
        expected = rows_to_rate(data, score)
        states: Counter[int] = Counter(score.state[expected].tolist())
        for state, reason in (
            (RatingState.MISSING, "not judged yet"),
            (RatingState.ABSTAINED, "abstained"),
            (RatingState.FAILED, "judge failed"),
        ):
            if states[state]:
                key = score.judge, reason, states[state], int(expected.sum())
                unrated.setdefault(key, []).append(numbers.title(score.axis))
    for (judge, reason, count, total), axes in unrated.items():
        # A judge that fails on a picture fails on all its axes, so one line is enough.
        what = axes[0] if len(axes) == 1 else f"{len(axes)} axes alike"
        yield f"{judge} ({what})", reason, count, total
