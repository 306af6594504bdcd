"""Numbers of the paper, each with the run's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stillme import numbers
from stillme.estimates import mark
from stillme.estimates.rounding import rounded
from stillme.estimates.standing import Standing
from stillme.paper import Published
from stillme.types import Interval, NotEstimable


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One number of the paper, and the run's own."""

    published: Published
    editor: str
    """The run's; the names of all where they are taken together."""
    judge: str
    yours: Interval | NotEstimable
    portraits: int
    edits: int
    layout: str = ""
    """Role prompts: `role_pair` or `role_single`."""

    @property
    def difference(self) -> Interval | None:
        """Yours minus the paper's number, taken as exact; None for a range, or without a number of yours."""
        if not isinstance(self.yours, Interval) or self.published.high is not None:
            return None
        ends = (self.yours.value, self.yours.low, self.yours.high)
        value, low, high = (rounded(end - self.published.value) for end in ends)
        return replace(self.yours, value=value, low=low, high=high)

    @property
    def reading(self) -> str:
        """Where the paper's number lies; why there is none of yours."""
        if not isinstance(self.yours, Interval):
            return self.yours.reason
        low, high = self.published.value, self.published.high
        if self.yours.low <= (low if high is None else high) and low <= self.yours.high:
            return (
                "your interval contains the paper's number"
                if high is None
                else "your interval overlaps the paper's range"
            )
        side = "below" if low < self.yours.low else "above"
        return f"the paper's {'number' if high is None else 'range'} is {side} your interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestBeside:
    """A test that the paper reports, and yours: as the paper does it, and with the portrait as the unit."""

    __test__ = False

    published: Published
    editor: str
    judge: str
    statistic: float | None
    p: float | None
    """As if every edit were independent."""
    portrait_p: float | None
    """By permuting groups over portraits, or flipping the sign of each portrait's change."""
    reason: str
    """Why there is no result; empty where there is one."""
    portraits: int
    edits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperComparison:
    """Everything of a run that answers a number of the paper."""

    numbers: tuple[Beside, ...] = ()
    tests: tuple[TestBeside, ...] = ()
    differences: tuple[str, ...] = ()
    """Why the two are not the same measurement."""
    left_out: tuple[tuple[Published, str], ...] = ()
    """Numbers of the paper without one of yours, with the reason."""

    def doubts(self, standing: Standing) -> Iterator[str]:
        """What calibration says of the judges behind your numbers."""
        rows = (row for row in self.numbers if row.published.judge == "models")
        notes = dict.fromkeys((row.judge, mark(standing, row.judge, row.published.quantity)) for row in rows)
        yield from (f"{judge}: {note}." for judge, note in notes if note)


def published_text(number: Published) -> str:
    """The paper's number with the decimals that it prints."""
    scale, decimals, unit = 1, number.decimals, ""
    if number.unit == "share":
        scale, decimals = 100, max(0, number.decimals - 2)
        unit = " points" if number.statistic == "max - min" else " %"
    ends = [
        f"{end:g}" if "e" in f"{end:g}" else numbers.decimal(scale * end, decimals, plus=number.unit == "1-5 points")
        for end in (number.value, number.high)
        if end is not None
    ]
    return f"{ {'<': '< ', '<=': '≤ '}.get(number.sign, '') }{'–'.join(ends)}{unit}"
