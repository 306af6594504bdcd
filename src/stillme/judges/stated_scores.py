"""Scores that a judge of the user's own states, as a function, a program or a server: checked, then ratings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal, cast

from pydantic import Field

from stillme.core import rubric
from stillme.core.protocols import Parameters
from stillme.core.types import Abstained, Prompt, Rated, Rating

NO_REASON = "no reason given"
Kind = Literal["model", "instrument", "person", "ensemble"]


class StatedScores(Parameters):
    """What a judge of the user's own answers."""

    axes: tuple[str, ...] = Field(min_length=1)
    """The axes that it answers for every pair: the rubric's, or names of your own."""
    kind: Kind = "model"
    """Only models are combined to an ensemble, unless the audit names its judges."""


class WrongScores(ValueError):
    """What is wrong with an answer."""


def ratings_of(answer: object, *, axes: Sequence[str], prompt: Prompt, who: str) -> dict[str, Rating]:
    """A rating for every axis of the answer; raises `WrongScores` if one is missing, unknown or out of range.

    An answer is a number, None or a reason to abstain, or both a score and its evidence as
    `{"score": 4, "evidence": "…"}`.
    """
    if not isinstance(answer, Mapping):
        raise WrongScores(f"{who} returned {type(answer).__qualname__}; it must return a dict of {', '.join(axes)}")
    scores = cast("Mapping[Any, Any]", answer)
    missing = [axis for axis in axes if axis not in scores and _applies(axis, prompt)]
    unknown = [str(axis) for axis in scores if axis not in axes]
    problems = [
        *([f"{who} returned no {', '.join(missing)}"] if missing else []),
        *([f"{who} returned {', '.join(unknown)}, not listed under `axes`"] if unknown else []),
        *(f"{axis} = {value!r} {why}" for axis, value in scores.items() if (why := _rejected(axis, value))),
    ]
    if problems:
        raise WrongScores("; ".join(problems))
    return {axis: _rating(value) for axis, value in scores.items()}


def _applies(axis: str, prompt: Prompt) -> bool:
    """Some axes are for one kind of prompt only, such as the accuracy of an aging edit."""
    known = rubric.load().axes.get(axis)
    return known is None or not known.only or known.only == prompt.subcategory


def _rejected(axis: str, value: object) -> str:
    """Why a value is no answer on an axis; empty if it is one."""
    if isinstance(value, Mapping):
        explained = cast("Mapping[str, object]", value)
        if "score" not in explained or not explained.keys() <= {"score", "evidence"}:
            return 'is no score; give {"score": …, "evidence": "…"}'
        return _rejected(axis, explained["score"])
    if value is None or isinstance(value, str):
        return ""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return "is no score; give a number, or None or a reason to abstain"
    known = rubric.load().axes.get(axis)
    if known and known.is_scale and not 1 <= float(value) <= len(known.scale):
        return f"is outside of 1 to {len(known.scale)}"
    return ""


def _rating(value: Any) -> Rating:
    score, evidence = value, ""
    if isinstance(value, Mapping):
        explained = cast("Mapping[str, Any]", value)
        score, evidence = explained["score"], str(explained.get("evidence") or "")
    if score is None or isinstance(score, str):
        return Abstained(reason=score or evidence or NO_REASON)
    return Rated(score=float(score), evidence=evidence)
