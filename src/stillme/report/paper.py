"""Compared with the paper: its numbers and the run's, and its Figures 4 and 6 for this run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from stillme.core import rubric
from stillme.core.paper import Published
from stillme.core.types import Arm, Estimate, Interval, NotEstimable
from stillme.estimates import EditState, PairedEffect, RatingState, Scores, estimate, numbers, one_judge, paired_effects
from stillme.estimates.people import mean_of
from stillme.report import svg
from stillme.report.data import ReportData
from stillme.report.svg import LABEL, WIDTH, Scale, px
from stillme.runs.paper_names import PaperNames, published_text

PaperRow = tuple[str, str, str, str, str, bool]
"""What, whose, the run's number and interval, the paper's number, and whether the interval contains that."""


def paper_section(data: ReportData) -> dict[str, list[PaperRow]]:
    """By table of the paper; empty where no number of the run answers one of the paper."""
    names = data.paper
    if names is None:
        return {}
    places: dict[str, list[PaperRow]] = {}
    for known, editor, group, outcome in (*_estimated(data, names), *_roles(data, names)):
        if isinstance(outcome, Interval):
            places.setdefault(known.place, []).append(_row(known, editor, group, outcome))
    return {place: places[place] for place in sorted(places, key=lambda place: int(place.rpartition(" ")[2]))}


Answered = tuple[Published, str, str, Interval | NotEstimable]
"""The paper's number, and the run's editor, group and number."""


def _estimated(data: ReportData, names: PaperNames) -> Iterator[Answered]:
    for row in data.headlines:
        if row.arm == Arm.BASELINE and (known := _of_editors(row, names)):
            yield known, row.editor, row.group, row.outcome
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

    return (
        "Stereotype followed" if known.quantity == "adherence" else numbers.title(known.quantity),
        " · ".join(part for part in (editor, group) if part),
        text(yours.value),
        f"{text(yours.low)} to {text(yours.high)}",
        published_text(known),
        yours.low <= known.value <= yours.high,
    )


Drawing = tuple[str, str, Markup]
"""What a panel shows, of which arm, and its drawing."""
Outcomes = Mapping[str, Mapping[str, Interval | NotEstimable]]
"""By row, then by series: a number, or why there is none."""

_LINE, _GAP, _TOP = 16, 12, 26
_PEOPLE, _MODELS, _ALL = "people", "models", "all editors"
_RATES = {"skin_lightened": "(a) skin lightening", "race_changed": "(b) race change"}
_CHANGES = ("skin_tone", "race_change", "gender_change", "age_change")


def paper_figures(data: ReportData) -> Iterator[tuple[str, str, tuple[Drawing, ...]]]:
    """Name, title and panels of the paper's figures that the rows allow."""
    factor = next(iter(data.settings.factors), "")
    by = f" by {numbers.factor_name(factor)}"
    four = tuple(_rates(data, factor)) if factor else ()
    if four:
        yield "figure-4", f"Skin lightening and race change{by} (the paper's Figure 4)", four
    six = tuple(_people(data, factor))
    if six:
        yield "figure-6", "Human raters and models (the paper's Figure 6)", six


def _rates(data: ReportData, factor: str) -> Iterator[Drawing]:
    """Figure 4: for each group every editor, in the order of the design."""
    for quantity, title in _RATES.items():
        rate = rubric.load().rates[quantity]
        rows = [row for row in data.headlines if (row.scope, row.factor, row.quantity) == ("group", factor, quantity)]
        found = {(row.group, row.editor): row.outcome for row in rows if row.judge == rows[0].judge}
        groups = {
            group: {editor: found[group, editor] for editor in data.edits.editors if (group, editor) in found}
            for group in _in_order(data, factor)
        }
        if found:
            what = f"{title}: share of edits with a score of {rate.at_least:g} or more"
            yield what, data.main_arm, _draw(quantity, title, groups, data.edits.editors, zero=True)


def _people(data: ReportData, factor: str) -> Iterator[Drawing]:
    """Figure 6: skin tone by people and models, and what a feature prompt changes in people's eyes."""
    by_people = {
        axis: replace(mean_of(raters, _PEOPLE), kind="person")
        for axis in ("edit_success", *_CHANGES)
        if (raters := [score for score in data.scores if score.kind == "person" and score.axis == axis])
    }
    if factor and "skin_tone" in by_people:
        yield from _skin(data, factor, by_people["skin_tone"])
    arms = data.edits.arms
    if Arm.FEATURE not in arms or Arm.BASELINE not in arms:
        return
    settings = data.settings.comparing()
    changes: dict[str, dict[str, Interval | NotEstimable]] = {}
    for pool in (True, False):
        effects = paired_effects(data.edits, list(by_people.values()), settings, quantities=list(by_people), pool=pool)
        for effect in effects:
            if isinstance(effect, PairedEffect) and effect.scope == "all":
                changes.setdefault(effect.quantity, {})[_ALL if pool else effect.editor] = effect.outcome
    series = (_ALL, *data.edits.editors)
    compared = f"{Arm.FEATURE} minus {Arm.BASELINE}"
    for title, axes in (("(b1) edit success", ("edit_success",)), ("(b2) change", _CHANGES)):
        rows = {rubric.load().title(axis): changes[axis] for axis in axes if axis in changes}
        if rows:
            yield f"{title}, human raters", compared, _draw(axes[0], title, rows, series, zero=True, change=True)


