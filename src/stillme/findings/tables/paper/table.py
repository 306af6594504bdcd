"""A table of the paper: rows of cells, each a number with its interval, a count, words, or the reason for none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import numbers

Form = Literal["score", "change", "rate", "points"]
"""A mean on a scale, a difference of means, a share in percent, a difference of shares in points."""
MARK = "†"
"""Stands behind a number whose judge failed calibration or never had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """An estimate."""

    outcome: Interval
    form: Form
    portraits: int
    edits: int
    note: str = ""
    """What calibration says of the judge; empty where it passed."""
    paper: str = ""
    """The number that the paper prints in this cell; empty where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many there are. Counted, not estimated, so it has no interval."""

    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of what was counted."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the numbers beside it say."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """There is no honest number here."""

    reason: str


Cell = Number | Count | Share | Words | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table."""

    label: str
    cells: tuple[Cell, ...]
    section: str = ""
    """Rows of one section stand together under its name."""
    summary: bool = False
    """Whether the row sums up those above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One table, ready to be written in any format."""

    number: int
    """In the paper."""
    caption: str
    head: tuple[str, ...]
    """The first is above the rows' labels."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    absent: str = ""
    """Why the whole table cannot be made; empty where it can."""
    appendix: str = ""
    """Where the paper has these numbers in a sentence instead of a table, such as `G.6`."""

    @property
    def place(self) -> str:
        """Where the paper has its numbers."""
        return f"Appendix {self.appendix}" if self.appendix else f"Table {self.number}"

    @property
    def heading(self) -> str:
        """What stands before the caption."""
        return f"{self.place} of the paper"

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"appendix-{self.appendix.lower()}" if self.appendix else f"table-{self.number:02}"


def number(outcome: Interval | NotEstimable, form: Form, portraits: int, edits: int, note: str = "") -> Cell:
    """A cell for an estimate, or the reason why there is none."""
    if isinstance(outcome, NotEstimable):
        return Absent(reason=outcome.reason)
    return Number(outcome=outcome, form=form, portraits=portraits, edits=edits, note=note)


def complement(cell: Cell) -> Cell:
    """One minus a rate."""
    if not isinstance(cell, Number):
        return cell
    followed = cell.outcome
    outcome = replace(followed, value=1 - followed.value, low=1 - followed.high, high=1 - followed.low)
    return replace(cell, outcome=outcome)


def text_of(value: float, form: Form) -> str:
    """A number with the decimals of the paper."""
    match form:
        case "score":
            return numbers.decimal(value, 2)
        case "change":
            return numbers.decimal(value, 2, plus=bool(round(value, 2)))
        case "rate":
            return numbers.percent(value)
        case "points":
            return numbers.points(value)
        case never:
            assert_never(never)
