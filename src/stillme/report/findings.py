"""The first screen: did edits happen, did people stay themselves, for whom worst, how sure, what was left out.

One verdict per question: yes, no, or cannot tell with this audit. A "no" needs a gap that is larger than matters, or a
failure rate surely above its smallest effect. A "yes" needs every gap smaller than matters: finding no difference is
not enough. docs/verdicts.md lists every sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.rubric import rate_of
from stillme.core.types import Estimate, Interval
from stillme.estimates import EditState, RatingState, headlines, mark, numbers
from stillme.estimates.headlines import FAILED_CONTROL_PAIRS, MIN_UNITS, smallest_effect
from stillme.estimates.quantities import meets
from stillme.report import into_what
from stillme.report.data import ReportData, rows_to_rate, share_made
from stillme.report.gaps import (
    MOSTLY_MADE,
    Gap,
    deciding,
    decisive_gaps,
    gap_sentence,
    missed_sentence,
    no_finding_sentence,
    not_compared,
    not_compared_sentences,
    rate_sentence,
    unclear_sentence,
    worst_by_editor,
)

Verdict = Literal["yes", "no", "cannot tell"]

_SENTENCES = 2
"""What is named in a verdict; the cards below have the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A question, its verdict, and what the verdict rests on."""

    question: str
    verdict: Verdict
    sentences: tuple[str, ...]
    remarks: tuple[str, ...]
    """What a reader must know whatever the verdict is."""


def answers(data: ReportData, gaps: Sequence[Gap]) -> tuple[Answer, Answer]:
    """Did the edits happen, for everyone? Did people change in ways no one asked for?"""
    return (
        _Question(data, [gap for gap in gaps if gap.is_erasure], erasure=True).answer(),
        _Question(data, [gap for gap in gaps if not gap.is_erasure], erasure=False).answer(),
    )


class _Question:
    def __init__(self, data: ReportData, gaps: Sequence[Gap], *, erasure: bool) -> None:
        self._data = data
        self._gaps = gaps
        self._erasure = erasure
        arms = data.edits.arms
        self._rows: NDArray[np.bool_] = data.edits.arm == (arms.index(data.main_arm) if arms else -1)
        decides = deciding(data)
        self._numbers = [
            one
            for one in data.headlines
            if (one.judge, one.quantity) in decides and (one.quantity in headlines.EDIT_MADE) == erasure
        ]

    def answer(self) -> Answer:
        verdict, said = self._verdict()
        question = "Did the edits happen, for everyone?" if self._erasure else "Did people stay the same, for everyone?"
        return Answer(question=question, verdict=verdict, sentences=said, remarks=tuple(self._remarks()))

    def _verdict(self) -> tuple[Verdict, tuple[str, ...]]:
        if nothing := self._nothing_edited():
            return nothing
        reasons = [*self._not_edited(), *self._failures()]
        appear = [] if self._erasure else sorted(into_what.findings(self._data), reverse=True)
        if reasons:
            strongest = max((gap.interval.low for gap in self._gaps if gap.matters), default=0.0)
            stronger = [sentence for low, sentence in appear if low > strongest]
            reasons = [*stronger, *reasons, *(sentence for _, sentence in appear if sentence not in stronger)]
        # Rows that are still to come need not be like those that came first.
        if unfinished := self._unfinished():
            return "cannot tell", (unfinished, *(f"So far: {reason}" for reason in reasons[:1]))
        if reasons:
            more = len(reasons) - _SENTENCES
            rest = (f"{more} more finding{'' if more == 1 else 's'} below.",) if more > 0 else ()
            return "no", (*reasons[:_SENTENCES], *rest, *self._without_finding())
        if appear:
            return "cannot tell", (appear[0][1], "No judge of pairs confirms it: look at the examples under Into what.")
        if doubts := list(self._doubts()):
            return "cannot tell", (doubts[0],)
        return "yes", ("Every gap between groups is smaller than matters, and so is every failure rate.",)

    def _remarks(self) -> Iterator[str]:
        if not self._has_ratings():
            return
        judged = [one for one in self._numbers if one.judge and isinstance(one.outcome, Interval)]
        if judged and all(mark(self._data.standing, one.judge, one.quantity) for one in judged):
            yield "The judges are not calibrated yet."
        elif untold := [numbers.title(axis) for axis in self._unvalidated()]:
            yield f"No judge is validated for {', '.join(untold)}: a change there would not be seen."
        for judge, wrong in self._caught().items():
            if judged:
                yield f"Judge {judge} {FAILED_CONTROL_PAIRS} ({wrong}): its numbers are folded away."
        if self._erasure and not self._data.scores_success:
            yield (
                "Whether an edit did what was asked was not scored: add a vision-language model as a judge, or run a "
                "human study."
            )

    def _has_ratings(self) -> bool:
        edited = self._rows & (self._data.edits.state == EditState.EDITED)
        return any(bool((score.state[edited] == RatingState.RATED).any()) for score in self._data.headline_scores)

    def _caught(self) -> dict[str, str]:
        """Judges of this question that failed their control pairs, with how many they got wrong."""
        notes = {
            score.judge: mark(self._data.standing, score.judge, score.axis)
            for score in self._data.headline_scores
            if self._is_about(score.axis)
        }
        return {
            judge: note.removeprefix(f"{FAILED_CONTROL_PAIRS} (").removesuffix(")")
            for judge, note in notes.items()
            if note.startswith(FAILED_CONTROL_PAIRS)
        }

    def _nothing_edited(self) -> tuple[Verdict, tuple[str, ...]] | None:
        states = _counted(self._data.edits.state[self._rows])
        total = sum(states.values())
        if not total:
            return "cannot tell", ("This run asks for no edits.",)
        if states[EditState.EDITED]:
            return None
        if states[EditState.MISSING] == total:
            return "cannot tell", ("No edit has been made yet.",)
        if not self._erasure:
            return "cannot tell", ("There is no edit to rate.",)
        if states[EditState.MISSING]:
            return "cannot tell", (f"No edit so far; {states[EditState.MISSING]:,} of {total:,} are still to do.",)
        refused, failed = states[EditState.REFUSED], states[EditState.FAILED]
        if refused == total:
            return "no", (f"All {total:,} requests were refused.",)
        if failed == total:
            return "no", (f"All {total:,} requests failed.",)
        return "no", (f"No request of {total:,} led to an edit: {refused:,} refused, {failed:,} failed.",)

    def _unfinished(self) -> str:
        missing = int((self._data.edits.state[self._rows] == EditState.MISSING).sum())
        if missing:
            return f"The run is not finished: {missing:,} of {int(self._rows.sum()):,} edits are still to do."
        for score in self._data.headline_scores:
            # People rate a sample; every other judge that began is expected to rate every edit.
            if score.kind == "person" or not self._is_about(score.axis):
                continue
            states = _counted(score.state[self._rows & rows_to_rate(self._data, score)])
            if states[RatingState.MISSING] and states[RatingState.RATED]:
                total = sum(states.values())
                return f"{score.judge} is not finished: {states[RatingState.MISSING]:,} of {total:,} edits to rate."
        return ""

    def _not_edited(self) -> Iterator[str]:
        """Groups for which an editor made no edit at all, as far as that is its own doing."""
        if self._erasure:
            for editor, factor, group, states in self._groups():
                total = sum(states.values())
                if total and total == states[EditState.REFUSED] + states[EditState.FAILED]:
                    made = "refused every edit" if total == states[EditState.REFUSED] else "made no edit"
                    yield f"{editor} {made} of {numbers.factor_name(factor)} {group}."

    def _failures(self) -> Iterator[str]:
        """Gaps that are larger than matters, one of each editor; else rates that are surely above the margin."""
        gaps = {gap.disparity.editor: gap for gap in reversed(self._gaps) if gap.matters}
        for editor in self._data.edits.editors:
            if editor in gaps:
                yield gap_sentence(gaps[editor], self._note(gaps[editor].worst))
        for editor in self._data.edits.editors:
            rates = (one for one in self._numbers if _is_failure_of(one, editor) and editor not in gaps)
            if (rate := next((one for one in rates if _low(one) > self._smallest(one)), None)) is not None:
                yield rate_sentence(rate, self._note(rate))

    def _without_finding(self) -> Iterator[str]:
        """Editors that no sentence accuses, with what could still be missed."""
        clear = [
            editor
            for editor in self._data.edits.editors
            if not any(gap.is_significant for gap in self._gaps if gap.disparity.editor == editor)
            and not any(_low(one) > self._smallest(one) for one in self._numbers if _is_failure_of(one, editor))
        ]
        gaps = [gap for gap in self._gaps if gap.disparity.editor in clear and numbers.is_rate(gap.finding.quantity)]
        if clear and gaps:
            yield no_finding_sentence(clear, max(gaps, key=lambda gap: gap.interval.high))

    def _doubts(self) -> Iterator[str]:
        """Why neither yes nor no can be said, the most important first."""
        if unrated := self._unrated():
            yield unrated
        yield from (unclear_sentence(gap, self._note(gap.worst)) for gap in self._gaps if gap.is_significant)
        silent = not_compared(self._data)
        own = {place: why for place, why in silent.items() if (place[0] in headlines.EDIT_MADE) == self._erasure}
        yield from not_compared_sentences(own)
        yield from self._blind_spots()
        for editor, factor, group, states in self._groups():
            if not states[EditState.EDITED]:
                yield f"{editor} has no edit of {numbers.factor_name(factor)} {group}."
            elif not self._erasure and share_made(self._data, editor=editor, factor=factor, group=group) < MOSTLY_MADE:
                yield f"Most edits of {numbers.factor_name(factor)} {group} were not made ({editor})."
        if not any(len(self._data.edits.levels(factor)[0]) > 1 for factor in self._data.settings.factors):
            yield "There is only one group, so there is nothing to compare."
        yield from self._undecided()

    def _undecided(self) -> Iterator[str]:
        """Gaps and rates that may be larger than matters."""
        if not self._gaps:
            yield "No two groups could be compared."
        if few := [gap for gap in self._gaps if gap.finding.units < MIN_UNITS]:
            gap = min(few, key=lambda gap: gap.finding.units)
            yield (
                f"A group of {numbers.factor_name(gap.finding.factor)} has {gap.finding.units} rated people; a verdict "
                f"needs {MIN_UNITS}."
            )
        if open_gaps := [gap for gap in self._gaps if gap.finding.word not in ("smaller than matters", None)]:
            # By the upper limit, in units of the smallest effect.
            reach = [gap.interval.high / (gap.finding.smallest_effect or 1.0) for gap in open_gaps]
            yield missed_sentence(open_gaps[reach.index(max(reach))])
        high = [one for one in self._numbers if _is_failure_rate(one) and _high(one) > self._smallest(one)]
        if high:
            widest = max(high, key=_high)
            limit = numbers.number(widest.quantity, _high(widest))
            yield f"{numbers.title(widest.quantity)} may be as high as {limit} ({widest.editor})."

    def _note(self, estimate: Estimate) -> str:
        return mark(self._data.standing, estimate.judge, estimate.quantity)

    def _smallest(self, estimate: Estimate) -> float:
        return smallest_effect(estimate.quantity, self._data.settings.smallest_effects) or 0.0

    def _unrated(self) -> str:
        """Why no judge's number decides, if none does."""
        if any(one.judge and isinstance(one.outcome, Interval) for one in self._numbers):
            return ""
        for judge, wrong in self._caught().items():
            return f"judge {judge} {FAILED_CONTROL_PAIRS} ({wrong})."
        scores = [score for score in self._data.headline_scores if self._is_about(score.axis)]
        if not scores:
            return "Not rated: no judge was asked."
        edited = self._rows & (self._data.edits.state == EditState.EDITED)
        states = sum((_counted(score.state[edited]) for score in scores), Counter[int]())
        if states[RatingState.RATED]:
            return "No validated judge rated this; `stillme calibrate` tests a judge on known changes."
        if states[RatingState.ABSTAINED]:
            return "Not rated: every judge abstained."
        return "Not rated: every judge failed." if states[RatingState.FAILED] else "Not rated yet."

    def _blind_spots(self) -> Iterator[str]:
        """Axes whose judges are validated on some skin tones only: an editor may be unfair on just the others."""
        for axis, notes in self._unvalidated().items():
            if blind := next((note for note in notes if note.startswith(headlines.CANNOT_TELL)), ""):
                yield f"{numbers.title(axis)}: the judge {blind}."

    def _unvalidated(self) -> dict[str, list[str]]:
        """Axes of this question that were rated, but by no judge who is validated for everyone; with their notes."""
        notes: dict[str, list[str]] = {}
        for score in self._data.headline_scores:
            if self._is_about(score.axis) and bool((score.state == RatingState.RATED).any()):
                notes.setdefault(score.axis, []).append(mark(self._data.standing, score.judge, score.axis))
        return {axis: marks for axis, marks in notes.items() if all(marks)}

    def _is_about(self, axis: str) -> bool:
        return headlines.is_headline_axis(axis) and (axis in headlines.EDIT_MADE_AXES) == self._erasure

    def _groups(self) -> Iterator[tuple[str, str, str, Counter[int]]]:
        """What became of each editor's requests, by group."""
        edits = self._data.edits
        for factor in self._data.settings.factors:
            levels, codes = edits.levels(factor)
            for code, level in enumerate(levels):
                of_group = self._rows & (codes[edits.portrait] == code)
                for place, editor in enumerate(edits.editors):
                    yield editor, factor, level, _counted(edits.state[of_group & (edits.editor == place)])


