"""How the judges behave: what they add to the numbers by themselves, in sentences, tables and drawings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stillme import numbers
from stillme.estimates import holm
from stillme.estimates.behaviour import Behaviour
from stillme.report import differences
from stillme.report.data import ReportData
from stillme.report.differences import Row, Table, cell
from stillme.results.behaviour import MUCH_MISSING, JudgeBehaviour, listed
from stillme.results.model_names import drifted
from stillme.sentinels.reading import EVERYONE, TONES, KnownAnswers
from stillme.types import Interval

_DIFFERS = {"changed": "differs", "over_one": "by more than a point"}
_POSITION = {"edited_first": "edited first − source first", **_DIFFERS}
_REPEATS = {"sd": "SD of repeats", "identical": "identical", "within_one": "within a point"}
_DISCLOSURE = {"told_minus_blind": "told − blind", **_DIFFERS}
_SIGNED = ("edited_first", "told_minus_blind")
_IN_POINTS = (*_SIGNED, "sd")

Drawing = tuple[str, str, Markup]
"""Axis, judge, and a drawing by group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One way in which judges add something of their own."""

    title: str
    lead: str
    table: Table
    by_group: Table | None = None
    drawings: tuple[Drawing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourSection:
    """What the page shows of the judges' behaviour."""

    warnings: tuple[str, ...]
    sentences: tuple[str, ...]
    habits: tuple[Habit, ...]
    factor: str
    """The attribute that forms the groups shown."""


def behaviour_section(data: ReportData) -> BehaviourSection | None:
    """The section; None where no model judges, or nothing is known of it."""
    known = data.behaviour
    if known is None:
        return None
    factor = data.settings.factors[0] if data.settings.factors else ""
    section = BehaviourSection(
        warnings=(
            *(answers.alarm for answers in known.known_answers if answers.alarm),
            *known.warnings,
            *(f"{judge}." for judge in drifted(known.models)),
        ),
        sentences=tuple(_sentences(known)),
        habits=tuple(_habits(known, factor)),
        factor=numbers.factor_name(factor),
    )
    return section if section.warnings or section.sentences else None


# -- sentences -------------------------------------------------------------------------------------------------------


def _sentences(known: JudgeBehaviour) -> Iterator[str]:
    yield from (str(answers) for answers in known.known_answers)
    yield from _combined(known)
    for judge, shifts in _by_judge(known.position, "edited_first").items():
        yield _shift(shifts, f"With the edited picture first, {judge} rates", "than with the source first", "the order")
    for judge, spreads in _by_judge(known.repeatability, "sd").items():
        yield _repeated(judge, spreads, known.repeatability)
    for judge, shifts in _by_judge(known.disclosure, "told_minus_blind").items():
        yield _shift(shifts, f"Told the portraits’ labels, {judge} rates", "than blind", "being told")
        yield from _unequal(judge, known)
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
        blind = [judge for judge in combination.judges if judge not in combination.told]
        yield (
            f"{listed(combination.told)} {'is' if len(combination.told) == 1 else 'are'} told the portraits’ labels, "
            f"{listed(blind)} {'is' if len(blind) == 1 else 'are'} blind: the combined scores mix both."
        )
    if known.incomplete:
        axis = max(known.incomplete, key=lambda name: known.incomplete[name])
        if known.incomplete[axis] == 0:
            yield "Every combined score rests on all its judges."
        elif known.incomplete[axis] <= MUCH_MISSING:
            share = numbers.percent(known.incomplete[axis])
            yield f"Up to {share} of the combined scores lack a judge (most for “{numbers.title(axis)}”)."


def _shift(shifts: Sequence[Behaviour], lead: str, tail: str, cause: str) -> str:
    """The largest shift of one judge, and whether chance explains it."""
    values = {shift.axis: shift.outcome for shift in shifts if isinstance(shift.outcome, Interval)}
    axis = max(values, key=lambda name: abs(values[name].value))
    largest, title = values[axis], numbers.title(axis)
    limits = f"{differences.points(largest.low)} to {differences.points(largest.high)}"
    if all(interval.low <= 0 <= interval.high for interval in values.values()):
        return (
            f"{lead} no axis clearly differently {tail}; the largest shift is {differences.points(largest.value)} "
            f"({limits}), for “{title}”."
        )
    if largest.low <= 0 <= largest.high:
        clear = {name: interval for name, interval in values.items() if not interval.low <= 0 <= interval.high}
        return _shift([shift for shift in shifts if shift.axis in clear], lead, tail, cause)
    direction = "higher" if largest.value > 0 else "lower"
    size = numbers.decimal(abs(largest.value), 2)
    return f"{lead} “{title}” {size} points {direction} {tail} ({limits}): {cause} alone does that."


