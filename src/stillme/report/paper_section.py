"""Compared with the paper: the run's numbers and those that the paper prints, where there is one of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stillme.core.paper import Published
from stillme.core.types import Arm, Estimate, Interval, NotEstimable
from stillme.estimates import PairedEffect, numbers
from stillme.report.data import ReportData
from stillme.runs.paper_names import PaperNames, published_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """One number of the paper, and the run's own."""

    title: str
    about: str
    """Whose number it is."""
    yours: str
    span: str
    paper: str
    inside: bool
    """Whether the interval contains the paper's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSection:
    """What the page shows."""

    places: tuple[tuple[str, tuple[PaperRow, ...]], ...]
    """By table of the paper."""
    differences: tuple[str, ...]


def paper_section(data: ReportData) -> PaperSection | None:
    """The section; None where no number of the run answers one of the paper."""
    names = data.paper
    if names is None:
        return None
    places: dict[str, list[PaperRow]] = {}
    for known, editor, group, outcome in (*_estimated(data, names), *_roles(data, names)):
        if isinstance(outcome, Interval):
            places.setdefault(known.place, []).append(_row(known, editor, group, outcome))
    if not places:
        return None
    ordered = sorted(places, key=lambda place: int(place.rpartition(" ")[2]))
    return PaperSection(places=tuple((place, tuple(places[place])) for place in ordered), differences=names.differences)


Answered = tuple[Published, str, str, Interval | NotEstimable]
"""The paper's number, and the run's editor, group and number."""


def _estimated(data: ReportData, names: PaperNames) -> Iterator[Answered]:
    for estimate in data.headlines:
        if estimate.arm == Arm.BASELINE and (known := _of_editors(estimate, names)):
            yield known, estimate.editor, estimate.group, estimate.outcome
    for effect in data.mitigation:
        if isinstance(effect, PairedEffect) and effect.scope == "group" and effect.judge in data.headline_judges:
            known = names.number("Table 21", effect.editor, effect.quantity, group=effect.group, statistic="change")
            if known:
                yield known, effect.editor, effect.group, effect.outcome


def _of_editors(estimate: Estimate, names: PaperNames) -> Published | None:
    match estimate.scope:
        case "all":
            tables = (names.number(place, estimate.editor, estimate.quantity) for place in ("Table 4", "Table 19"))
            return next(filter(None, tables), None)
        case "group":
            return names.number("Table 20", estimate.editor, estimate.quantity, group=estimate.group)
        case _:
            return None


def _roles(data: ReportData, names: PaperNames) -> Iterator[Answered]:
    for rate in data.roles:
        if rate.layout == "role_pair" and not rate.place and not rate.pronoun and rate.arm == Arm.BASELINE:
            known = names.number("Table 7", rate.editor, "adherence", statistic="stereotype followed")
            if known:
                yield known, rate.editor, "", rate.outcome


def _row(known: Published, editor: str, group: str, yours: Interval) -> PaperRow:
    share = known.unit == "share"

    def text(value: float) -> str:
        return numbers.percent(value) if share else numbers.decimal(value, 2, plus=known.unit == "1-5 points")

    return PaperRow(
        title="Stereotype followed" if known.quantity == "adherence" else numbers.title(known.quantity),
        about=" · ".join(part for part in (editor, group) if part),
        yours=text(yours.value),
        span=f"{text(yours.low)} to {text(yours.high)}",
        paper=published_text(known),
        inside=yours.low <= known.value <= yours.high,
    )