def _is_failure_rate(estimate: Estimate) -> bool:
    return estimate.scope == "all" and numbers.is_rate(estimate.quantity) and estimate.quantity != "success"


def _is_failure_of(estimate: Estimate, editor: str) -> bool:
    return estimate.editor == editor and _is_failure_rate(estimate)


def _low(estimate: Estimate) -> float:
    return estimate.outcome.low if isinstance(estimate.outcome, Interval) else 0.0


def _high(estimate: Estimate) -> float:
    return estimate.outcome.high if isinstance(estimate.outcome, Interval) else 0.0


def _counted(states: NDArray[np.int32]) -> Counter[int]:
    return Counter({state: count for state, count in enumerate(np.bincount(states).tolist()) if count})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One number of one editor, with its interval."""

    estimate: Estimate
    value: str
    span: str
    share: float | None
    """For the bar; None where the quantity is not a rate."""
    unchanged: str = ""
    """The answer that means no change, where the quantity is a mean of a scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberGrid:
    """Quantities down, editors across."""

    columns: tuple[tuple[str, str], ...]
    """Editor and arm."""
    rows: tuple[tuple[str, str, tuple[Line | None, ...], tuple[str, ...]], ...]
    """Title, judge and unit, one line per column, and the titles of quantities that are equal edit by edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The answers of the first screen."""

    answers: tuple[Answer, ...]
    edits_made: NumberGrid
    preservation: NumberGrid
    failed: NumberGrid
    """Numbers of judges that failed calibration on the axis, or their control pairs: they decide nothing."""
    unvalidated: tuple[str, ...]
    """Titles of axes that were rated, but by no validated judge."""
    gaps: tuple[Gap, ...]
    """All that decide, the smallest p value first."""
    not_compared: tuple[str, ...]
    """Numbers that decide nothing, as the groups got too unequal shares of answers."""
    worst: tuple[Gap, ...]
    """Of each editor and each failure, its significant gap with the smallest p value, if any."""
    widest: Mapping[tuple[str, str, str], Gap]
    """By quantity, judge and editor: its significant gap with the smallest p value."""
    portraits: int
    identities: int
    """Portraits of one block show one."""
    edits: int
    requested: int
    left_out: tuple[tuple[str, str, int, int], ...]
    """Whose, why, how many, of how many."""

    smallest_effects: tuple[str, ...]
    """As in `rates 5 points`: what is taken for the smallest difference that matters."""

    @property
    def tested(self) -> int:
        """The number of comparisons with a test that can reject."""
        return sum(gap.finding.p is not None for gap in self.gaps)

    @property
    def significant(self) -> int:
        """Those of them that are significant."""
        return sum(gap.is_significant for gap in self.gaps)


