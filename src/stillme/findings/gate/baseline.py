"""No worse than before: the same requests under an earlier editor, and a margin set beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from stillme import estimates
from stillme.audit.rules import Rule
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.rubric import axis_of
from stillme.core.types import Arm, Interval, NotEstimable
from stillme.estimates import EditState, RatingState, Scores, numbers
from stillme.findings.compare import (
    Change,
    ChosenEditor,
    Comparison,
    GapChange,
    Matched,
    Worse,
    compare,
    identical_edits,
    match,
    pick,
    worse_when,
)
from stillme.findings.gate.verdicts import (
    Check,
    Decision,
    against_limit,
    caught,
    too_many_failed,
    too_many_unrated,
    unvalidated,
    without_number,
)
from stillme.runs import RecordedRun
from stillme.runs.gathering import chosen_how


class Baseline:
    """A run that another must not be worse than."""

    def __init__(
        self, run: RecordedRun, candidates: Sequence[ChosenEditor], *, common: bool, allow_uncalibrated: bool = False
    ) -> None:
        self._run, self._candidates, self._common, self._accept = run, candidates, common, allow_uncalibrated

    def decide(self, margin: Rule, quantity: str, confidence: float) -> Decision:
        """Whether every editor is at most the margin worse than its baseline, by intervals at this confidence."""
        if numbers.is_rate(quantity) and margin.limit > 1:
            hint = f" Write {margin.limit:g} % as `{margin.limit:g}%`." if margin.limit <= 100 else ""
            raise StillmeError(f"`{margin}`: {quantity} is a rate, so a margin above 1 allows anything.{hint}")
        if margin.percent and not numbers.is_rate(quantity):
            raise StillmeError(
                f"`{margin}`: {quantity} is not a rate, so its margin cannot be a percentage. Leave out the %."
            )
        if margin.sign != "<=" or margin.limit < 0:
            raise StillmeError(f"`{margin}`: a margin is how much worse is allowed, such as `{quantity} <= 0.02`.")
        if margin.statistic == "contrast":
            raise StillmeError(f"`{margin}`: a margin cannot be on a contrast. Use everyone, .group or .disparity.")
        if margin.statistic != "disparity" and worse_when(quantity) in (Worse.AWAY, Worse.UNKNOWN):
            raise StillmeError(
                f"`{margin}`: {quantity} has no direction that is worse. "
                "Use a rate such as skin_lightened, or its .disparity."
            )
        known = [candidate.label for candidate in self._candidates]
        if margin.editor and margin.editor not in known:
            raise UnknownName.among("editor", margin.editor, known, f"The run has {', '.join(known)}.")
        checks = [
            check
            for candidate in self._candidates
            if not margin.editor or candidate.label == margin.editor
            for check in self._checks(margin, quantity, candidate, confidence)
        ]
        if not checks:
            checks = [without_number("the two runs have no number in common")]
        return Decision(rule=margin, quantity=quantity, against=str(self._run.opened_from), checks=tuple(checks))

    def _checks(self, margin: Rule, quantity: str, candidate: ChosenEditor, confidence: float) -> Iterator[Check]:
        matched = match(self._before(candidate), candidate, common=self._common)
        if reason := identical_edits(matched):
            yield replace(without_number(reason), editor=candidate.label)
            return
        matched = replace(matched, settings=replace(matched.settings, confidence=confidence))
        headline = {score.judge for score in estimates.headline(_on(matched.scores, quantity))}
        for change in _chosen(margin, compare(matched, [quantity]), headline):
            outcome = _loss(change)
            verdict, reason = against_limit(
                outcome,
                margin.sign,
                margin.limit,
                incomplete=_incomplete(matched, change.judge, quantity) or caught(change.note),
                unvalidated=self._chosen_by_outcome(matched, change.judge, quantity, candidate)
                or ("" if self._accept else unvalidated(change.note)),
            )
            yield Check(
                editor=candidate.label,
                arm=change.arm,
                judge=change.judge,
                factor=change.factor,
                group=change.group if isinstance(change, Change) else "",
                outcome=outcome,
                verdict=verdict,
                reason=reason,
                note=change.note,
                portraits=change.portraits,
                edits=change.pairs,
            )

    def _chosen_by_outcome(self, matched: Matched, judge: str, quantity: str, candidate: ChosenEditor) -> str:
        """Why people's ratings of a part of the edits decide nothing: the part was not drawn at random in both runs."""
        edited = matched.edits.state == EditState.EDITED
        for score in _on(matched.scores, quantity):
            unrated = edited & (score.state == RatingState.MISSING)
            if score.judge == judge and score.kind == "person" and unrated.any():
                for run in (self._run, candidate.run):
                    how, stands_for_all = chosen_how(run.results.draws.get(judge, ()))
                    if not stands_for_all:
                        return f"people rated a part of the edits, {how}"
        return ""

    def _before(self, candidate: ChosenEditor) -> ChosenEditor:
        """The editor of the same name, else the only one."""
        names = [editor.name for editor in self._run.design.editors]
        if candidate.label in names:
            return pick(self._run, candidate.label)
        if len(names) == 1:
            return pick(self._run, None)
        raise StillmeError(
            f"The baseline {self._run.opened_from} has {', '.join(names)} and no {candidate.label!r}. "
            "Give the two editors the same name, or use a baseline with one editor."
        )


