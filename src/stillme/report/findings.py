"""The first screen: were edits made, did people stay themselves, for whom worst, how sure, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import numbers, rubric
from stillme.estimates import Disparity, EditState, NullBand, RatingState, Scores, mark
from stillme.estimates.multiplicity import holm
from stillme.report import headlines
from stillme.report.data import ReportData
from stillme.types import Estimate, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One number of one editor, with its interval."""

    estimate: Estimate
    value: str
    span: str
    share: float | None
    """For the bar; None where the quantity is not a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Quantities down, editors across."""

    columns: tuple[tuple[str, str], ...]
    """Editor and arm."""
    rows: tuple[tuple[str, str, tuple[Line | None, ...]], ...]
    """Title, judge and unit, and one line per column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One disparity, and whether chance explains it."""

    disparity: Disparity
    interval: Interval
    null: NullBand
    adjusted: float
    """The p value after Holm, over all gaps of headline quantities."""
    beyond_chance: bool
    worst: Estimate
    best: Estimate

    @property
    def title(self) -> str:
        """What differs."""
        return numbers.title(self.disparity.quantity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The answers of the first screen."""

    edits_made: Grid
    preservation: Grid
    gaps: tuple[Gap, ...]
    """All that were tested, the smallest p value first."""
    worst: tuple[Gap, ...]
    """Of each editor, its gap beyond chance with the smallest p value, if any."""
    portraits: int
    blocks: int
    edits: int
    requested: int
    left_out: tuple[tuple[str, str, int, int], ...]
    """Whose, why, how many, of how many."""

    @property
    def beyond_chance(self) -> int:
        """The number of comparisons in which chance does not explain the differences."""
        return sum(gap.beyond_chance for gap in self.gaps)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if not self.edits:
            return "No edit has been made yet, so there is nothing to say."
        if not self.gaps:
            return "Edits were made, but no two groups are large enough to be compared."
        if not self.beyond_chance:
            return (
                f"In none of {len(self.gaps)} comparisons do groups differ more than chance makes them. "
                "That is no proof of fairness: see how large a gap could hide."
            )
        unequal = list(dict.fromkeys(gap.disparity.editor for gap in self.worst))
        treats = "treats groups" if len(unequal) == 1 else "treat groups"
        return (
            f"{_listed(unequal)} {treats} differently. In {self.beyond_chance} of {len(self.gaps)} comparisons "
            "the groups are further apart than chance makes them."
        )


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
    gaps = _gaps(data)
    edits = data.edits
    used = set(edits.portrait.tolist())
    portraits = [portrait for index, portrait in enumerate(edits.portraits) if index in used]
    return Findings(
        edits_made=_grid(data, _informative([line for line in lines if line.estimate.quantity in headlines.EDIT_MADE])),
        preservation=_grid(data, [line for line in lines if line.estimate.quantity not in headlines.EDIT_MADE]),
        gaps=gaps,
        worst=_first_by_editor(gap for gap in gaps if gap.beyond_chance),
        portraits=len(portraits),
        blocks=len({portrait.block or f"/{portrait.id}" for portrait in portraits}),
        edits=int(np.count_nonzero(edits.state == EditState.EDITED)),
        requested=len(edits),
        left_out=tuple(_left_out(data)),
    )


def clustering(data: ReportData) -> str:
    """What many edits of the same face cost: the headline quantity with the largest design effect, in a sentence."""
    shown = {(e.quantity, e.judge) for e in data.headlines if headlines.is_headline(e.quantity)}
    clustered = [e for e in data.intraclass_correlations if (e.quantity, e.judge) in shown and e.design_effect]
    worst = max(clustered, key=lambda e: (e.design_effect or 0.0, e.editor, e.quantity), default=None)
    if worst is None or not isinstance(worst.icc, Interval) or worst.effective is None:
        return ""
    value, low, high = (numbers.decimal(icc, 2) for icc in (worst.icc.value, worst.icc.low, worst.icc.high))
    return (
        f"Edits of one portrait are alike: for “{numbers.title(worst.quantity)}” ({worst.editor}) the intraclass "
        f"correlation is {value} ({low} to {high}), so {worst.edits:,} edits say as much as {worst.effective:,.0f} "
        "independent ones."
    )


def _line(estimate: Estimate, interval: Interval) -> Line:
    quantity = estimate.quantity
    plus = numbers.is_signed(quantity)
    return Line(
        estimate=estimate,
        value=f"{numbers.number(quantity, interval.value, plus=plus)} {numbers.symbol(quantity)}".strip(),
        span=numbers.span(quantity, interval, plus=plus),
        share=interval.value if numbers.is_rate(quantity) else None,
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


def _gaps(data: ReportData) -> tuple[Gap, ...]:
    tested = [
        (disparity, disparity.outcome, disparity.null)
        for disparity in data.headlines
        if isinstance(disparity, Disparity) and isinstance(disparity.outcome, Interval) and disparity.null
        if headlines.is_headline(disparity.quantity) and (disparity.outcome.value > 0 or disparity.null.high > 0)
    ]
    groups = {
        (*_identity(estimate), estimate.group): estimate for estimate in data.headlines if estimate.scope == "group"
    }
    adjusted = holm([null.omnibus for _, _, null in tested])
    gaps = [
        Gap(
            disparity=disparity,
            interval=interval,
            null=null,
            adjusted=p,
            beyond_chance=p <= 1 - data.settings.confidence,
            **_extremes(disparity, groups),
        )
        for (disparity, interval, null), p in zip(tested, adjusted, strict=True)
    ]
    return tuple(sorted(gaps, key=_by_certainty))


def _by_certainty(gap: Gap) -> tuple[float, float, int, str, str]:
    disparity = gap.disparity
    ratio = gap.interval.value / gap.null.high if gap.null.high > 0 else 0.0
    return gap.adjusted, -ratio, headlines.order_of(disparity.quantity), disparity.editor, disparity.factor


def _extremes(disparity: Disparity, groups: dict[tuple[str, ...], Estimate]) -> dict[str, Estimate]:
    """Which end of the range is the bad one: furthest from an unchanged person, or the least success."""
    ends = [groups[*_identity(disparity), level] for level in (disparity.highest, disparity.lowest)]
    if disparity.quantity == "success":
        ends.reverse()
    axis = rubric.load().axes.get(disparity.quantity)
    if axis is not None and axis.unchanged is not None:
        unchanged = axis.unchanged
        ends.sort(key=lambda end: -abs(end.outcome.value - unchanged) if isinstance(end.outcome, Interval) else 0)
    return {"worst": ends[0], "best": ends[1]}


def _identity(estimate: Estimate) -> tuple[str, ...]:
    return estimate.quantity, estimate.editor, estimate.arm, estimate.judge, estimate.factor


def _first_by_editor(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    first: dict[str, Gap] = {}
    for gap in gaps:
        first.setdefault(gap.disparity.editor, gap)
    return tuple(first.values())


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
        expected = _expected(data, score)
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


def _expected(data: ReportData, score: Scores) -> NDArray[np.bool_]:
    """The edits that this judge had to rate on this axis."""
    axis = rubric.load().axes.get(score.axis)
    only = axis.only if axis else ""
    fits = np.array([not only or prompt.subcategory == only for prompt in data.edits.prompts], dtype=np.bool_)
    edited = data.edits.state == EditState.EDITED
    return edited & fits[data.edits.prompt] if len(fits) else edited


def _listed(names: Sequence[str]) -> str:
    quoted = [f"“{name}”" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