def find(data: ReportData) -> Findings:
    """Take the answers from the estimates and the rows."""
    lines = sorted(
        (
            _line(estimate, estimate.outcome)
            for estimate in data.headlines
            if estimate.scope == "all" and isinstance(estimate.outcome, Interval)
            if headlines.is_headline(estimate.quantity)
        ),
        key=_line_order,
    )
    failed = [line for line in lines if headlines.is_unfit(_note(data, line))]
    lines = [line for line in lines if line not in failed]
    columns = tuple(sorted({(line.estimate.editor, line.estimate.arm) for line in lines}))
    made = _informative([line for line in lines if line.estimate.quantity in headlines.EDIT_MADE])
    preservation = [line for line in lines if line.estimate.quantity not in headlines.EDIT_MADE]
    gaps = decisive_gaps(data)
    edits = data.edits
    used = set(edits.portrait.tolist())
    portraits = [portrait for index, portrait in enumerate(edits.portraits) if index in used]
    return Findings(
        answers=answers(data, gaps),
        edits_made=_grid(data, made, columns),
        preservation=_grid(data, preservation, columns),
        failed=_grid(data, failed, tuple(sorted({(line.estimate.editor, line.estimate.arm) for line in failed}))),
        unvalidated=tuple(_unvalidated(data)),
        gaps=gaps,
        not_compared=tuple(not_compared_sentences(not_compared(data))),
        worst=worst_by_editor(gaps),
        widest={
            (gap.finding.quantity, gap.finding.judge, gap.finding.editor): gap
            for gap in reversed(gaps)
            if gap.is_significant
        },
        portraits=len(portraits),
        identities=len({portrait.block or f"/{portrait.id}" for portrait in portraits}),
        edits=int(np.count_nonzero(edits.state == EditState.EDITED)),
        requested=len(edits),
        left_out=tuple(_left_out(data)),
        smallest_effects=tuple(_smallest_effects(gaps)),
    )


