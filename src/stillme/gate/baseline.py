"""No worse than before: the same requests under an earlier editor, and a margin set beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stillme.audit.rules import Rule
from stillme.comparison import Change, Chosen, Comparison, GapChange, Worse, compare, match, read, worse_when
from stillme.comparison.changes import is_ensemble
from stillme.errors import StillmeError, UnknownName
from stillme.estimates import EditState
from stillme.gate.verdicts import Check, Decision, against_limit
from stillme.types import Arm, Interval, NotEstimable


class Baseline:
    """A run that another must not fall behind."""

    def __init__(self, folder: Path, candidates: Sequence[Chosen], *, common: bool) -> None:
        self._folder, self._candidates, self._common = folder, candidates, common
        self._run = read(folder)

    def decide(self, margin: Rule, quantity: str) -> Decision:
        """Whether no editor is worse than its baseline by more than the margin, as surely as the interval says."""
        if margin.sign != "<=" or margin.limit < 0:
            raise StillmeError(f"`{margin}`: a margin says how much worse is allowed, such as `{quantity} <= 0.02`.")
        if margin.statistic == "contrast":
            raise StillmeError(f"`{margin}`: a margin is on everyone, .group or .disparity, not on a contrast.")
        if margin.statistic != "disparity" and worse_when(quantity) in (Worse.AWAY, Worse.UNKNOWN):
            raise StillmeError(
                f"`{margin}`: nobody can say which way {quantity} is worse. "
                "Take a rate such as skin_lightened, or its .disparity."
            )
        known = [each.label for each in self._candidates]
        if margin.editor and margin.editor not in known:
            raise UnknownName.among("editor", margin.editor, known, f"The run has {', '.join(known)}.")
        checks = [
            check
            for candidate in self._candidates
            if not margin.editor or candidate.label == margin.editor
            for check in self._checks(margin, quantity, candidate)
        ]
        if not checks:
            raise StillmeError(f"The margin `{margin}` is about nothing that both runs have.")
        return Decision(rule=margin, quantity=quantity, against=str(self._folder), checks=tuple(checks))

    def _checks(self, margin: Rule, quantity: str, candidate: Chosen) -> Iterator[Check]:
        matched = match(self._before(candidate), candidate, common=self._common)
        missing = int(np.count_nonzero(matched.edits.state == EditState.MISSING))
        unfinished = f"a run is not finished: {missing:,} edits missing" if missing else ""
        for found in _chosen(margin, compare(matched, [quantity])):
            outcome = _loss(found)
            verdict, reason = against_limit(outcome, margin.sign, margin.limit, unfinished)
            yield Check(
                editor=candidate.label,
                arm=found.arm,
                judge=found.judge,
                factor=found.factor,
                group=found.group if isinstance(found, Change) else "",
                outcome=outcome,
                verdict=verdict,
                reason=reason,
                note=found.note,
                portraits=found.portraits if isinstance(found, Change) else len(matched.edits.portraits),
                edits=found.pairs if isinstance(found, Change) else matched.cells,
            )

    def _before(self, candidate: Chosen) -> Chosen:
        """The editor of the same name, else the only one."""
        names = [named.name for named in self._run.audit.editors]
        if candidate.label in names:
            return self._run.pick(candidate.label)
        if len(names) == 1:
            return self._run.pick(None)
        raise StillmeError(
            f"The baseline {self._folder} has {', '.join(names)} and no {candidate.label!r}. "
            "Give the two editors one name, or take a baseline with one editor."
        )


def _chosen(margin: Rule, found: Comparison) -> Sequence[Change | GapChange]:
    offered: list[Change | GapChange] = (
        list(found.gaps)
        if margin.statistic == "disparity"
        else [each for each in found.changes if bool(each.factor) == (margin.statistic == "group")]
    )
    arms = {each.arm for each in offered}
    arm = margin.arm or (Arm.BASELINE if Arm.BASELINE in arms else "")
    judges = {each.judge for each in offered}
    ensembles = {judge for judge in judges if is_ensemble(judge)}
    wanted = {margin.judge} if margin.judge else ensembles or judges
    return [
        each
        for each in offered
        if (not arm or each.arm == arm)
        and each.judge in wanted
        and (not margin.factor or each.factor == margin.factor)
        and (not margin.group or (isinstance(each, Change) and each.group == margin.group))
    ]


def _loss(found: Change | GapChange) -> Interval | NotEstimable:
    """How much worse, so that more is worse: a success rate that fell by 0.1 has lost 0.1."""
    outcome = found.outcome
    if isinstance(outcome, NotEstimable) or isinstance(found, GapChange) or found.worse is not Worse.LOWER:
        return outcome
    return replace(outcome, value=-outcome.value, low=-outcome.high, high=-outcome.low)