def _repeated(judge: str, spreads: Sequence[Behaviour], known: Sequence[Behaviour]) -> str:
    values = {spread.axis: spread.outcome.value for spread in spreads if isinstance(spread.outcome, Interval)}
    axis = max(values, key=lambda name: values[name])
    same = next(
        part.outcome.value
        for part in known
        if (part.judge, part.axis, part.measure, part.scope) == (judge, axis, "identical", "all")
        if isinstance(part.outcome, Interval)
    )
    return (
        f"Asked the same again, {judge} varies most on “{numbers.title(axis)}”: by {numbers.decimal(values[axis], 2)} "
        f"points (SD), with the identical score for {numbers.percent(same, 0)} of the edits."
    )


def _unequal(judge: str, known: JudgeBehaviour) -> Iterator[str]:
    """Where the labels shift groups unequally, they are part of the gaps."""
    tested = {
        (shift.axis, shift.factor): shift.groups_p
        for shift in known.disclosure
        if shift.judge == judge and shift.measure == "told_minus_blind" and shift.groups_p is not None
    }
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    unequal = [place for place, p in adjusted.items() if p < 1 - known.confidence]
    if unequal:
        cells = listed([f"“{numbers.title(axis)}” by {numbers.factor_name(factor)}" for axis, factor in unequal])
        yield f"The labels shift groups by different amounts ({cells}), so for {judge} they are part of the gaps."


# -- tables and drawings ---------------------------------------------------------------------------------------------


def _habits(known: JudgeBehaviour, factor: str) -> Iterator[Habit]:
    if known.known_answers:
        yield Habit(
            title="Hidden known answers",
            lead="Pairs whose true change is known were hidden among the questions. Right answers in this run, by the "
            "skin tone of the subject, beside what calibration found or, without one, asks for.",
            table=_known_table(known.known_answers),
        )
    if known.position:
        yield Habit(
            title="Which picture comes first",
            lead="Each pair was judged in both orders. The scores are the mean of both, so a constant shift cancels; "
            "a score that the order moves by more than a point is worth little.",
            table=_table(known.position, _POSITION),
            drawings=tuple(_drawings(known.position, "edited_first", "edited first minus source first", factor)),
        )
    if known.repeatability:
        yield Habit(
            title="The same question again",
            lead="Repeats in the same order. What a judge does not repeat is noise, and hides small changes.",
            table=_table(known.repeatability, _REPEATS),
            by_group=_by_group(known.repeatability, "sd", factor),
        )
    if known.disclosure:
        yield Habit(
            title="Blind and told",
            lead="The same model, once blind and once told the portraits’ labels, on the edits that both rated.",
            table=_table(known.disclosure, _DISCLOSURE),
            drawings=tuple(_drawings(known.disclosure, "told_minus_blind", "told minus blind", factor)),
        )
    if known.coverage and any(known.incomplete.values()):
        yield Habit(
            title="Combined scores that lack a judge",
            lead="A judge that gives no score is never filled in. Edits that not every answering judge scored are left "
            "out of the combined numbers.",
            table=_coverage(known),
            by_group=_by_group(known.coverage, "incomplete", factor),
        )


def _table(behaviours: Sequence[Behaviour], heads: Mapping[str, str]) -> Table:
    rows: list[Row] = []
    everyone = [part for part in behaviours if part.scope == "all"]
    for axis, judge in dict.fromkeys((part.axis, part.judge) for part in everyone):
        by_measure = {part.measure: part for part in everyone if (part.axis, part.judge) == (axis, judge)}
        edits = max(part.edits for part in by_measure.values())
        cells = tuple(_cell(by_measure.get(measure)) for measure in heads)
        rows.append((numbers.title(axis), f"{judge}, {edits:,} edits", cells))
    return Table(heads=tuple(heads.values()), rows=tuple(rows))


