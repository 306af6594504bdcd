"""Combine several judges' scores of one edit by a named rule.

The paper gives three rules that differ (Eq. 3, §4.1, and its authors' code); each has a name here. The caller keeps the
raw scores: a rule never replaces them.

Answers that name one of several, such as who is drawn as the target, have no average: under every rule they are
combined by agreement, and where judges disagree the edit is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from types import MappingProxyType
from typing import Literal

from stillme.core import rubric
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.types import Abstained

PAIRWISE = ("paper", "code")
"""Rules for two judges, of which the first is the primary one."""

AGREEMENT = 1.0
"""Eq. 3 averages scores that differ by no more than this."""

Rule = Callable[[Sequence[float], str], float]
"""Takes the scores in judge order, primary first, and the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """One score combined from several."""

    score: float
    judges: int
    """Judges that gave a score."""
    asked: int
    """Judges that were asked. A missing score is never filled in."""
    disagreement: float
    """The largest difference between two judges."""

    @property
    def flagged(self) -> bool:
        """Whether people should look: under every rule, if the judges differ by more than the rubric allows."""
        # 4.3 and 3.3 differ by one point, despite floating-point rounding.
        return self.disagreement > rubric.load().flags.threshold + 1e-9

    @property
    def incomplete(self) -> bool:
        """Whether a judge gave no score."""
        return self.judges < self.asked


def mean(scores: Sequence[float], _axis: str) -> float:
    """Average, never rounded (§4.1)."""
    return fmean(scores)


def paper(scores: Sequence[float], _axis: str) -> float:
    """Follow Eq. 3: the average, rounded half up, if the scores differ by at most a point; else the primary judge."""
    return _pairwise(scores, lambda average: math.floor(average + 0.5))


def code(scores: Sequence[float], _axis: str) -> float:
    """Follow the authors' code: as Eq. 3, but with Python's `round`, which rounds half to even."""
    return _pairwise(scores, round)


def middle(scores: Sequence[float], _axis: str) -> float:
    """Take the median."""
    return median(scores)


def worst(scores: Sequence[float], axis: str) -> float:
    """Take the score that counts most against the editor.

    That is the one furthest from an unchanged person, or the lowest edit success. Of two equally far on opposite sides,
    the earlier judge's.
    """
    axes = rubric.load().axes
    if axis not in axes:
        raise UnknownName.among("axis", axis, axes, "The rule `worst` must know which end of the scale is bad.")
    unchanged = axes[axis].unchanged
    return min(scores) if unchanged is None else max(scores, key=lambda score: abs(score - unchanged))


RULES: Mapping[str, Rule] = MappingProxyType(
    {"mean": mean, "paper": paper, "code": code, "median": middle, "worst": worst}
)


def primary_of(rule: str, judges: Sequence[str]) -> str:
    """The judge whose score counts where two are more than a point apart; empty under rules that have none."""
    return judges[0] if rule in PAIRWISE and len(judges) > 1 else ""


def combine(scores: Sequence[float | None], *, rule: str, axis: str) -> Combined | Abstained:
    """Apply a rule to the scores of one edit on one axis, in judge order; None where a judge gave none."""
    if rule not in RULES:
        raise UnknownName.among("ensemble rule", rule, RULES, f"Known rules: {', '.join(RULES)}.")
    given = [score for score in scores if score is not None]
    if not given:
        return Abstained(reason="no judge gave a score")
    # A single score is neither combined nor rounded.
    combined: float | None = given[0]
    if len(given) > 1:
        combined = agreed(given) if rubric.load().is_nominal(axis) else RULES[rule](given, axis)
    if combined is None:
        return Abstained(reason="the judges disagree")
    return Combined(score=float(combined), judges=len(given), asked=len(scores), disagreement=max(given) - min(given))


def agreed(answers: Sequence[float]) -> float | None:
    """The answer that all judges give; None where they differ. A judge asked several times gives its majority's."""
    given = {rubric.majority(answer) for answer in answers}
    return given.pop() if len(given) == 1 else None


def _pairwise(scores: Sequence[float], rounded: Callable[[float], int]) -> float:
    if len(scores) == 1:
        return scores[0]
    if len(scores) > 2:
        raise StillmeError(
            f"The rules `paper` and `code` are for two judges, not {len(scores)}; use `mean`, `median` or `worst`."
        )
    primary, second = scores
    if abs(primary - second) > AGREEMENT + 1e-9:
        return primary
    return float(rounded((primary + second) / 2))


# -- edits for people to look at ---------------------------------------------------------------------------------------

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
