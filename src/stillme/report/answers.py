"""One verdict per question: yes within a margin, no, or cannot tell with this audit.

"Yes" needs evidence of being alike: every group's contrast within the margin. Finding no difference is not enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme import numbers
from stillme.estimates import Disparity, EditState, RatingState, headlines, mark
from stillme.report.data import ReportData
from stillme.report.gaps import MOSTLY_MADE, Gap, deciding
from stillme.report.happened import rows_to_rate, share_made
from stillme.types import Estimate, Interval

MARGIN = 0.05
"""Differences of rates up to this count as none, and so do rates of edits that were not made or changed a person."""

Verdict = Literal["yes", "no", "cannot tell"]

_SENTENCES = 2
"""What is named in a verdict; the cards below have the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A question, its verdict, and what the verdict rests on."""

    question: str
    verdict: Verdict
    sentences: tuple[str, ...]


def answers(data: ReportData, gaps: Sequence[Gap]) -> tuple[Answer, Answer]:
    """Did the edits happen, and for everyone? Did people stay themselves, and everyone alike?"""
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
            for one in data.shown
            if (one.judge, one.quantity) in decides and (one.quantity in headlines.EDIT_MADE) == erasure
        ]

    def answer(self) -> Answer:
        verdict, sentences = self._verdict()
        question = (
            "Did the edits happen, and for everyone?"
            if self._erasure
            else "Did people stay themselves, and everyone alike?"
        )
        judged = [one for one in self._numbers if one.judge and isinstance(one.outcome, Interval)]
        if judged and all(mark(self._data.standing, one.judge, one.quantity) for one in judged):
            sentences = (*sentences, "These judges are not calibrated, so this is a first look.")
        return Answer(question=question, verdict=verdict, sentences=tuple(sentences))

    def _verdict(self) -> tuple[Verdict, tuple[str, ...]]:
        if nothing := self._nothing_edited():
            return nothing
        reasons = [*self._not_edited(), *self._failures()]
        # Rows that are still to come need not be like those that came first.
        if unfinished := self._unfinished():
            return "cannot tell", (unfinished, *(f"So far: {reason}" for reason in reasons[:1]))
        if reasons:
            more = len(reasons) - _SENTENCES
            rest = (f"{more} more finding{'' if more == 1 else 's'} below.",) if more > 0 else ()
            return "no", (*reasons[:_SENTENCES], *rest)
        if doubts := list(self._doubts()):
            return "cannot tell", (doubts[0],)
        below = numbers.percent(MARGIN, 0)
        alike = f"Within ±{100 * MARGIN:g} points: groups are alike, and every failure rate is below {below}."
        return "yes", (alike, *self._untold())

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
            # People rate a sample; whoever else began is expected to rate every edit.
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
        """Gaps beyond chance, one of each editor; else rates that are surely above the margin."""
        above: dict[str, list[str]] = {}
        for editor in self._data.edits.editors:
            gap = next((gap for gap in self._gaps if gap.beyond_chance and gap.disparity.editor == editor), None)
            if gap is not None:
                yield _gap_sentence(gap)
                continue
            rates = (one for one in self._numbers if one.editor == editor and _is_failure_rate(one))
            rate = next((one for one in rates if _low(one) > MARGIN), None)
            if rate is not None and isinstance(rate.outcome, Interval):
                value = numbers.number(rate.quantity, rate.outcome.value)
                above.setdefault(numbers.title(rate.quantity), []).append(f"{value} ({editor})")
        for title, values in above.items():
            yield f"{title}, everyone: {', '.join(values)}."

    def _doubts(self) -> Iterator[str]:
        """Why neither yes nor no can be said, the most important first."""
        if unrated := self._unrated():
            yield unrated
        yield from self._blind_spots()
        for editor, factor, group, states in self._groups():
            if not states[EditState.EDITED]:
                yield f"{editor} has no edit of {numbers.factor_name(factor)} {group}."
            elif not self._erasure and share_made(self._data, editor=editor, factor=factor, group=group) < MOSTLY_MADE:
                yield f"Most edits of {numbers.factor_name(factor)} {group} were not made ({editor})."
        if not any(len(self._data.edits.levels(factor)[0]) > 1 for factor in self._data.settings.factors):
            yield "There is only one group, so nobody can be compared."
        rates = [one for one in self._numbers if numbers.is_rate(one.quantity)]
        if not rates:
            yield f"No rate was measured, and only rates have a margin (±{100 * MARGIN:g} points)."
        if any(not isinstance(one.outcome, Interval) for one in rates if one.scope in ("group", "contrast")):
            yield "Some groups are too small to be estimated."
        wide = [
            one
            for one in rates
            if one.scope == "contrast" and isinstance(one.outcome, Interval) and not _alike(one.outcome)
        ]
        if wide:
            yield self._missed(rates)
        if high := [one for one in rates if _is_failure_rate(one) and _high(one) > MARGIN]:
            widest = max(high, key=_high)
            limit = numbers.number(widest.quantity, _high(widest))
            yield f"{numbers.title(widest.quantity)} may be as high as {limit} ({widest.editor})."

    def _missed(self, rates: Sequence[Estimate]) -> str:
        gaps = [one for one in rates if isinstance(one, Disparity) and isinstance(one.outcome, Interval)]
        if not gaps:
            return "The groups are too small to be compared."
        widest = max(gaps, key=_high)
        return (
            f"A gap of up to {numbers.points(_high(widest))} could be missed: {numbers.title(widest.quantity)} by "
            f"{numbers.factor_name(widest.factor)} ({widest.editor})."
        )

    def _unrated(self) -> str:
        """Why no judge's number decides, if none does."""
        if any(one.judge and isinstance(one.outcome, Interval) for one in self._numbers):
            return ""
        scores = [score for score in self._data.headline_scores if self._is_about(score.axis)]
        if not scores:
            return "Not rated: no judge was asked."
        edited = self._rows & (self._data.edits.state == EditState.EDITED)
        states = sum((_counted(score.state[edited]) for score in scores), Counter[int]())
        if states[RatingState.RATED]:
            return "No licensed judge rated this; `stillme calibrate` tests a judge on known changes."
        if states[RatingState.ABSTAINED]:
            return "Not rated: every judge abstained."
        return "Not rated: every judge failed." if states[RatingState.FAILED] else "Not rated yet."

    def _blind_spots(self) -> Iterator[str]:
        """Axes whose judges are licensed on some skin tones only: an editor may be unfair on just the others."""
        for axis, notes in self._unlicensed().items():
            if blind := next((note for note in notes if note.startswith(headlines.CANNOT_TELL)), ""):
                yield f"{numbers.title(axis)}: the judge {blind}."

    def _untold(self) -> Iterator[str]:
        """What a "yes" does not cover."""
        if untold := [numbers.title(axis) for axis in self._unlicensed()]:
            yield f"No judge is licensed for {', '.join(untold)}: a change there would not be seen."

    def _unlicensed(self) -> dict[str, list[str]]:
        """Axes of this question that were rated, but by no judge who is licensed for everybody; with their notes."""
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