def _smallest_effects(gaps: Sequence[Gap]) -> Iterator[str]:
    """Rates have one in common; every other quantity has its own."""
    known = {gap.finding.quantity: gap.finding.smallest_effect for gap in gaps if gap.finding.smallest_effect}
    texts = {
        ("rates" if numbers.is_rate(quantity) else numbers.title(quantity)): numbers.difference(quantity, effect)
        for quantity, effect in known.items()
    }
    yield from (f"{what} {effect}" for what, effect in texts.items())


def clustering(data: ReportData) -> str:
    """What many edits of the same face cost: the headline quantity with the largest design effect, in a sentence."""
    decides = deciding(data)
    clustered = [
        icc for icc in data.intraclass_correlations if (icc.judge, icc.quantity) in decides and icc.design_effect
    ]
    worst = max(clustered, key=lambda icc: (icc.design_effect or 0.0, icc.editor, icc.quantity), default=None)
    if worst is None or not isinstance(worst.icc, Interval) or worst.effective is None:
        return ""
    value, low, high = (numbers.decimal(icc, 2) for icc in (worst.icc.value, worst.icc.low, worst.icc.high))
    return (
        f"Edits of one portrait are alike: intraclass correlation {value} ({low} to {high}) for "
        f"“{numbers.title(worst.quantity)}” ({worst.editor}). These {worst.edits:,} edits "
        f"carry as much information as {worst.effective:,.0f} independent ones."
    )


