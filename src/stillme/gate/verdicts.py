"""What a gate decided, by rule and by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from stillme.audit.rules import Rule, Sign
from stillme.estimates import Settings
from stillme.types import Interval, NotEstimable

T = TypeVar("T")
Place = tuple[int, int]
"""A rule, and a number of it."""


class Verdict(StrEnum):
    """Whether a number keeps its limit, by its interval."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The interval includes the limit, or the judge is not licensed for this number."""
    NO_DATA = "no data"
    """There is no number, or the run is not finished. Never a pass."""


MAX_FAILED = 0.02
"""Share of a number's edits that may have failed. More than that is an outage, and says nothing about the editor."""

MAX_ABSTAINED = 0.5
"""Share of the edits to be rated on which a judge may abstain. Beyond it, the rest is what the judge could rate, not a
sample of what the editor does."""

_BEYOND, _MOST_REPLICATES = 5, 50_000
"""Resamples that should lie beyond the two limits of a wider interval, and how many are made for that at most."""

_CROSSES = "the interval includes the limit"

_WORST_FIRST = (Verdict.FAILED, Verdict.NO_DATA, Verdict.INCONCLUSIVE, Verdict.PASSED)


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
    """Whether it breaks its limit by itself, but not among all numbers of the gate."""
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

    @property
    def verdict(self) -> Verdict:
        """The worst of its numbers; without any number there is no data."""
        verdicts = {check.verdict for check in self.checks} or {Verdict.NO_DATA}
        return next(verdict for verdict in _WORST_FIRST if verdict in verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """All rules of a gate."""

    title: str
    audit_hash: str
    strict: bool
    """Whether an inconclusive rule counts as a failure."""
    confidence: float
    decisions: tuple[Decision, ...]

    @property
    def family(self) -> int:
        """How many numbers could fail by chance: what a failure is corrected for."""
        return sum(check.decides or check.corrected for decision in self.decisions for check in decision.checks)

    @property
    def passed(self) -> bool | None:
        """Whether the run passes the gate; None without enough data."""
        if any(self.counts_against(decision.verdict) for decision in self.decisions):
            return False
        return None if not self.decisions or self.count(Verdict.NO_DATA) else True

    @property
    def all_passed(self) -> bool:
        """Whether every rule was shown to hold."""
        return bool(self.decisions) and self.count(Verdict.PASSED) == len(self.decisions)

    def counts_against(self, verdict: Verdict) -> bool:
        """Whether a verdict makes the gate fail."""
        return verdict is Verdict.FAILED or (self.strict and verdict is Verdict.INCONCLUSIVE)

    def count(self, verdict: Verdict) -> int:
        """How many rules have this verdict."""
        return sum(decision.verdict is verdict for decision in self.decisions)


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


def unlicensed(note: str) -> str:
    """Why a number may not decide; empty if its judge passed calibration, or it needs no judge."""
    return f"the judge is not licensed for this number: {note}; use --allow-uncalibrated to accept it" if note else ""


def against_limit(
    outcome: Interval | NotEstimable, sign: Sign, limit: float, *, incomplete: str = "", unlicensed: str = ""
) -> tuple[Verdict, str]:
    """Compare an interval with a limit: inside, outside, or across it.

    A number of an unfinished run decides nothing, and neither does one whose judge is not licensed for it.
    """
    if isinstance(outcome, NotEstimable):
        return Verdict.NO_DATA, outcome.reason
    if incomplete:
        return Verdict.NO_DATA, incomplete
    if unlicensed:
        return Verdict.INCONCLUSIVE, unlicensed
    # Limits such as 0.3 and bounds computed to be 0.3 may differ in the last bit.
    slack = 1e-9 * max(1.0, abs(limit))
    nearest, furthest = (outcome.low, outcome.high) if sign == "<=" else (-outcome.high, -outcome.low)
    bound = limit if sign == "<=" else -limit
    if nearest > bound + slack:
        return Verdict.FAILED, ""
    if furthest > bound + slack:
        return Verdict.INCONCLUSIVE, _CROSSES
    return Verdict.PASSED, ""


def at_confidence(settings: Settings, confidence: float) -> Settings:
    """With enough resamples for a limit so far out."""
    if confidence == settings.confidence:
        return settings
    needed = min(_MOST_REPLICATES, math.ceil(_BEYOND / (1 - confidence)))
    return replace(settings, confidence=confidence, replicates=max(settings.replicates, needed))


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
    reason = f"breaks the limit by itself, but not after correction for the gate's {family:,} numbers (Holm)"
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
    """Which of those that break their limit at `confidence` are shown to among `family` numbers, by Holm's steps.

    `still` says which of some numbers also break it at a higher confidence.
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