_TRUTHS = {"changed": "changes noticed", "unchanged": "left alone where nothing changed"}


def _known_table(known: Sequence[KnownAnswers]) -> Table:
    rows: list[Row] = []
    for answers in known:
        cells = {(row.axis, row.truth, row.tone): row for row in answers.by_axis}
        for axis, truth in dict.fromkeys((axis, truth) for axis, truth, _ in cells):
            everyone = cells[axis, truth, EVERYONE]
            by_tone = (cells.get((axis, truth, tone)) for tone in TONES)
            wanted = numbers.percent(everyone.expected, 0)
            standard = wanted if everyone.calibrated else f"at least {wanted} asked for"
            shares = tuple(cell(row.outcome, share=True) if row else "–" for row in by_tone)
            detail = f"{answers.judge}, {_TRUTHS[truth]}, {everyone.answers:,} answers"
            rows.append((numbers.title(axis), detail, (*shares, standard)))
    return Table(heads=(*TONES, "calibration"), rows=tuple(rows))


def _coverage(known: JudgeBehaviour) -> Table:
    everyone = [part for part in known.coverage if part.scope == "all"]
    judges = tuple(dict.fromkeys(part.judge for part in everyone if part.measure == "no_score"))
    rows: list[Row] = []
    for axis in dict.fromkeys(part.axis for part in everyone):
        cells = {(part.measure, part.judge): part for part in everyone if part.axis == axis}
        ensemble = [next(cells[key] for key in cells if key[0] == measure) for measure in ("incomplete", "single")]
        lacking = [cells.get(("no_score", judge)) for judge in judges]
        rows.append(
            (numbers.title(axis), f"{ensemble[0].edits:,} edits", tuple(_cell(part) for part in (*ensemble, *lacking)))
        )
    heads = ("lacks a judge", "only one judge", *(f"no score by {judge}" for judge in judges))
    return Table(heads=heads, rows=tuple(rows))


def _by_group(behaviours: Sequence[Behaviour], measure: str, factor: str) -> Table | None:
    parts = [
        part for part in behaviours if (part.measure, part.scope, part.factor) == (measure, "group", factor) and factor
    ]
    groups = sorted({part.group for part in parts})
    by_cell = {(part.axis, part.judge, part.group): part for part in parts}
    rows = tuple(
        (numbers.title(axis), judge, tuple(_cell(by_cell.get((axis, judge, group))) for group in groups))
        for axis, judge in dict.fromkeys((part.axis, part.judge) for part in parts)
    )
    return Table(heads=tuple(groups), rows=rows) if rows else None


def _drawings(behaviours: Sequence[Behaviour], measure: str, what: str, factor: str) -> Iterator[Drawing]:
    parts = [part for part in behaviours if part.measure == measure and part.scope in ("all", "group")]
    for axis, judge in dict.fromkeys((part.axis, part.judge) for part in parts):
        of_judge = [part for part in parts if (part.axis, part.judge) == (axis, judge)]
        everyone = [part for part in of_judge if part.scope == "all"]
        groups = [part for part in of_judge if part.scope == "group" and part.factor == factor]
        if groups and any(
            part.outcome.high > part.outcome.low for part in groups if isinstance(part.outcome, Interval)
        ):
            rows = [(part.group, part.outcome) for part in (*everyone, *groups)]
            yield numbers.title(axis), judge, differences.draw(axis, f"{judge}, {what}", rows)


def _cell(part: Behaviour | None) -> str:
    if part is None:
        return "–"
    return cell(part.outcome, share=part.measure not in _IN_POINTS, plus=part.measure in _SIGNED)


def _by_judge(behaviours: Sequence[Behaviour], measure: str) -> Mapping[str, list[Behaviour]]:
    """For everyone, what can be estimated of a measure."""
    by_judge: dict[str, list[Behaviour]] = {}
    for part in behaviours:
        if part.measure == measure and part.scope == "all" and isinstance(part.outcome, Interval):
            by_judge.setdefault(part.judge, []).append(part)
    return by_judge
