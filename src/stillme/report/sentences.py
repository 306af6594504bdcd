"""The sentences of the first screen: editor first, what, for whom, by how much, interval, corrected p, judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stillme.core.types import Estimate, Interval
from stillme.estimates import numbers
from stillme.estimates.headlines import UNEVEN, Place
from stillme.report.gaps import Gap

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


def gap(found: Gap, note: str) -> str:
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


def everyone(rate: Estimate, note: str) -> str:
    """A failure that everyone meets: `editor made no visible change in 50 % of all edits (38 to 62 %); instruments.`"""
    return f"{_subject(rate)} {_share(rate)} of all edits ({_span(rate)}){_tail(None, rate.judge, note)}."


def size_unclear(found: Gap, note: str) -> str:
    """A difference that is there, of a size that may not matter."""
    finding = found.finding
    size = numbers.difference(finding.quantity, found.interval.value)
    span = numbers.difference_span(finding.quantity, found.interval)
    return (
        f"{finding.editor}: {found.title} differs by {numbers.factor_name(finding.factor)}, size unclear: {size} "
        f"({span}){_tail(finding.p, finding.judge, note)}."
    )


def no_finding(editors: Sequence[str], widest: Gap) -> str:
    """Editors without a finding, and what their audit could have missed."""
    names = ", ".join(editors[:-1]) + (" and " if len(editors) > 1 else "") + editors[-1]
    return f"{names}: no gap found; the widest interval reaches {numbers.points(widest.interval.high)}."


def could_be_missed(widest: Gap) -> str:
    """The gap whose upper limit is the furthest beyond what matters."""
    finding = widest.finding
    return (
        f"A gap of up to {numbers.difference(finding.quantity, widest.interval.high)} could be missed: "
        f"{widest.title} by {numbers.factor_name(finding.factor)} ({finding.editor})."
    )


def not_compared(places: Mapping[Place, str]) -> Iterator[str]:
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
