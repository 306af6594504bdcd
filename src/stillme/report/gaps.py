"""The findings that the first screen is about, with the group at each end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stillme.core import rubric
from stillme.core.types import Estimate, Interval
from stillme.estimates import Disparity, Finding, NullBand, find_gaps, headlines, numbers
from stillme.estimates.headlines import Place, uneven
from stillme.report.data import ReportData
from stillme.report.happened import share_made

MOSTLY_MADE = 0.5
"""The share of a group's edits that must have been made before the group may be called better than another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One gap that decides, as it was found, with the groups that a reader is told of."""

    finding: Finding
    disparity: Disparity
    interval: Interval
    null: NullBand | None
    """None where the labels cannot be permuted."""
    worst: Estimate
    best: Estimate | None
    """None where no other group's edits were mostly made."""
    unranked: tuple[str, ...] = ()
    """Groups whose edits were mostly not made: no one changed, but no one was treated well either."""

    @property
    def title(self) -> str:
        """What differs."""
        return numbers.title(self.disparity.quantity)

    @property
    def matters(self) -> bool:
        """Whether it is larger than the smallest effect that matters."""
        return self.finding.word == "larger than matters"

    @property
    def is_significant(self) -> bool:
        """Whether the groups are said to differ, by whatever size."""
        return self.finding.word in ("larger than matters", "differs, size unclear")

    @property
    def is_erasure(self) -> bool:
        """Whether edits were not made; the other failure is that the person was replaced."""
        return self.disparity.quantity in headlines.EDIT_MADE


def deciding(data: ReportData) -> set[tuple[str, str]]:
    """Judge and quantity of every headline number that verdicts go by."""
    offered = {(one.judge, one.quantity) for one in data.estimates if headlines.is_headline(one.quantity)}
    return headlines.deciding(data.standing, offered)


def decisive_gaps(data: ReportData) -> tuple[Gap, ...]:
    """The findings of the main arm that decide, by the judges to go by; the most certain first."""
    shown = {_identity(one): one for one in data.headlines if isinstance(one, Disparity)}
    groups = {(*_identity(one), one.group): one for one in data.headlines if one.scope == "group"}
    gaps: list[Gap] = []
    for finding in find_gaps(data.estimates, data.standing, data.settings):
        disparity = shown.get((finding.quantity, finding.editor, finding.arm, finding.judge, finding.factor))
        if finding.decides and disparity is not None and isinstance(disparity.outcome, Interval):
            gaps.append(_gap(data, groups, disparity, disparity.outcome, finding))
    return tuple(sorted(gaps, key=_by_certainty))


def not_compared(data: ReportData) -> Mapping[Place, str]:
    """Headline numbers that would decide but for groups of which a judge answered too unequal shares; with the reason.

    A gap may hide there, so they are said wherever gaps are.
    """
    decides, shown = deciding(data), {_identity(one) for one in data.headlines}
    return {
        place: why
        for place, why in uneven(data.estimates).items()
        if place in shown and (place[3], place[0]) in decides
    }


def worst_by_editor(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Of each editor and each failure, the most certain gap that matters, else one that is significant."""
    first: dict[tuple[str, bool], Gap] = {}
    for gap in sorted(gaps, key=lambda gap: not gap.matters):
        if gap.is_significant:
            first.setdefault((gap.disparity.editor, gap.is_erasure), gap)
    return tuple(sorted(first.values(), key=lambda gap: gap.disparity.editor))


def _gap(
    data: ReportData,
    groups: Mapping[tuple[str, ...], Estimate],
    disparity: Disparity,
    interval: Interval,
    finding: Finding,
) -> Gap:
    members = [groups[*_identity(disparity), level] for level in disparity.levels]
    worst = max(members, key=_harm)
    rest = [member for member in members if member is not worst]
    unranked = [] if not headlines.is_drift(disparity.quantity) else [m for m in rest if not _is_mostly_made(data, m)]
    ranked = [member for member in rest if member not in unranked]
    return Gap(
        finding=finding,
        disparity=disparity,
        interval=interval,
        null=disparity.null,
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
    p = 2.0 if gap.finding.p is None else gap.finding.p
    ratio = gap.interval.value / gap.null.high if gap.null and gap.null.high > 0 else 0.0
    # A share of edits is read more easily than a mean in a unit of its own.
    is_mean = not numbers.is_rate(disparity.quantity)
    order = headlines.order_of(disparity.quantity)
    return p, is_mean, -ratio, order, disparity.editor, disparity.factor


def _identity(estimate: Estimate) -> tuple[str, ...]:
    return estimate.quantity, estimate.editor, estimate.arm, estimate.judge, estimate.factor