def _gap_sentence(gap: Gap) -> str:
    factor, quantity = numbers.factor_name(gap.disparity.factor), gap.disparity.quantity
    ends = [gap.worst, *([gap.best] if gap.best else [])]
    values = (
        f"{numbers.number(quantity, end.outcome.value, plus=numbers.is_signed(quantity))} for {factor} {end.group}"
        for end in ends
        if isinstance(end.outcome, Interval)
    )
    return f"{gap.title}: {', '.join(values)} ({gap.disparity.editor})."


def _is_failure_rate(estimate: Estimate) -> bool:
    return estimate.scope == "all" and numbers.is_rate(estimate.quantity) and estimate.quantity != "success"


def _low(estimate: Estimate) -> float:
    return estimate.outcome.low if isinstance(estimate.outcome, Interval) else 0.0


def _high(estimate: Estimate) -> float:
    return estimate.outcome.high if isinstance(estimate.outcome, Interval) else 0.0


def _alike(contrast: Interval) -> bool:
    """Both one-sided tests pass, each at half of what the audit's confidence leaves."""
    return contrast.low >= -MARGIN and contrast.high <= MARGIN


def _counted(states: NDArray[np.int32]) -> Counter[int]:
    return Counter({state: count for state, count in enumerate(np.bincount(states).tolist()) if count})


def _code(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1
