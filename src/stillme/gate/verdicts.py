"""What a gate found: rule by rule, and number by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from stillme.audit.rules import Rule, Sign
from stillme.types import Interval, NotEstimable


class Verdict(StrEnum):
    """Whether a number keeps its limit, as surely as its interval says."""

    PASSES = "passes"
    FAILS = "fails"
    CANNOT_TELL = "cannot tell"


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
    """Why it cannot be told; empty otherwise."""
    note: str
    """What calibration says of the judge; empty where nothing is to be said."""
    portraits: int
    edits: int
    detail: str = ""
    """Between whom a gap lies."""
    excluded: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One rule with every number it is about."""

    rule: Rule
    quantity: str
    """What the rule's quantity is called in the tables."""
    against: str
    """The baseline that it may not be worse than; empty for a limit of its own."""
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """Fails if any number does; passes only if every one does."""
        found = {check.verdict for check in self.checks}
        if Verdict.FAILS in found:
            return Verdict.FAILS
        return Verdict.CANNOT_TELL if Verdict.CANNOT_TELL in found else Verdict.PASSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """All rules of a gate."""

    file: Path
    """The audit.toml."""
    title: str
    audit_hash: str
    strict: bool
    """Whether what cannot be told counts as a failure."""
    confidence: float
    decisions: tuple[Decision, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not any(self.counts_against(each.verdict) for each in self.decisions)

    def counts_against(self, verdict: Verdict) -> bool:
        """Whether a verdict makes the gate fail."""
        return verdict is Verdict.FAILS or (self.strict and verdict is Verdict.CANNOT_TELL)

    def count(self, verdict: Verdict) -> int:
        """How many rules came out so."""
        return sum(each.verdict is verdict for each in self.decisions)


def against_limit(
    outcome: Interval | NotEstimable, sign: Sign, limit: float, unfinished: str = ""
) -> tuple[Verdict, str]:
    """Set an interval against a limit: inside, outside, or across it. An unfinished run cannot pass."""
    if isinstance(outcome, NotEstimable):
        return Verdict.CANNOT_TELL, outcome.reason
    # Limits such as 0.3 and bounds computed to be 0.3 may differ in the last bit.
    slack = 1e-9 * max(1.0, abs(limit))
    nearest, furthest = (outcome.low, outcome.high) if sign == "<=" else (-outcome.high, -outcome.low)
    bound = limit if sign == "<=" else -limit
    if nearest > bound + slack:
        return Verdict.FAILS, ""
    if furthest > bound + slack:
        return Verdict.CANNOT_TELL, "the interval crosses the limit"
    return (Verdict.CANNOT_TELL, unfinished) if unfinished else (Verdict.PASSES, "")
