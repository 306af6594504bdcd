"""Edits that people should look at, because the judges are too far apart; and which of them first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stillme import rubric

Priority = Literal["high", "medium", "low"]

PRIORITIES: tuple[Priority, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Judges who disagree on one edit."""

    priority: Priority
    apart: Mapping[str, float]
    """By how much, on every axis where it is too much."""


def flag(apart: Mapping[str, float]) -> Flag | None:
    """Flag an edit by the largest difference between two judges on each axis; None if they agree well enough."""
    rules = rubric.load().flags
    # Scores such as 4.3 and 3.3 are one point apart, whatever their binary fractions say.
    wide = {axis: gap for axis, gap in apart.items() if gap > rules.beyond + 1e-9}
    if not wide:
        return None
    if max(wide.values()) >= rules.wide or len(wide) >= rules.several:
        return Flag(priority="high", apart=wide)
    if wide.keys() & set(rules.personal):
        return Flag(priority="medium", apart=wide)
    return Flag(priority="low", apart=wide)