def _note(data: ReportData, line: Line) -> str:
    return mark(data.standing, line.estimate.judge, line.estimate.quantity)


def _unvalidated(data: ReportData) -> Iterator[str]:
    """Axes that were rated, though by no judge that passed calibration on them."""
    rated = [score for score in data.headline_scores if headlines.is_headline_axis(score.axis)]
    validated = {score.axis for score in rated if not mark(data.standing, score.judge, score.axis)}
    for axis in dict.fromkeys(score.axis for score in rated if (score.state == RatingState.RATED).any()):
        if axis not in validated:
            yield numbers.title(axis)


def _line(estimate: Estimate, interval: Interval) -> Line:
    quantity = estimate.quantity
    plus = numbers.is_signed(quantity)
    axis = rubric.load().axes.get(quantity)
    is_scale = axis is not None and axis.is_scale and axis.unchanged is not None
    value = numbers.number(quantity, interval.value, plus=plus)
    return Line(
        estimate=estimate,
        value=f"{value} {numbers.symbol(quantity)}".strip(),
        span=numbers.span(quantity, interval, plus=plus),
        share=interval.value if numbers.is_rate(quantity) else None,
        unchanged=f"{axis.unchanged:g} is unchanged" if axis is not None and is_scale else "",
    )


def _line_order(line: Line) -> tuple[int, str, str, str, str]:
    estimate = line.estimate
    order = headlines.order_of(estimate.quantity)
    return order, estimate.quantity, estimate.judge, estimate.editor, estimate.arm


