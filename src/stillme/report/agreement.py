"""Do judges agree with one another, and with people, and equally for every group?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme.estimates.agreement import AgainstPeople, Agreement
from stillme.report import forest, numbers
from stillme.report.data import ReportData
from stillme.report.forest import Scale
from stillme.types import Interval, NotEstimable

ROW, TOP = 24, 26

_AMONG = {
    "alpha_ordinal": "Krippendorff’s α",
    "kappa_quadratic": "weighted κ",
    "fleiss_kappa": "Fleiss’ κ",
    "within_one": "within a point",
    "exact": "the same",
}
_AGAINST = {
    "bias": "judge − people",
    "mae": "mean error",
    "within_one": "within a point",
    "spearman": "rank correlation",
}
_SHARES = ("within_one", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Axes down, measures across."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Title, who and on how much, and a cell per measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What is known of the judges' agreement."""

    among: Table | None
    by_group: Table | None
    """Agreement among judges, by group of the first factor."""
    against: Table | None
    bias: tuple[tuple[str, str, Markup], ...]
    """Axis, judge, and judge less people by group, drawn."""
    factor: str


def trust(data: ReportData) -> Trust | None:
    """Read tables and drawings off the estimates; absent where one judge stands alone."""
    if not data.agreement and not data.against_people:
        return None
    factor = data.settings.factors[0] if data.settings.factors else ""
    return Trust(
        among=_among([each for each in data.agreement if not each.factor]),
        by_group=_by_group([each for each in data.agreement if factor and each.factor == factor]),
        against=_against([each for each in data.against_people if each.scope == "all"]),
        bias=tuple(_biases(data.against_people, factor)),
        factor=numbers.factor(factor),
    )


def _among(found: Sequence[Agreement]) -> Table | None:
    heads = [measure for measure in _AMONG if any(each.measure == measure for each in found)]
    rows: list[tuple[str, str, tuple[str, ...]]] = []
    for axis in dict.fromkeys(each.axis for each in found):
        mine = {each.measure: each for each in found if each.axis == axis}
        first = next(iter(mine.values()))
        cells = tuple(_cell(measure, mine[measure].outcome) if measure in mine else "–" for measure in heads)
        rows.append((numbers.title(axis), f"{first.raters} raters, {first.items:,} edits", cells))
    return Table(heads=tuple(_AMONG[measure] for measure in heads), rows=tuple(rows)) if rows else None


def _by_group(found: Sequence[Agreement]) -> Table | None:
    alphas = [each for each in found if each.measure == "alpha_ordinal"]
    groups = sorted({each.group for each in alphas})
    rows = [
        (
            numbers.title(axis),
            _AMONG["alpha_ordinal"],
            tuple(
                next((_cell(e.measure, e.outcome) for e in alphas if (e.axis, e.group) == (axis, group)), "–")
                for group in groups
            ),
        )
        for axis in dict.fromkeys(each.axis for each in alphas)
    ]
    return Table(heads=tuple(groups), rows=tuple(rows)) if rows else None


def _against(found: Sequence[AgainstPeople]) -> Table | None:
    rows: list[tuple[str, str, tuple[str, ...]]] = []
    for axis, judge in dict.fromkeys((each.axis, each.judge) for each in found if not each.editor):
        mine = {each.measure: each for each in found if (each.axis, each.judge, each.editor) == (axis, judge, "")}
        edits = max(each.edits for each in mine.values())
        cells = tuple(_cell(measure, mine[measure].outcome) if measure in mine else "–" for measure in _AGAINST)
        rows.append((numbers.title(axis), f"{judge}, {edits:,} edits", cells))
    return Table(heads=tuple(_AGAINST.values()), rows=tuple(rows)) if rows else None


def _biases(found: Sequence[AgainstPeople], factor: str) -> list[tuple[str, str, Markup]]:
    """Judge less people, everyone and each group: a judge hard on some groups looks like an editor that is."""
    biases = [each for each in found if each.measure == "bias" and not each.editor]
    drawn: list[tuple[str, str, Markup]] = []
    for axis, judge in dict.fromkeys((each.axis, each.judge) for each in biases):
        mine = [each for each in biases if (each.axis, each.judge) == (axis, judge)]
        shown = [each for each in mine if each.scope == "all"]
        shown += sorted(
            (each for each in mine if each.scope == "group" and each.factor == factor), key=lambda each: each.group
        )
        if any(isinstance(each.outcome, Interval) for each in shown):
            drawn.append((numbers.title(axis), judge, _draw(axis, judge, shown)))
    return drawn


def _draw(axis: str, judge: str, shown: Sequence[AgainstPeople]) -> Markup:
    known = [each.outcome for each in shown if isinstance(each.outcome, Interval)]
    low, high = min([-0.25, *(each.low for each in known)]), max([0.25, *(each.high for each in known)])
    scale = Scale(low=low, high=high)
    bottom = TOP + ROW * len(shown)
    body = [
        forest.axis(axis, scale, bottom),
        Markup('<line class="coin" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(_px(scale.at(0)), TOP - 6, bottom),
    ]
    for place, each in enumerate(shown):
        y = TOP + ROW * place + ROW / 2
        body.append(
            Markup('<text class="label" x="{}" y="{}">{}</text>').format(
                forest.LABEL - 10, _px(y + 4), forest.shortened(each.group or "everyone")
            )
        )
        if isinstance(each.outcome, Interval):
            body.append(_point(each.outcome, scale, y))
    said = "; ".join(f"{each.group or 'everyone'} {_cell('bias', each.outcome)}" for each in shown)
    return Markup('<svg class="forest" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        forest.WIDTH, bottom + 8, f"{numbers.title(axis)}, {judge} less people: {said}", Markup("").join(body)
    )


def _point(interval: Interval, on: Scale, y: float) -> Markup:
    return Markup(
        '<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/><circle class="point" cx="{}" cy="{}" r="4.5"/>'
        '<text class="value" x="{}" y="{}">{}<tspan class="span" dx="6">{} to {}</tspan></text>'
    ).format(
        _px(on.at(interval.low)),
        _px(on.at(interval.high)),
        _px(y),
        _px(y),
        _px(on.at(interval.value)),
        _px(y),
        forest.WIDTH - forest.VALUES + 14,
        _px(y + 4),
        _signed(interval.value),
        _signed(interval.low),
        _signed(interval.high),
    )


def _cell(measure: str, outcome: Interval | NotEstimable) -> str:
    if not isinstance(outcome, Interval):
        return "–"
    if measure in _SHARES:
        return f"{100 * outcome.value:.0f} % ({100 * outcome.low:.0f} to {100 * outcome.high:.0f})"
    if measure == "bias":
        return f"{_signed(outcome.value)} ({_signed(outcome.low)} to {_signed(outcome.high)})"
    return f"{outcome.value:.2f} ({outcome.low:.2f} to {outcome.high:.2f})".replace("-", "−")


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def _px(value: float) -> str:
    return f"{value:.1f}"
