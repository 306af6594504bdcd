"""The first screen: did the edits happen, did people stay themselves, for whom worst, how sure, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import Disparity, EditState, NullBand, RatingState, Scores, mark
from stillme.estimates.multiplicity import holm
from stillme.report import numbers
from stillme.report.data import ReportData
from stillme.types import Estimate, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One number of one editor, with its interval."""

    found: Estimate
    value: str
    span: str
    share: float | None
    """For the bar: the rate, or None where the quantity is no rate."""


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

    found: Disparity
    interval: Interval
    null: NullBand
    adjusted: float
    """The p-value of the groups' differences after Holm, over all gaps of headline quantities."""
    beyond_chance: bool
    worst: Estimate
    best: Estimate

    @property
    def title(self) -> str:
        """What differs."""
        return numbers.title(self.found.quantity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The answers, ready to be set."""

    happened: Grid
    themselves: Grid
    gaps: tuple[Gap, ...]
    """All that were tested, the most certain first."""
    worst: tuple[Gap, ...]
    """For each editor its most certain gap beyond chance, if any."""
    portraits: int
    blocks: int
    edits: int
    requested: int
    left_out: tuple[tuple[str, str, int, int], ...]
    """Whose, why, how many, of how many."""

    @property
    def beyond_chance(self) -> int:
        """In how many comparisons chance does not explain the differences."""
        return sum(gap.beyond_chance for gap in self.gaps)

    @property
    def verdict(self) -> str:
        """One sentence for whoever reads only one."""
        if not self.edits:
            return "No edit has been made yet, so there is nothing to say."
        if not self.gaps:
            return "Edits were made, but no two groups are large enough to be compared."
        if not self.beyond_chance:
            return (
                f"In none of {len(self.gaps)} comparisons do groups differ more than chance makes them. "
                "That is no proof of fairness: see how large a gap could hide."
            )
        uneven = list(dict.fromkeys(gap.found.editor for gap in self.worst))
        treats = "treats groups" if len(uneven) == 1 else "treat groups"
        return (
            f"{_listed(uneven)} {treats} differently. In {self.beyond_chance} of {len(self.gaps)} comparisons "
            "the groups are further apart than chance makes them."
        )


def find(data: ReportData) -> Findings:
    """Read the answers off the estimates and the rows."""
    everyone = [each for each in data.headlines if each.scope == "all" and isinstance(each.outcome, Interval)]
    lines = [_line(each, each.outcome) for each in everyone if isinstance(each.outcome, Interval)]
    shown = sorted((line for line in lines if numbers.is_headline(line.found.quantity)), key=_line_place)
    gaps = _gaps(data)
    edits = data.edits
    used = set(edits.portrait.tolist())
    portraits = [portrait for place, portrait in enumerate(edits.portraits) if place in used]
    return Findings(
        happened=_grid(data, _informative([line for line in shown if line.found.quantity in numbers.HAPPENED])),
        themselves=_grid(data, [line for line in shown if line.found.quantity not in numbers.HAPPENED]),
        gaps=gaps,
        worst=_first_by_editor(gap for gap in gaps if gap.beyond_chance),
        portraits=len(portraits),
        blocks=len({portrait.block or f"/{portrait.id}" for portrait in portraits}),
        edits=int(np.count_nonzero(edits.state == EditState.EDITED)),
        requested=len(edits),
        left_out=tuple(_left_out(data)),
    )


def alikeness(data: ReportData) -> str:
    """What it costs that many edits show the same face: the most costly headline quantity, in a sentence."""
    headlines = {(each.quantity, each.judge) for each in data.headlines if numbers.is_headline(each.quantity)}
    known = [each for each in data.likeness if (each.quantity, each.judge) in headlines and each.design_effect]
    most = max(known, key=lambda each: (each.design_effect or 0.0, each.editor, each.quantity), default=None)
    if most is None or not isinstance(most.icc, Interval) or most.effective is None:
        return ""
    return (
        f"Edits of one portrait are alike: for “{numbers.title(most.quantity)}” ({most.editor}) the intraclass "
        f"correlation is {most.icc.value:.2f} ({most.icc.low:.2f} to {most.icc.high:.2f}), so {most.edits:,} edits say "
        f"as much as {most.effective:,.0f} independent ones."
    )


def _line(found: Estimate, interval: Interval) -> Line:
    plus = numbers.signed(found.quantity)
    return Line(
        found=found,
        value=f"{numbers.number(found.quantity, interval.value, plus=plus)} {numbers.symbol(found.quantity)}".strip(),
        span=numbers.span(found.quantity, interval, plus=plus),
        share=interval.value if numbers.is_rate(found.quantity) else None,
    )


def _line_place(line: Line) -> tuple[int, str, str, str, str]:
    return (
        numbers.headline_place(line.found.quantity),
        line.found.quantity,
        line.found.judge,
        line.found.editor,
        line.found.arm,
    )


def _informative(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Leave out refusals where nothing was refused: the last card counts them anyway."""
    refusing = any(line.share for line in lines if line.found.quantity == "refused")
    return tuple(line for line in lines if line.found.quantity != "refused" or refusing)


def _grid(data: ReportData, lines: Sequence[Line]) -> Grid:
    columns = tuple(sorted({(line.found.editor, line.found.arm) for line in lines}))
    cells = {(line.found.quantity, line.found.judge, line.found.editor, line.found.arm): line for line in lines}
    rows = dict.fromkeys((line.found.quantity, line.found.judge) for line in lines)
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
    spelled_out = "" if numbers.symbol(quantity) else numbers.unit(quantity)
    return ", ".join(part for part in (judge, mark(data.standing, judge, quantity), spelled_out) if part)


def _gaps(data: ReportData) -> tuple[Gap, ...]:
    tested = [
        (each, each.outcome, each.null)
        for each in data.headlines
        if isinstance(each, Disparity) and isinstance(each.outcome, Interval) and each.null
        if numbers.is_headline(each.quantity) and (each.outcome.value > 0 or each.null.high > 0)
    ]
    groups = {_of_group(each): each for each in data.headlines if each.scope == "group"}
    adjusted = holm([null.omnibus for _, _, null in tested])
    gaps = [
        Gap(
            found=found,
            interval=interval,
            null=null,
            adjusted=p,
            beyond_chance=p <= 1 - data.settings.confidence,
            **_extremes(found, groups),
        )
        for (found, interval, null), p in zip(tested, adjusted, strict=True)
    ]
    return tuple(sorted(gaps, key=_certainty))


def _certainty(gap: Gap) -> tuple[float, float, int, str, str]:
    beyond = gap.interval.value / gap.null.high if gap.null.high > 0 else 0.0
    return gap.adjusted, -beyond, numbers.headline_place(gap.found.quantity), gap.found.editor, gap.found.factor


def _extremes(found: Disparity, groups: dict[tuple[str, ...], Estimate]) -> dict[str, Estimate]:
    """Which end of the range is the bad one: furthest from an unchanged person, or the least success."""
    ends = [groups[*_identity(found), level] for level in (found.highest, found.lowest)]
    if found.quantity == "success":
        ends.reverse()
    axis = rubric.load().axes.get(found.quantity)
    if axis is not None and axis.unchanged is not None:
        unchanged = axis.unchanged
        ends.sort(key=lambda each: -abs(each.outcome.value - unchanged) if isinstance(each.outcome, Interval) else 0)
    return {"worst": ends[0], "best": ends[1]}


def _identity(found: Estimate) -> tuple[str, ...]:
    return found.quantity, found.editor, found.arm, found.judge, found.factor


def _of_group(found: Estimate) -> tuple[str, ...]:
    return (*_identity(found), found.group)


def _first_by_editor(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    first: dict[str, Gap] = {}
    for gap in gaps:
        first.setdefault(gap.found.editor, gap)
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
        due = _due(data, score)
        states: Counter[int] = Counter(score.state[due].tolist())
        for state, reason in (
            (RatingState.MISSING, "not judged yet"),
            (RatingState.ABSTAINED, "abstained"),
            (RatingState.FAILED, "judge failed"),
        ):
            if states[state]:
                key = score.judge, reason, states[state], int(due.sum())
                unrated.setdefault(key, []).append(numbers.title(score.axis))
    for (judge, reason, count, total), axes in unrated.items():
        # A judge that fails on a picture fails on all its axes: one line says it.
        what = axes[0] if len(axes) == 1 else f"{len(axes)} axes alike"
        yield f"{judge} ({what})", reason, count, total


def _due(data: ReportData, score: Scores) -> NDArray[np.bool_]:
    """The edits that this judge had to answer for on this axis."""
    axis = rubric.load().axes.get(score.axis)
    only = axis.only if axis else ""
    fits = np.array([not only or prompt.subcategory == only for prompt in data.edits.prompts], dtype=np.bool_)
    edited = data.edits.state == EditState.EDITED
    return edited & fits[data.edits.prompt] if len(fits) else edited


def _listed(names: Sequence[str]) -> str:
    quoted = [f"“{name}”" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
