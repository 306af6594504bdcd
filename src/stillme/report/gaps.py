"""The gaps that the first screen is about, with the group at each end, and their sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stillme.core import rubric
from stillme.core.types import Estimate, Interval
from stillme.estimates import Disparity, Finding, NullBand, find_gaps, headlines, numbers
from stillme.estimates.headlines import UNEVEN, Place, place_of, uneven
from stillme.report.data import ReportData, share_made

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
    shown = {place_of(one): one for one in data.headlines if isinstance(one, Disparity)}
    groups = {(*place_of(one), one.group): one for one in data.headlines if one.scope == "group"}
    gaps: list[Gap] = []
    silent = uneven(data.estimates)
    for finding in find_gaps(data.estimates, data.standing, data.settings):
        disparity = shown.get((finding.quantity, finding.editor, finding.arm, finding.judge, finding.factor))
        if finding.decides and disparity is not None and isinstance(disparity.outcome, Interval):
            sure = disparity.sure if place_of(disparity) in silent else None
            members = [groups[*place_of(disparity), level] for level in (finding.groups if sure else disparity.levels)]
            gaps.append(_gap(data, members, disparity, sure.interval if sure else disparity.outcome, finding))
    return tuple(sorted(gaps, key=_by_certainty))


def not_compared(data: ReportData) -> Mapping[Place, str]:
    """Headline numbers that would decide but for groups of which a judge answered too unequal shares; with the reason.

    A gap may hide there, so they are said wherever gaps are.
    """
    decides, shown = deciding(data), {place_of(one) for one in data.headlines}
    compared = {place_of(gap.disparity) for gap in decisive_gaps(data)}
    return {
        place: why
        for place, why in uneven(data.estimates).items()
        if place in shown - compared and (place[3], place[0]) in decides
    }


def worst_by_editor(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Of each editor and each failure, the most certain gap that matters, else one that is significant."""
    first: dict[tuple[str, bool], Gap] = {}
    for gap in sorted(gaps, key=lambda gap: not gap.matters):
        if gap.is_significant:
            first.setdefault((gap.disparity.editor, gap.is_erasure), gap)
    return tuple(sorted(first.values(), key=lambda gap: gap.disparity.editor))


def _gap(
    data: ReportData, members: Sequence[Estimate], disparity: Disparity, interval: Interval, finding: Finding
) -> Gap:
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


_VERBS: Mapping[str, str] = {
    "success": "made",
    "soft_erasure": "did not make",
    "skipped": "skipped",
    "unchanged": "made no visible change in",
    "refused": "refused",
    "skin_lightened": "lightened",
    "skin_darkened": "darkened",
    "race_changed": "changed the apparent race in",
    "gender_changed": "changed the gender presentation in",
    "another_person": "returned another person in",
    "identity_drifted": "changed the face in",
}
"""What an editor did in a share of edits."""


def gap_sentence(found: Gap, note: str) -> str:
    """`biased lightened 100 % of preset A's edits (70 to 100 %) and none of preset B's; p = 0.003, instruments.`"""
    finding, factor = found.finding, numbers.factor_name(found.finding.factor)
    ends = [end for end in (found.worst, found.best) if end is not None and isinstance(end.outcome, Interval)]
    if numbers.is_rate(finding.quantity):
        groups = [f"{_share(end)} of {factor} {end.group}'s" for end in ends]
        # The first group is the finding, so its interval is given.
        what = f"{groups[0]} edits ({_span(ends[0])})" + "".join(f" and {group}" for group in groups[1:])
    else:
        what = " and ".join(f"{_mean(end, first=end is ends[0])} for {factor} {end.group}" for end in ends)
    return f"{_subject(found.worst)} {what}{_tail(finding.p, found.worst.judge, note)}."


def rate_sentence(rate: Estimate, note: str) -> str:
    """A failure that everyone meets: `editor made no visible change in 50 % of all edits (38 to 62 %); instruments.`"""
    return f"{_subject(rate)} {_share(rate)} of all edits ({_span(rate)}){_tail(None, rate.judge, note)}."


def unclear_sentence(found: Gap, note: str) -> str:
    """A difference that is there, of a size that may not matter."""
    finding = found.finding
    size = numbers.difference(finding.quantity, found.interval.value)
    span = numbers.difference_span(finding.quantity, found.interval)
    return (
        f"{finding.editor}: {found.title} differs by {numbers.factor_name(finding.factor)}, size unclear: {size} "
        f"({span}){_tail(finding.p, finding.judge, note)}."
    )


def no_finding_sentence(editors: Sequence[str], widest: Gap) -> str:
    """Editors without a finding, and what their audit could have missed."""
    names = ", ".join(editors[:-1]) + (" and " if len(editors) > 1 else "") + editors[-1]
    return f"{names}: no gap found; the widest interval reaches {numbers.points(widest.interval.high)}."


def missed_sentence(widest: Gap) -> str:
    """The gap whose upper limit is the furthest beyond what matters."""
    finding = widest.finding
    return (
        f"A gap of up to {numbers.difference(finding.quantity, widest.interval.high)} could be missed: "
        f"{widest.title} by {numbers.factor_name(finding.factor)} ({finding.editor})."
    )


def not_compared_sentences(places: Mapping[Place, str]) -> Iterator[str]:
    """Numbers of whose groups a judge answered too unequal shares, those with one reason together."""
    together: dict[tuple[str, str, str, str], list[str]] = {}
    for (quantity, editor, _, judge, factor), why in places.items():
        together.setdefault((editor, judge, factor, why), []).append(numbers.title(quantity))
    for (editor, judge, factor, why), titles in together.items():
        what = f"{', '.join(titles)} not compared by {numbers.factor_name(factor)}"
        yield f"{editor}: {what}: {why.removeprefix(f'{UNEVEN}: ')} ({judge})."


def _subject(estimate: Estimate) -> str:
    """The editor and what it did; for a mean, the editor and what was measured."""
    if not numbers.is_rate(estimate.quantity):
        return f"{estimate.editor}: {numbers.title(estimate.quantity)}"
    verb = _VERBS.get(estimate.quantity)
    return f"{estimate.editor} {verb}" if verb else f"{estimate.editor}: {numbers.title(estimate.quantity)} in"


def _share(estimate: Estimate) -> str:
    assert isinstance(estimate.outcome, Interval)
    value = estimate.outcome.value
    return "none" if not value else numbers.percent(value, 0 if value in (0.0, 1.0) or value >= 0.1 else 1)


def _span(estimate: Estimate) -> str:
    assert isinstance(estimate.outcome, Interval)
    return f"{numbers.decimal(100 * estimate.outcome.low, 0)} to {numbers.percent(estimate.outcome.high, 0)}"


def _mean(estimate: Estimate, *, first: bool) -> str:
    assert isinstance(estimate.outcome, Interval)
    plus = numbers.is_signed(estimate.quantity)
    value = numbers.number(estimate.quantity, estimate.outcome.value, plus=plus)
    symbol = numbers.symbol(estimate.quantity)
    text = f"{value} {symbol}".strip()
    return f"{text} ({numbers.span(estimate.quantity, estimate.outcome, plus=plus)})" if first else text


def _tail(p: float | None, judge: str, note: str) -> str:
    by = f"{judge} ({note})" if judge and note else judge or "counted"
    return f"; {by}" if p is None else f"; {numbers.p_value(p)}, {by}"