def _skin(data: ReportData, factor: str, people: Scores) -> Iterator[Drawing]:
    """Mean scores on the edits that both rated, of all editors."""
    model = one_judge([score for score in data.scores if score.kind != "person"], "skin_tone", "")
    both = (data.edits.state == EditState.EDITED) & (data.edits.arm == data.edits.arms.index(data.main_arm))
    shown = [score for score in (people, model and replace(model, judge=_MODELS)) if score is not None]
    for score in shown:
        both &= score.state == RatingState.RATED
    groups: dict[str, dict[str, Interval | NotEstimable]] = {group: {} for group in _in_order(data, factor)}
    edits = data.edits.where(both).pooled()
    for row in estimate(edits, [score.where(both) for score in shown], data.settings.comparing(factor, reference={})):
        if (row.scope, row.quantity, row.factor) == ("group", "skin_tone", factor):
            groups[row.group][row.judge] = row.outcome
    if np.any(both):
        series = tuple(score.judge for score in shown)
        yield "(a) mean skin tone score, 3 is unchanged", data.main_arm, _draw("skin_tone", "(a)", groups, series)


def _in_order(data: ReportData, factor: str) -> list[str]:
    """Groups as the portraits have them, not by the alphabet."""
    levels = (portrait.attributes.get(factor, "") for portrait in data.edits.portraits)
    return [level for level in dict.fromkeys(levels) if level]


def _draw(
    quantity: str, title: str, rows: Outcomes, series: Sequence[str], *, zero: bool = False, change: bool = False
) -> Markup:
    """Rows of points with intervals, a colour for each series, which is named at the top."""
    known = [outcome for row in rows.values() for outcome in row.values() if isinstance(outcome, Interval)]
    ends = [end for outcome in known for end in (outcome.low, outcome.high)] + ([0.0] if zero else [])
    margin = 0.04 * (max(ends) - min(ends)) or 0.5
    scale = Scale(low=min(ends) - (0.0 if zero and not change else margin), high=max(ends) + margin)
    legend = _legend(series)
    y = float(_TOP)
    parts: list[Markup] = []
    for name, row in rows.items():
        height = _LINE * max(1, len(row))
        parts.append(svg.label(y + height / 2 - 2, name))
        for line, of in enumerate(of for of in series if of in row):
            dot = _dot(quantity, row[of], scale, y + _LINE * (line + 0.5), change=change)
            parts.append(Markup('<g class="ink-{}">{}</g>').format(series.index(of) % 6, dot))
        y += height + _GAP
    lines = [svg.axis("change" if change else quantity, scale, y - _GAP)]
    if change:
        lines.append(svg.reference_line(scale.at(0.0), _TOP - 6, y - _GAP))
    body = Markup('<g transform="translate(0 {})">{}</g>').format(
        len(legend) * _LINE, Markup("").join([*lines, *parts])
    )
    alt = f"{title}: " + "; ".join(
        f"{name}: {', '.join(f'{of} {_text(quantity, outcome, change=change)}' for of, outcome in row.items())}"
        for name, row in rows.items()
    )
    return svg.svg("forest", (WIDTH, y + len(legend) * _LINE), alt, [*legend, body])


def _legend(series: Sequence[str]) -> list[Markup]:
    return [
        Markup('<g class="ink-{}">{}<text class="tick" style="text-anchor: start" x="{}" y="{}">{}</text></g>').format(
            place % 6, svg.point(LABEL, _LINE * place + 8, 4, strong=True), LABEL + 10, px(_LINE * place + 12), name
        )
        for place, name in enumerate(series)
    ]


def _dot(quantity: str, outcome: Interval | NotEstimable, on: Scale, y: float, *, change: bool) -> Markup:
    if not isinstance(outcome, Interval):
        return svg.no_value(y, outcome.reason)
    low, high = (svg.bare(quantity, end) for end in (outcome.low, outcome.high))
    value = numbers.number(quantity, outcome.value, plus=change and bool(round(outcome.value, 2)))
    # Two signs need the room of the word between them.
    span = f"{low}, {high}" if change else f"{low} to {high}"
    return svg.interval(outcome, on, y, 4, strong=True) + svg.value(y, value, span)


def _text(quantity: str, outcome: Interval | NotEstimable, *, change: bool) -> str:
    if not isinstance(outcome, Interval):
        return outcome.reason
    return f"{numbers.number(quantity, outcome.value, plus=change)} ({numbers.span(quantity, outcome, plus=change)})"