def _chosen(margin: Rule, comparison: Comparison, headline: AbstractSet[str]) -> Sequence[Change | GapChange]:
    offered: list[Change | GapChange] = (
        list(comparison.gaps)
        if margin.statistic == "disparity"
        else [change for change in comparison.changes if bool(change.factor) == (margin.statistic == "group")]
    )
    arms = {change.arm for change in offered}
    arm = margin.arm or (Arm.BASELINE if Arm.BASELINE in arms else "")
    wanted = {margin.judge} if margin.judge else headline or {change.judge for change in offered}
    return [
        change
        for change in offered
        if (not arm or change.arm == arm)
        and change.judge in wanted
        and (not margin.factor or change.factor == margin.factor)
        and (not margin.group or (isinstance(change, Change) and change.group == margin.group))
    ]


def _loss(change: Change | GapChange) -> Interval | NotEstimable:
    """How much worse, as a positive number: a success rate that fell by 0.1 has a loss of 0.1."""
    if isinstance(change, GapChange):
        return change.growth
    outcome = change.outcome
    if isinstance(outcome, NotEstimable) or change.worse is not Worse.LOWER:
        return outcome
    return replace(outcome, value=-outcome.value, low=-outcome.high, high=-outcome.low)


def _on(scores: Sequence[Scores], quantity: str) -> list[Scores]:
    return [score for score in scores if score.axis == axis_of(quantity)]


def _incomplete(matched: Matched, judge: str, quantity: str) -> str:
    """What is still missing in one of the two runs, in words."""
    missing = matched.edits.state == EditState.MISSING
    edited = matched.edits.state == EditState.EDITED
    failed = matched.edits.state == EditState.FAILED
    abstained = np.zeros(len(failed), dtype=np.bool_)
    waiting = [f"edit missing {np.count_nonzero(missing):,}"] if missing.any() else []
    for score in _on(matched.scores, quantity):
        if score.judge == judge and score.kind != "person":
            unrated = edited & (score.state == RatingState.MISSING)
            waiting += [f"not judged {np.count_nonzero(unrated):,}"] if unrated.any() else []
            failed |= edited & (score.state == RatingState.FAILED)
        if score.judge == judge:
            abstained |= edited & (score.state == RatingState.ABSTAINED)
    if waiting:
        return f"a run is not finished: {', '.join(waiting)}"
    return too_many_failed(int(np.count_nonzero(failed)), len(failed)) or too_many_unrated(
        int(np.count_nonzero(abstained)), int(np.count_nonzero(edited))
    )
