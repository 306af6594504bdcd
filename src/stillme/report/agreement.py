"""Do judges agree with one another, and with people, and equally for every group?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import numbers
from stillme.estimates.agreement import Agreement
from stillme.estimates.people import AgainstPeople
from stillme.report import forest, svg
from stillme.report.data import ReportData
from stillme.report.forest import Scale

_AMONG_JUDGES = {
    "alpha_ordinal": "Krippendorff’s α",
    "kappa_quadratic": "weighted κ",
    "fleiss_kappa": "Fleiss’ κ",
    "within_one": "within a point",
    "exact": "the same",
}
_AMONG_PEOPLE = {
    "alpha_interval": "Krippendorff’s α",
    "fleiss_kappa": "Fleiss’ κ",
    "within_one": "within a point",
    "exact": "the same",
}
"""The paper's two measures, and shares."""
_WITH_PEOPLE = {
    "bias": "judge − people",
    "exact": "the same",
    "mae": "mean error",
    "within_one": "within a point",
    "spearman": "rank correlation",
}
_SHARES = ("within_one", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementTables:
    """What is known of the judges' agreement."""

    among_judges: Table | None
    among_people: Table | None
    by_group: Table | None
    """Agreement among judges, by group of the first factor."""
    with_people: Table | None
    bias: tuple[tuple[str, str, Markup], ...]
    """Axis, judge, and a drawing of judge minus people by group."""
    factor: str


def agreement_tables(data: ReportData) -> AgreementTables | None:
    """Tables and drawings of the estimates; None where there is one judge and no people."""
    if not data.agreement and not data.against_people:
        return None
    factor = data.settings.factors[0] if data.settings.factors else ""

    def among(whom: str) -> list[Agreement]:
        return [agreement for agreement in data.agreement if agreement.among == whom]

    return AgreementTables(
        among_judges=_among(_AMONG_JUDGES, [agreement for agreement in among("judges") if not agreement.factor]),
        among_people=_among(_AMONG_PEOPLE, [agreement for agreement in among("people") if not agreement.factor]),
        by_group=_by_group([agreement for agreement in among("judges") if factor and agreement.factor == factor]),
        with_people=_with_people([against for against in data.against_people if against.scope == "all"]),
        bias=tuple(_biases(data.against_people, factor)),
        factor=numbers.factor_name(factor),
    )


def _among(titles: Mapping[str, str], agreements: Sequence[Agreement]) -> Table | None:
    measures = [measure for measure in titles if any(agreement.measure == measure for agreement in agreements)]
    rows: list[Row] = []
    for axis in dict.fromkeys(agreement.axis for agreement in agreements):
        by_measure = {agreement.measure: agreement for agreement in agreements if agreement.axis == axis}
        first = next(iter(by_measure.values()))
        cells = tuple(_cell(measure, by_measure.get(measure)) for measure in measures)
        rows.append((numbers.title(axis), f"{first.raters} raters, {first.items:,} edits", cells))
    return Table(heads=tuple(titles[measure] for measure in measures), rows=tuple(rows)) if rows else None


def _by_group(agreements: Sequence[Agreement]) -> Table | None:
    alphas = {(alpha.axis, alpha.group): alpha for alpha in agreements if alpha.measure == "alpha_ordinal"}
    groups = sorted({group for _, group in alphas})
    rows = tuple(
        (
            numbers.title(axis),
            _AMONG_JUDGES["alpha_ordinal"],
            tuple(_cell("alpha_ordinal", alphas.get((axis, group))) for group in groups),
        )
        for axis in dict.fromkeys(axis for axis, _ in alphas)
    )
    return Table(heads=tuple(groups), rows=rows) if rows else None


def _with_people(estimates: Sequence[AgainstPeople]) -> Table | None:
    by_judge: dict[tuple[str, str], dict[str, AgainstPeople]] = {}
    for estimate in estimates:
        if not estimate.editor:
            by_judge.setdefault((estimate.axis, estimate.judge), {})[estimate.measure] = estimate
    rows = tuple(
        (
            numbers.title(axis),
            f"{judge}, {max(estimate.edits for estimate in by_measure.values()):,} edits",
            tuple(_cell(measure, by_measure.get(measure)) for measure in _WITH_PEOPLE),
        )
        for (axis, judge), by_measure in by_judge.items()
    )
    return Table(heads=tuple(_WITH_PEOPLE.values()), rows=rows) if rows else None


def _biases(estimates: Sequence[AgainstPeople], factor: str) -> Iterator[tuple[str, str, Markup]]:
    """Judge minus people, everyone and each group: a judge that is hard on some groups looks like an editor that is."""
    biases = [estimate for estimate in estimates if estimate.measure == "bias" and not estimate.editor]
    for axis, judge in dict.fromkeys((bias.axis, bias.judge) for bias in biases):
        of_judge = [bias for bias in biases if (bias.axis, bias.judge) == (axis, judge)]
        everyone = [bias for bias in of_judge if bias.scope == "all"]
        groups = [bias for bias in of_judge if bias.scope == "group" and bias.factor == factor]
        rows = [*everyone, *sorted(groups, key=lambda bias: bias.group)]
        if any(isinstance(bias.outcome, Interval) for bias in rows):
            drawing = _draw_differences(axis, f"{judge} minus people", [(bias.group, bias.outcome) for bias in rows])
            yield numbers.title(axis), judge, drawing


def _cell(measure: str, estimate: Agreement | AgainstPeople | None) -> str:
    return cell(estimate.outcome if estimate else None, share=measure in _SHARES, plus=measure == "bias")


ROW, TOP = 24, 26

Row = tuple[str, str, tuple[str, ...]]
"""Title, who and on how much, and a cell per measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Axes down, measures across."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]


def _draw_differences(axis: str, what: str, groups: Sequence[tuple[str, Interval | NotEstimable]]) -> Markup:
    """Everyone and each group, with the line of no difference."""
    intervals = [outcome for _, outcome in groups if isinstance(outcome, Interval)]
    scale = Scale(
        low=min([-0.25, *(interval.low for interval in intervals)]),
        high=max([0.25, *(interval.high for interval in intervals)]),
    )
    bottom = TOP + ROW * len(groups)
    parts = [forest.axis(axis, scale, bottom), svg.reference_line(scale.at(0), TOP - 6, bottom)]
    for row, (group, outcome) in enumerate(groups):
        y = TOP + ROW * row + ROW / 2
        parts.append(svg.label(y, group or "everyone"))
        if isinstance(outcome, Interval):
            value, low, high = (points(part) for part in (outcome.value, outcome.low, outcome.high))
            parts.append(svg.whisker(scale.at(outcome.low), scale.at(outcome.high), y))
            parts.append(svg.point(scale.at(outcome.value), y, 4.5))
            parts.append(svg.value(y, value, f"{low} to {high}"))
    spoken = "; ".join(f"{group or 'everyone'} {cell(outcome, plus=True)}" for group, outcome in groups)
    return svg.svg("forest", (svg.WIDTH, bottom + 8), f"{numbers.title(axis)}, {what}: {spoken}", parts)


def cell(outcome: Interval | NotEstimable | None, *, share: bool = False, plus: bool = False) -> str:
    """`+0.31 (+0.20 to +0.42)`, a share as `12 % (8 to 17)`, or a dash."""
    if not isinstance(outcome, Interval):
        return "–"
    if share:
        low, high = (numbers.decimal(100 * limit, 0) for limit in (outcome.low, outcome.high))
        return f"{numbers.percent(outcome.value, 0)} ({low} to {high})"
    value, low, high = (numbers.decimal(part, 2, plus=plus) for part in (outcome.value, outcome.low, outcome.high))
    return f"{value} ({low} to {high})"


def points(value: float) -> str:
    """A difference on a scale, with its sign."""
    return numbers.decimal(value, 2, plus=True)
