"""The judges themselves: agreement with each other and with people, silence, behaviour, known changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from stillme.core.rubric import load_limits
from stillme.core.types import Arm, Estimate, Interval, NotEstimable
from stillme.estimates import numbers
from stillme.estimates.agreement import Agreement
from stillme.estimates.headlines import Abstention, Place, abstentions, is_headline, place_of, uneven
from stillme.estimates.numbers import percent
from stillme.estimates.people import AgainstPeople
from stillme.findings.calibration.records import AxisResult, Calibration, ShareOfPortraits
from stillme.report import svg
from stillme.report.data import ReportData
from stillme.report.gaps import Gap
from stillme.report.svg import Scale
from stillme.runs.behaviour import MUCH_MISSING, JudgeBehaviour, listed
from stillme.runs.status import drifted

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


Row = tuple[str, str, tuple[str, ...]]
"""Title, who and on how much, and a cell per measure."""
AgreementTable = tuple[tuple[str, ...], tuple[Row, ...]]
"""Measures across, axes down."""


def agreement_tables(data: ReportData) -> dict[str, Any] | None:
    """Tables and drawings of the estimates for the page; None where there is one judge and no people."""
    if not data.agreement and not data.against_people:
        return None
    factor = data.settings.factors[0] if data.settings.factors else ""

    def among(whom: str) -> list[Agreement]:
        return [agreement for agreement in data.agreement if agreement.among == whom]

    return {
        "among_judges": _among(_AMONG_JUDGES, [agreement for agreement in among("judges") if not agreement.factor]),
        "among_people": _among(_AMONG_PEOPLE, [agreement for agreement in among("people") if not agreement.factor]),
        "by_group": _by_group([agreement for agreement in among("judges") if factor and agreement.factor == factor]),
        "with_people": _with_people([against for against in data.against_people if against.scope == "all"]),
        "bias": list(_biases(data.against_people, factor)),
        "factor": numbers.factor_name(factor),
    }


def _among(titles: Mapping[str, str], agreements: Sequence[Agreement]) -> AgreementTable | None:
    measures = [measure for measure in titles if any(agreement.measure == measure for agreement in agreements)]
    rows: list[Row] = []
    for axis in dict.fromkeys(agreement.axis for agreement in agreements):
        by_measure = {agreement.measure: agreement for agreement in agreements if agreement.axis == axis}
        first = next(iter(by_measure.values()))
        cells = tuple(_cell(measure, by_measure.get(measure)) for measure in measures)
        rows.append((numbers.title(axis), f"{first.raters} raters, {first.items:,} edits", cells))
    return (tuple(titles[measure] for measure in measures), tuple(rows)) if rows else None


def _by_group(agreements: Sequence[Agreement]) -> AgreementTable | None:
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
    return (tuple(groups), rows) if rows else None


def _with_people(estimates: Sequence[AgainstPeople]) -> AgreementTable | None:
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
    return (tuple(_WITH_PEOPLE.values()), rows) if rows else None


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


def _draw_differences(axis: str, what: str, groups: Sequence[tuple[str, Interval | NotEstimable]]) -> Markup:
    """Everyone and each group, with the line of no difference."""
    intervals = [outcome for _, outcome in groups if isinstance(outcome, Interval)]
    scale = Scale(
        low=min([-0.25, *(interval.low for interval in intervals)]),
        high=max([0.25, *(interval.high for interval in intervals)]),
    )
    bottom = TOP + ROW * len(groups)
    parts = [svg.axis(axis, scale, bottom), svg.reference_line(scale.at(0), TOP - 6, bottom)]
    for row, (group, outcome) in enumerate(groups):
        y = TOP + ROW * row + ROW / 2
        parts.append(svg.label(y, group or "everyone"))
        if isinstance(outcome, Interval):
            ends = (outcome.value, outcome.low, outcome.high)
            value, low, high = (numbers.decimal(end, 2, plus=True) for end in ends)
            parts += [svg.interval(outcome, scale, y, 4.5), svg.value(y, value, f"{low} to {high}")]
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


def abstention_rows(estimates: Iterable[Estimate], gaps: Iterable[Gap]) -> list[dict[str, str]]:
    """One for each headline quantity and factor on which a judge abstained at all, in the order of the estimates.

    `gaps` are those that decide, also although the judge abstains unevenly.
    """
    decided = {place_of(gap.disparity) for gap in gaps}
    rows = [row for row in estimates if is_headline(row.quantity)]
    by_place: dict[Place, list[Abstention]] = {}
    for row in abstentions(rows):
        if row.answered + row.abstained:
            by_place.setdefault(place_of(row), []).append(row)
    silent = uneven(rows)
    return [
        {
            "quantity": quantity,
            "judge": judge,
            "editor": editor if arm == Arm.BASELINE else f"{editor}, {arm}",
            "factor": factor,
            "most": _in_words(max(groups, key=lambda group: group.share)),
            "least": _in_words(min(groups, key=lambda group: group.share)),
            "word": ("uneven" if place in decided else "uneven: decides nothing") if place in silent else "",
        }
        for place, groups in by_place.items()
        for quantity, editor, arm, judge, factor in (place,)
        if any(group.abstained for group in groups)
    ]


def _in_words(row: Abstention) -> str:
    return f"{row.group}: {percent(row.share, 0)} of {row.answered + row.abstained}"


def behaviour_section(data: ReportData) -> dict[str, list[str]] | None:
    """Warnings and sentences; None where no model judges, or nothing is known of it."""
    known = data.behaviour
    if known is None:
        return None
    warnings = [
        *(answers.alarm for answers in known.control_pairs if answers.alarm),
        *known.warnings,
        *(f"{judge}." for judge in drifted(known.models)),
    ]
    sentences = list(_sentences(known))
    return {"warnings": warnings, "sentences": sentences} if warnings or sentences else None


def _sentences(known: JudgeBehaviour) -> Iterator[str]:
    yield from (str(answers) for answers in known.control_pairs)
    yield from _combined(known)
    for names in known.models:
        if not names.drifted:
            yield f"{names.answered[-1].name} gave all {names.total:,} answers of {names.judge}."


def _combined(known: JudgeBehaviour) -> Iterator[str]:
    combination = known.combination
    if combination is None:
        return
    yield f"The {combination.name} combines {listed(combination.judges)}."
    if combination.primary:
        yield f"Where they are more than a point apart, {combination.primary}, the primary judge of Eq. 3, decides."
    if combination.mixed:
        blind = [judge for judge in combination.judges if judge not in combination.unblinded]
        seeing = f"{listed(combination.unblinded)} {_verb(combination.unblinded)} unblinded (shown the labels)"
        yield f"{seeing}, {listed(blind)} {_verb(blind)} blind: the combined scores mix both."
    if known.incomplete:
        axis = max(known.incomplete, key=lambda name: known.incomplete[name])
        if known.incomplete[axis] == 0:
            yield "Every combined score rests on all its judges."
        elif known.incomplete[axis] <= MUCH_MISSING:
            share = numbers.percent(known.incomplete[axis])
            yield f"Up to {share} of the combined scores lack a judge (most for “{numbers.title(axis)}”)."


_CAL_WIDTH, _CAL_ROW, _CAL_LABEL, _CAL_TOP = 320, 18, 76, 18
_CURVE = (320, 118, 30, 20)
"""Width, height, left and bottom margin of a curve."""


Shares = Mapping[str, ShareOfPortraits]
"""By skin-tone group, everyone first."""


def calibration_drawings(calibrations: Iterable[Calibration]) -> list[tuple[Calibration, list[dict[str, object]]]]:
    """Every judge with every axis that has calibration pairs."""
    return [(calibration, list(_axis_drawings(calibration))) for calibration in calibrations]


def _axis_drawings(calibration: Calibration) -> Iterator[dict[str, object]]:
    for axis, groups in calibration.axes.items():
        false_alarms, sensitivity = (
            {group: share for group, result in groups.items() if (share := getattr(result, name)) is not None}
            for name in ("false_alarm", "sensitivity")
        )
        if axis in load_limits().axes and (false_alarms or sensitivity):
            yield {
                "title": numbers.title(axis),
                "verdict": str(calibration.verdicts[axis]),
                "limits": _limits(axis, false_alarms, sensitivity),
                "curve": _curve(axis, groups),
            }


def _limits(axis: str, false_alarms: Shares, sensitivity: Shares) -> Markup:
    limits = load_limits().axes[axis]
    blocks = [
        ("says “changed” where nothing did", "at most", limits.false_alarm, false_alarms),
        ("notices what it must notice", "at least", limits.sensitivity, sensitivity),
    ]
    height = _CAL_TOP + _CAL_ROW * sum(len(shares) + 1 for *_, shares in blocks if shares)
    parts = [
        Markup(
            '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text class="tick" x="{0}" y="10">{3} %</text>'
        ).format(svg.px(_x(tick)), _CAL_TOP - 4, height, round(100 * tick))
        for tick in (0.0, 0.5, 1.0)
    ]
    y = _CAL_TOP + _CAL_ROW / 2
    for head, _, limit, shares in blocks:
        if not shares:
            continue
        parts.append(Markup('<text class="head" x="0" y="{}">{}</text>').format(svg.px(y + 4), head))
        for group, share in shares.items():
            y += _CAL_ROW
            parts.append(_share_row(group, share, limit, y))
        y += _CAL_ROW
    alt = "; ".join(
        f"{head}, {group}: {numbers.percent(share.value, 0)}, should be {bound} {numbers.percent(limit, 0)}"
        for head, bound, limit, shares in blocks
        for group, share in shares.items()
    )
    return svg.svg("forest calibration", (_CAL_WIDTH, height + 4), f"{numbers.title(axis)}: {alt}", parts)


def _share_row(group: str, share: ShareOfPortraits, limit: float, y: float) -> Markup:
    tick = Markup('<line class="limit" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
    return (
        svg.label(y, group, x=_CAL_LABEL - 8)
        + svg.whisker(_x(share.low), _x(share.high), y)
        + svg.point(_x(share.value), y, 3.6)
        + tick.format(svg.px(_x(limit)), svg.px(y - 7), svg.px(y + 7))
    )


def _x(share: float) -> float:
    return _CAL_LABEL + min(1.0, max(0.0, share)) * (_CAL_WIDTH - _CAL_LABEL - 14)


def _curve(axis: str, groups: Mapping[str, AxisResult]) -> Markup:
    """The share noticed at each size of a change; empty where the change has no size."""
    doses: dict[float, dict[str, float]] = {}
    for group, result in groups.items():
        for noticed in result.curve:
            doses.setdefault(noticed.amount, {})[group] = noticed.share.value
    amounts = sorted(doses)
    if len(amounts) < 2:
        return Markup("")
    width, height, left, bottom = _CURVE
    low, high = min(0.0, amounts[0]), max(0.0, amounts[-1])

    def x(amount: float) -> str:
        return svg.px(left + (amount - low) / (high - low) * (width - left - 12))

    def y(share: float) -> float:
        return 8 + (1 - share) * (height - 8 - bottom)

    parts = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="tick end" x="{}" y="{}">{:.0f}</text>'
        ).format(left, width - 12, svg.px(y(share)), svg.px(y(share)), left - 4, svg.px(y(share) + 3.5), 100 * share)
        for share in (0.0, 0.5, 1.0)
    ]
    tick = Markup('<text class="tick" x="{}" y="{}">{}</text>')
    parts += [tick.format(x(amount), height - 6, f"{amount:+g}".replace("-", "−")) for amount in amounts]
    for order, group in enumerate(doses[amounts[0]]):
        points = " ".join(
            f"{x(amount)},{svg.px(y(doses[amount][group]))}" for amount in amounts if group in doses[amount]
        )
        line = Markup('<polyline class="dose dose-{}" points="{}"><title>{}</title></polyline>')
        parts.append(line.format(order, points, group))
    alt = "; ".join(
        f"{amount:+g}: " + ", ".join(f"{group} {numbers.percent(share, 0)}" for group, share in doses[amount].items())
        for amount in amounts
    )
    title = f"{numbers.title(axis)}, share noticed by size of the change. {alt}"
    return svg.svg("forest curve", (width, height), title, parts)


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
