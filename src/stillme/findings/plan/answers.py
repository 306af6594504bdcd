"""What a plan says: detectable gaps, the portraits that a gap needs, and other designs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Against = Literal["another group", "the others"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The smallest gap that is detected, for the assumed ICC and for its range; None if no gap is."""

    value: float | None
    low: float | None
    high: float | None
    corrected: float | None
    """As the first of all comparisons of the factor and its editors, by Holm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectableGap:
    """The detectable gap between the groups of one factor, by the editor where it is largest."""

    factor: str
    editor: str
    groups: int
    portraits: int
    """In the smallest group."""
    edits_each: float
    """Edits of one portrait, on average, by that editor."""
    against: Against
    quantity: str
    """`rate` or `mean`."""
    base: float | None
    """The base rate."""
    gap: Gap
    comparisons: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """How many portraits it takes to detect a gap."""

    factor: str
    base: float
    gap: float
    per_group: int | None
    portraits: int | None
    edits: int | None
    """Of all arms and editors, with as many of each portrait as the audit has."""
    judge_calls: int | None
    dollars: float | None
    """As far as prices are known."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDeviation:
    """How far from one half an editor's choice between two people must be to be detected."""

    editor: str
    requests: int
    portraits: int
    departure: float | None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Fewer prompts per portrait and editor: with the same portraits, and with more of them for the same edits."""

    edits_each: float
    """Edits of one portrait by one editor."""
    size: int
    """`[sample] size` that gives it, with the portraits at hand."""
    share: float
    """Of the edits of the whole grid."""
    information: float
    """Of what the whole grid says."""
    gap: float | None
    portraits: int
    """That the edits of the whole grid would buy."""
    wider_gap: float | None
    """Which these would see."""
    chosen: bool
    """Whether this is the audit as it stands."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingsNeeded:
    """How many edits of one editor people must rate, so that a corrected rate is known to ±5 points."""

    edits: int
    """Of the editor, under one arm."""
    rate: float
    low: int | None
    """If the judge agrees well with people; None if not even all edits are enough."""
    high: int | None
    """If it agrees badly."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)
