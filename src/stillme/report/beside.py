"""Beside the paper: the run's numbers and those that the paper prints, where there is one of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stillme import numbers
from stillme.report.data import ReportData
from stillme.results.beside import Beside, TestBeside, published_text
from stillme.types import Interval

_LAYOUTS = {"role_pair": "two people in a request", "role_single": "one person in a request"}
_KINDS = {"max - min": "max − min", "change": "feature − baseline", "bias": "models − people"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideRow:
    """One number of the paper."""

    title: str
    about: str
    """Editor, group, arm: whose number it is."""
    yours: str
    span: str
    paper: str
    difference: str
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideSection:
    """What the page shows."""

    places: tuple[tuple[str, tuple[BesideRow, ...]], ...]
    """By table, figure or section of the paper."""
    tests: tuple[BesideRow, ...]
    differences: tuple[str, ...]
    """Why the two are not the same measurement, and what is doubtful."""


def beside_section(data: ReportData) -> BesideSection | None:
    """The section; None where no number of the run answers one of the paper."""
    comparison = data.beside
    if comparison is None:
        return None
    places: dict[str, list[BesideRow]] = {}
    for row in comparison.numbers:
        if isinstance(row.yours, Interval):
            places.setdefault(row.published.place, []).append(_row(row, row.yours))
    tests = tuple(_test(row) for row in comparison.tests if row.p is not None)
    if not places and not tests:
        return None
    return BesideSection(
        places=tuple((place, tuple(rows)) for place, rows in places.items()),
        tests=tests,
        differences=(*comparison.differences, *comparison.doubts(data.standing)),
    )


def _row(row: Beside, yours: Interval) -> BesideRow:
    published = row.published
    write = _points if published.statistic == "max - min" else _percent if published.unit == "share" else _score
    signed = published.unit == "1-5 points"
    title = published.statistic.capitalize() if published.quantity == "adherence" else numbers.title(published.quantity)
    return BesideRow(
        title=title,
        about=" · ".join(_about(row)),
        yours=write(yours.value, signed),
        span=f"{write(yours.low, signed)} to {write(yours.high, signed)}",
        paper=published_text(published),
        difference=_difference(row),
        reading=row.reading,
    )


def _about(row: Beside) -> Iterator[str]:
    published = row.published
    arm = published.arm if published.sample == "mitigation" and published.statistic == "mean" else ""
    people = "rated by people" if published.judge == "people" else ""
    parts = (
        row.editor,
        published.group,
        _KINDS.get(published.statistic, ""),
        arm,
        _LAYOUTS.get(row.layout, ""),
        people,
    )
    yield from (part for part in parts if part)


def _difference(row: Beside) -> str:
    if row.difference is None:
        return "–"
    write = _points if row.published.unit == "share" else _score
    low, high = (write(end, True) for end in (row.difference.low, row.difference.high))
    return f"{write(row.difference.value, True)} ({low} to {high})"


def _test(row: TestBeside) -> BesideRow:
    published = row.published
    name, _, what = published.statistic.rpartition(" ")
    statistic = f"H = {row.statistic:.1f}" if what == "H" and row.statistic is not None else ""
    group = f" · {published.group} against the rest" if published.group else ""
    return BesideRow(
        title=name,
        about=f"{numbers.title(published.quantity)} · {row.judge} · {row.editor}{group}",
        yours=statistic or ("" if row.p is None else numbers.p_value(row.p)),
        span=f"{row.edits:,} edits of {row.portraits:,} portraits",
        paper=f"{what} {'' if published.sign else '= '}{published_text(published)}",
        difference="–",
        reading="" if row.portrait_p is None else numbers.p_value(row.portrait_p),
    )


def _score(value: float, signed: bool) -> str:
    return numbers.decimal(value, 2, plus=signed)


def _percent(value: float, signed: bool) -> str:
    return numbers.percent(value, plus=signed)


def _points(value: float, signed: bool) -> str:
    return numbers.points(value, plus=signed)
