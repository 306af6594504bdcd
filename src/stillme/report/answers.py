"""One verdict per question: yes, no, or cannot tell with this audit.

A "no" needs a gap that is larger than matters, or a failure rate surely above its smallest effect. A "yes" needs every
gap smaller than matters: finding no difference is not enough. docs/verdicts.md lists every sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Estimate, Interval
from stillme.estimates import EditState, RatingState, headlines, mark, numbers
from stillme.estimates.headlines import FAILED_CONTROL_PAIRS, MIN_UNITS, smallest_effect
from stillme.report import into_what, sentences
from stillme.report.data import ReportData
from stillme.report.gaps import MOSTLY_MADE, Gap, deciding, not_compared
from stillme.report.happened import rows_to_rate, share_made

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
    """Did the edits happen, and for everyone? Did people change in ways no one asked for?"""
    return (
        _Question(data, [gap for gap in gaps if gap.is_erasure], erasure=True).answer(),
        _Question(data, [gap for gap in gaps if not gap.is_erasure], erasure=False).answer(),
    )


class _Question:
    def __init__(self, data: ReportData, gaps: Sequence[Gap], *, erasure: bool) -> None:
        self._data = data
        self._gaps = gaps
        self._erasure = erasure
        self._rows: NDArray[np.bool_] = data.edits.arm == _code(data.edits.arms, data.main_arm)
        decides = deciding(data)
        self._numbers = [
            one
            for one in data.headlines
            if (one.judge, one.quantity) in decides and (one.quantity in headlines.EDIT_MADE) == erasure
        ]

    def answer(self) -> Answer:
        verdict, said = self._verdict()
        question = (
            "Did the edits happen, and for everyone?"
            if self._erasure
            else "Did people stay the same, and everyone alike?"
        )
        return Answer(question=question, verdict=verdict, sentences=said, remarks=tuple(self._remarks()))

    def _verdict(self) -> tuple[Verdict, tuple[str, ...]]:
        if nothing := self._nothing_edited():
            return nothing
        reasons = [*self._not_edited(), *self._failures()]
        appear = [] if self._erasure else self._into_what()
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
                "Whether an edit did what was asked was not scored: add a model to [[judges]], or raters with "
                "`stillme study`."
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
                yield sentences.gap(gaps[editor], self._note(gaps[editor].worst))
        for editor in self._data.edits.editors:
            rates = (one for one in self._numbers if _is_failure_of(one, editor) and editor not in gaps)
            if (rate := next((one for one in rates if _low(one) > self._smallest(one)), None)) is not None:
                yield sentences.everyone(rate, self._note(rate))

    def _into_what(self) -> list[tuple[float, str]]:
        """Shifts towards the reference group that are larger than matters, the strongest first."""
        return sorted(into_what.findings(self._data), reverse=True)

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
            yield sentences.no_finding(clear, max(gaps, key=lambda gap: gap.interval.high))

    def _doubts(self) -> Iterator[str]:
        """Why neither yes nor no can be said, the most important first."""
        if unrated := self._unrated():
            yield unrated
        yield from (sentences.size_unclear(gap, self._note(gap.worst)) for gap in self._gaps if gap.is_significant)
        silent = not_compared(self._data)
        own = {place: why for place, why in silent.items() if (place[0] in headlines.EDIT_MADE) == self._erasure}
        yield from sentences.not_compared(own)
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
            yield sentences.could_be_missed(max(open_gaps, key=_reach))
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


def _reach(gap: Gap) -> float:
    """The upper limit, in units of the smallest effect."""
    return gap.interval.high / (gap.finding.smallest_effect or 1.0)


def _counted(states: NDArray[np.int32]) -> Counter[int]:
    return Counter({state: count for state, count in enumerate(np.bincount(states).tolist()) if count})


def _code(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1
