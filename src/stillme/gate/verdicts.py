"""What a gate decided, by rule and by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from stillme.audit.rules import Rule, Sign
from stillme.types import Interval, NotEstimable


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
    excluded: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())


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

    file: Path
    """The audit.toml."""
    title: str
    audit_hash: str
    strict: bool
    """Whether an inconclusive rule counts as a failure."""
    confidence: float
    decisions: tuple[Decision, ...]

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


def unlicensed(note: str) -> str:
    """Why a number may not decide; empty if its judge passed calibration, or it needs no judge."""
    return f"the judge is not licensed for this number: {note}; use --accept-uncalibrated to accept it" if note else ""


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
        return Verdict.INCONCLUSIVE, "the interval includes the limit"
    return Verdict.PASSED, ""
