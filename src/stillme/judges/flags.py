"""Flag edits for people to look at because the judges disagree, with a priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stillme.core import rubric

Priority = Literal["high", "medium", "low"]

PRIORITIES: tuple[Priority, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """The judges' disagreement on one edit."""

    priority: Priority
    differences: Mapping[str, float]
    """In points, on every axis where the judges disagree."""


def flag(differences: Mapping[str, float]) -> Flag | None:
    """Flag an edit by the largest difference between two judges on each axis; None if they agree.

    Judges who name different answers contradict each other, however the answers are numbered: high priority.
    """
    rules, is_nominal = rubric.load().flags, rubric.load().is_nominal
    # 4.3 and 3.3 differ by one point, despite floating-point rounding.
    flagged = {
        axis: points
        for axis, points in differences.items()
        if points > (0 if is_nominal(axis) else rules.threshold) + 1e-9
    }
    if not flagged:
        return None
    contradicted = any(is_nominal(axis) for axis in flagged)
    if contradicted or max(flagged.values()) >= rules.high_points or len(flagged) >= rules.high_axes:
        return Flag(priority="high", differences=flagged)
    if flagged.keys() & set(rules.medium_axes):
        return Flag(priority="medium", differences=flagged)
    return Flag(priority="low", differences=flagged)