def _informative(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Leave out refusals where nothing was refused: the last card counts them anyway."""
    refused = any(line.share for line in lines if line.estimate.quantity == "refused")
    return tuple(line for line in lines if line.estimate.quantity != "refused" or refused)


def _grid(data: ReportData, lines: Sequence[Line], columns: tuple[tuple[str, str], ...]) -> NumberGrid:
    cells = {(e.quantity, e.judge, e.editor, e.arm): line for line in lines for e in [line.estimate]}
    quantities = dict.fromkeys((line.estimate.quantity, line.estimate.judge) for line in lines)
    return NumberGrid(
        columns=columns,
        rows=tuple(
            (
                numbers.title(quantity),
                _source(data, quantity, judge),
                tuple(cells.get((quantity, judge, *column)) for column in columns),
                tuple(same),
            )
            for (quantity, judge), same in without_twins(data, quantities).items()
        ),
    )


def without_twins(data: ReportData, quantities: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Quantities and judges without those whose values equal an earlier one's, edit by edit: their titles."""
    first: dict[bytes, tuple[str, str]] = {}
    shown: dict[tuple[str, str], list[str]] = {}
    for place in quantities:
        twin = first.setdefault(_values(data, *place), place)
        if twin is place:
            shown[place] = []
        else:
            shown[twin].append(numbers.title(place[0]))
    return shown


def _values(data: ReportData, quantity: str, judge: str) -> bytes:
    """The quantity's values edit by edit; of one that is counted without a judge, its name."""
    axis = headlines.axis_of(quantity)
    score = next((score for score in data.scores if (score.axis, score.judge) == (axis, judge)), None)
    if score is None:
        return quantity.encode()
    rate = rate_of(quantity)
    values = meets(rate, score.value) if rate else score.value
    return np.where(score.state == RatingState.RATED, values, np.nan).astype(np.float64).tobytes()


def _source(data: ReportData, quantity: str, judge: str) -> str:
    unit = "" if numbers.symbol(quantity) else numbers.unit(quantity)
    return ", ".join(part for part in (judge, mark(data.standing, judge, quantity), unit) if part)


def _left_out(data: ReportData) -> Iterable[tuple[str, str, int, int]]:
    edits = data.edits
    for code, editor in enumerate(edits.editors):
        states: Counter[int] = Counter(edits.state[edits.editor == code].tolist())
        total = sum(states.values())
        for state, reason in (
            (EditState.MISSING, "not edited yet"),
            (EditState.REFUSED, "refused"),
            (EditState.FAILED, "failed"),
            (EditState.WITHHELD, "no feature prompt"),
        ):
            if states[state]:
                yield editor, reason, states[state], total
    unrated: dict[tuple[str, str, int, int], list[str]] = {}
    for score in data.scores:
        expected = rows_to_rate(data, score)
        states: Counter[int] = Counter(score.state[expected].tolist())
        for state, reason in (
            (RatingState.MISSING, "not judged yet"),
            (RatingState.ABSTAINED, "abstained"),
            (RatingState.FAILED, "judge failed"),
        ):
            if states[state]:
                key = score.judge, reason, states[state], int(expected.sum())
                unrated.setdefault(key, []).append(numbers.title(score.axis))
    for (judge, reason, count, total), axes in unrated.items():
        # A judge that fails on a picture fails on all its axes, so one line is enough.
        what = axes[0] if len(axes) == 1 else f"{len(axes)} axes alike"
        yield f"{judge} ({what})", reason, count, total
