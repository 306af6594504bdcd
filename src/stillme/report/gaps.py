"""The gaps between groups that verdicts rest on: by licensed judges, corrected together, with the group at each end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stillme import numbers, rubric
from stillme.estimates import Disparity, Finding, NullBand, find_gaps, headlines
from stillme.estimates.words import Word
from stillme.report.data import ReportData
from stillme.report.happened import share_made
from stillme.types import Estimate, Interval

MOSTLY_MADE = 0.5
"""The share of a group's edits that must have been made before the group may be called better than another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One disparity, and whether chance explains it."""

    disparity: Disparity
    interval: Interval
    null: NullBand
    adjusted: float
    """The p value after Holm, over all gaps that decide."""
    word: Word | None
    """None where a group has too few units for any."""
    worst: Estimate
    best: Estimate | None
    """None where no other group's edits were mostly made."""
    unranked: tuple[str, ...] = ()
    """Groups whose edits were mostly not made: nobody changed, but nobody was treated well either."""

    @property
    def title(self) -> str:
        """What differs."""
        return numbers.title(self.disparity.quantity)

    @property
    def beyond_chance(self) -> bool:
        """Whether the groups are said to differ."""
        return self.word in ("larger than matters", "differs, size unclear")

    @property
    def is_erasure(self) -> bool:
        """Whether edits were not made; the other failure is that the person was replaced."""
        return self.disparity.quantity in headlines.EDIT_MADE


def deciding(data: ReportData) -> set[tuple[str, str]]:
    """Judge and quantity of every headline number that verdicts go by."""
    offered = {(one.judge, one.quantity) for one in data.headlines if headlines.is_headline(one.quantity)}
    return headlines.deciding(data.standing, offered)


def decisive_gaps(data: ReportData) -> tuple[Gap, ...]:
    """Every gap of a number that decides, the most certain first."""
    decides = deciding(data)
    shown = {_identity(one): one for one in data.shown if isinstance(one, Disparity)}
    found = [
        (finding, shown[finding.quantity, finding.editor, finding.arm, finding.judge, finding.factor])
        for finding in find_gaps(data.shown, data.standing, data.settings)
        if (finding.judge, finding.quantity) in decides
    ]
    groups = {(*_identity(one), one.group): one for one in data.shown if one.scope == "group"}
    gaps = [
        _gap(data, groups, disparity, disparity.outcome, disparity.null, finding)
        for finding, disparity in found
        if isinstance(disparity.outcome, Interval) and disparity.null and finding.p is not None
    ]
    return tuple(sorted(gaps, key=_by_certainty))


def worst_by_editor(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Of each editor and each failure, the most certain gap beyond chance."""
    first: dict[tuple[str, bool], Gap] = {}
    for gap in gaps:
        if gap.beyond_chance:
            first.setdefault((gap.disparity.editor, gap.is_erasure), gap)
    return tuple(sorted(first.values(), key=lambda gap: gap.disparity.editor))


def _gap(
    data: ReportData,
    groups: Mapping[tuple[str, ...], Estimate],
    disparity: Disparity,
    interval: Interval,
    null: NullBand,
    finding: Finding,
) -> Gap:
    members = [groups[*_identity(disparity), level] for level in disparity.levels]
    worst = max(members, key=_harm)
    rest = [member for member in members if member is not worst]
    unranked = [] if not headlines.is_drift(disparity.quantity) else [m for m in rest if not _is_mostly_made(data, m)]
    ranked = [member for member in rest if member not in unranked]
    return Gap(
        disparity=disparity,
        interval=interval,
        null=null,
        adjusted=1.0 if finding.p is None else finding.p,
        word=finding.word,
        worst=worst,
        best=min(ranked, key=_harm) if ranked else None,
        unranked=tuple(member.group for member in unranked),
    )


def _is_mostly_made(data: ReportData, group: Estimate) -> bool:
    return share_made(data, editor=group.editor, factor=group.factor, group=group.group) >= MOSTLY_MADE


def _harm(group: Estimate) -> float:
    """How bad a group's value is: its distance from an unchanged person, or how little succeeded."""
    if not isinstance(group.outcome, Interval):
        return 0.0
    value = group.outcome.value
    axis = rubric.load().axes.get(group.quantity)
    if group.quantity == "success":
        return -value
    return abs(value - axis.unchanged) if axis is not None and axis.unchanged is not None else value


def _by_certainty(gap: Gap) -> tuple[float, bool, float, int, str, str]:
    disparity = gap.disparity
    ratio = gap.interval.value / gap.null.high if gap.null.high > 0 else 0.0
    # A share of edits is read more easily than a mean in a unit of its own.
    is_mean = not numbers.is_rate(disparity.quantity)
    order = headlines.order_of(disparity.quantity)
    return gap.adjusted, is_mean, -ratio, order, disparity.editor, disparity.factor


def _identity(estimate: Estimate) -> tuple[str, ...]:
    return estimate.quantity, estimate.editor, estimate.arm, estimate.judge, estimate.factor
