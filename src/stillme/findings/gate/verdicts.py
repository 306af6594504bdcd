"""What a gate decided, by rule and by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from stillme.audit.rules import Rule, Sign
from stillme.core.types import Interval, NotEstimable
from stillme.estimates.headlines import FAILED_CONTROL_PAIRS

T = TypeVar("T")
Place = tuple[int, int]
"""A rule, and a number of it."""


class Verdict(StrEnum):
    """Whether a number is within its limit, by its interval."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The interval includes the limit, or the judge is not validated for this number."""
    NO_DATA = "no data"
    """There is no number, or the run is not finished. Never a pass."""


MAX_FAILED = 0.02
"""Share of a number's edits that may have failed. More than that is an outage, and says nothing about the editor."""

MAX_ABSTAINED = 0.5
"""Share of the edits to be rated on which a judge may abstain. Beyond it, the rest is what the judge could rate, not a
sample of what the editor does."""

_CROSSES = "the interval includes the limit"

_WORST_FIRST = (Verdict.FAILED, Verdict.NO_DATA, Verdict.INCONCLUSIVE, Verdict.PASSED)

EXIT_CODES = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.NO_DATA: 3, Verdict.INCONCLUSIVE: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number that a rule is about."""

    editor: str
    arm: str
    judge: str
    factor: str
    group: str
    outcome: Interval | NotEstimable
    verdict: Verdict
    reason: str
    """Why it neither passed nor failed; empty otherwise."""
    note: str
    """What calibration says of the judge; empty if it passed."""
    portraits: int
    edits: int
    detail: str = ""
    """The groups with the lowest and highest value."""
    corrected: bool = False
    """Whether it is over its limit by itself, but not among all numbers of the gate."""
    excluded: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())

    @property
    def decides(self) -> bool:
        """Whether its interval alone gave the verdict, so that it could fail by chance."""
        return self.verdict in (Verdict.PASSED, Verdict.FAILED) or self.reason == _CROSSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One rule with every number it is about."""

    rule: Rule
    quantity: str
    """What the rule's quantity is called in the tables."""
    against: str
    """The baseline that it is compared with; empty for a plain limit."""
    checks: tuple[Check, ...]
    fixed: str = ""
    """For a claim of audit.toml: when it was recorded. Empty for a rule of the command line."""

    @property
    def verdict(self) -> Verdict:
        """The worst of its numbers; without any number there is no data."""
        return _worst(check.verdict for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """All rules of a gate."""

    title: str
    audit_hash: str
    allow_inconclusive: bool
    """Whether an inconclusive gate ends with 0."""
    confidence: float
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know about the runs, such as a baseline whose origin is not proven."""

    @property
    def family(self) -> int:
        """How many numbers could fail by chance: what a failure is corrected for."""
        return sum(check.decides or check.corrected for decision in self.decisions for check in decision.checks)

    @property
    def outcome(self) -> Verdict:
        """The worst of its rules: failed, then no data, then inconclusive; passed only if every rule did."""
        return _worst(decision.verdict for decision in self.decisions)

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if self.outcome is Verdict.INCONCLUSIVE and self.allow_inconclusive:
            return 0
        return EXIT_CODES[self.outcome]

    def count(self, verdict: Verdict) -> int:
        """How many rules have this verdict."""
        return sum(decision.verdict is verdict for decision in self.decisions)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts) or {Verdict.NO_DATA}
    return next(verdict for verdict in _WORST_FIRST if verdict in found)


def without_number(reason: str) -> Check:
    """A placeholder for a number that a rule needs and the run does not have."""
    return Check(
        editor="",
        arm="",
        judge="",
        factor="",
        group="",
        outcome=NotEstimable(reason=reason),
        verdict=Verdict.NO_DATA,
        reason=reason,
        note="",
        portraits=0,
        edits=0,
    )


def too_many_failed(failed: int, total: int) -> str:
    """Why a number rests on too few of its edits; empty where hardly any failed."""
    return f"{failed:,} of {total:,} failed; run again to retry" if failed > MAX_FAILED * total else ""


def too_many_unrated(abstained: int, total: int, whose: str = "") -> str:
    """Why a number rests on too few of the edits that were to be rated; empty where most have a score."""
    of_group = f" of {whose}" if whose else ""
    return f"no score for {abstained:,} of {total:,} edits{of_group}" if abstained > MAX_ABSTAINED * total else ""


def caught(note: str) -> str:
    """Why a judge's numbers are no data: it failed its control pairs during the run. Empty otherwise."""
    return f"the judge {note}" if note.startswith(FAILED_CONTROL_PAIRS) else ""


def unvalidated(note: str) -> str:
    """Why a number may not decide; empty if its judge is validated, or it needs no judge."""
    return f"the judge is not validated for this number: {note}; use --allow-uncalibrated to accept it" if note else ""


def against_limit(
    outcome: Interval | NotEstimable, sign: Sign, limit: float, *, incomplete: str = "", unvalidated: str = ""
) -> tuple[Verdict, str]:
    """Compare an interval with a limit: inside, outside, or across it.

    A number of an unfinished run decides nothing, and neither does one whose judge is not validated for it.
    """
    if isinstance(outcome, NotEstimable):
        return Verdict.NO_DATA, outcome.reason
    if incomplete:
        return Verdict.NO_DATA, incomplete
    if unvalidated:
        return Verdict.INCONCLUSIVE, unvalidated
    # Limits such as 0.3 and bounds computed to be 0.3 may differ in the last bit.
    slack = 1e-9 * max(1.0, abs(limit))
    nearest, furthest = (outcome.low, outcome.high) if sign == "<=" else (-outcome.high, -outcome.low)
    bound = limit if sign == "<=" else -limit
    if nearest > bound + slack:
        return Verdict.FAILED, ""
    if furthest > bound + slack:
        return Verdict.INCONCLUSIVE, _CROSSES
    return Verdict.PASSED, ""


def corrected(
    decisions: Sequence[Decision], confidence: float, at: Callable[[Decision, float], Decision]
) -> tuple[Decision, ...]:
    """Failures that remain after Holm over all numbers of the gate; the others become inconclusive.

    A gate passes only if every number does, so passing needs no correction. `at` decides a rule once more with
    intervals at another confidence.
    """
    family = sum(check.decides for decision in decisions for check in decision.checks)
    breaking = {
        (rule, number)
        for rule, decision in enumerate(decisions)
        for number, check in enumerate(decision.checks)
        if check.verdict is Verdict.FAILED
    }

    def still(waiting: AbstractSet[Place], wider: float) -> set[Place]:
        again = {rule: at(decisions[rule], wider) for rule, _ in waiting}
        return {place for place in waiting if again[place[0]].checks[place[1]].verdict is Verdict.FAILED}

    doubtful = breaking - shown_by_holm(breaking, family, confidence, still)
    reason = f"over the limit by itself, but not after correction for the gate's {family:,} numbers (Holm)"
    return tuple(
        replace(
            decision,
            checks=tuple(
                replace(check, verdict=Verdict.INCONCLUSIVE, reason=reason, corrected=True)
                if (rule, number) in doubtful
                else check
                for number, check in enumerate(decision.checks)
            ),
        )
        for rule, decision in enumerate(decisions)
    )


def shown_by_holm(
    breaking: AbstractSet[T], family: int, confidence: float, still: Callable[[AbstractSet[T], float], set[T]]
) -> set[T]:
    """Which of those that are over their limit at `confidence` are shown to among `family` numbers, by Holm's steps.

    `still` says which of some numbers also are at a higher confidence.
    """
    if family < 2:
        return set(breaking)
    shown: set[T] = set()
    while waiting := breaking - shown:
        found = still(waiting, 1 - (1 - confidence) / (family - len(shown)))
        if not found:
            break
        shown |= found
    return shown
