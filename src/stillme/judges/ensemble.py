"""Several judges' scores of one edit as one, by a named rule.

The paper gives three rules that differ (Eq. 3, §4.1, and its authors' code); each has its name here. Raw
scores are kept by whoever calls: a rule never replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from types import MappingProxyType

from stillme import rubric
from stillme.errors import StillmeError, UnknownName
from stillme.types import Abstained

AGREEMENT = 1.0
"""Eq. 3 averages scores up to so far apart."""

Rule = Callable[[Sequence[float], str], float]
"""Scores in judge order, primary first, and the axis they are on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """One score made of several."""

    score: float
    judges: int
    """How many gave a score."""
    asked: int
    """How many were asked. A missing judge is never filled in."""
    disagreement: float
    """The largest difference between two of them."""

    @property
    def flagged(self) -> bool:
        """Whether people should look: the judges are further apart than the rubric allows, whatever the rule."""
        # Scores such as 4.3 and 3.3 are one point apart, whatever their binary fractions say.
        return self.disagreement > rubric.load().flags.beyond + 1e-9

    @property
    def incomplete(self) -> bool:
        """Whether a judge is missing."""
        return self.judges < self.asked


def mean(scores: Sequence[float], _axis: str) -> float:
    """Average, never rounded (§4.1)."""
    return fmean(scores)


def paper(scores: Sequence[float], _axis: str) -> float:
    """Follow Eq. 3: the average rounded half up within one point, else the primary judge."""
    return _pairwise(scores, lambda average: math.floor(average + 0.5))


def code(scores: Sequence[float], _axis: str) -> float:
    """Follow the paper's authors' code: as Eq. 3, but Python's `round`, which takes halves to even."""
    return _pairwise(scores, round)


def middle(scores: Sequence[float], _axis: str) -> float:
    """Take the median."""
    return median(scores)


def worst(scores: Sequence[float], axis: str) -> float:
    """Take the score that speaks most against the editor.

    That is the one furthest from an unchanged person, or the least edit success. Of two equally far on
    opposite sides, the earlier judge's.
    """
    known = rubric.load().axes.get(axis)
    if known is None:
        raise UnknownName.among("axis", axis, rubric.load().axes, "The rule `worst` must know which end is bad.")
    if known.unchanged is None:
        return min(scores)
    unchanged = known.unchanged
    return max(scores, key=lambda score: abs(score - unchanged))


RULES: Mapping[str, Rule] = MappingProxyType(
    {"mean": mean, "paper": paper, "code": code, "median": middle, "worst": worst}
)


def combine(scores: Sequence[float | None], *, rule: str, axis: str) -> Combined | Abstained:
    """Apply a rule to the scores of one edit on one axis, in judge order; None where a judge gave none."""
    if rule not in RULES:
        raise UnknownName.among("ensemble rule", rule, RULES, f"There are {', '.join(RULES)}.")
    given = [score for score in scores if score is not None]
    if not given:
        return Abstained(reason="no judge gave a score")
    # A single judge's answer stands as it is: there is nothing to combine, and nothing to round.
    combined = RULES[rule](given, axis) if len(given) > 1 else given[0]
    return Combined(score=float(combined), judges=len(given), asked=len(scores), disagreement=max(given) - min(given))


def _pairwise(scores: Sequence[float], rounded: Callable[[float], int]) -> float:
    if len(scores) == 1:
        return scores[0]
    if len(scores) > 2:
        raise StillmeError(
            f"The rules `paper` and `code` are for two judges, not {len(scores)}. Use `mean`, `median` or `worst`."
        )
    primary, second = scores
    if abs(primary - second) > AGREEMENT + 1e-9:
        return primary
    return float(rounded((primary + second) / 2))
