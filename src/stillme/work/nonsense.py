"""What a plugin gives back, looked at before anybody relies on it: nonsense is a failure of that call alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from stillme.core.types import Abstained, Assessment, Edited, EditOutcome, Failed, Rated, Refused


def checked_outcome(outcome: object, use: str) -> EditOutcome:
    """The outcome, or a failure that says what is wrong with it."""
    if not isinstance(outcome, Edited | Refused | Failed):
        return Failed(error=f"{use!r} gave a {type(outcome).__name__} instead of an outcome", retryable=False)
    if problem := next(_outcome_problems(outcome), ""):
        return _failed(use, type(outcome).__name__, problem, outcome.cost)
    return outcome


def checked_assessment(assessment: object, use: str, axes: Sequence[str]) -> Assessment:
    """The assessment, or one that failed on every axis."""
    if not isinstance(assessment, Assessment):
        error = f"{use!r} gave a {type(assessment).__name__} instead of an assessment"
        return Assessment(ratings=dict.fromkeys(axes, Failed(error=error, retryable=False)))
    if problem := next(_assessment_problems(assessment), ""):
        failed = _failed(use, "Assessment", problem, assessment.cost)
        return Assessment(ratings=dict.fromkeys(axes, failed), cost=failed.cost)
    return assessment


def _failed(use: str, kind: str, problem: str, cost: object) -> Failed:
    paid = cost if _is_number(cost) and cast("float", cost) >= 0 else 0.0
    return Failed(error=f"{use!r} gave an {kind} {problem}", retryable=False, cost=cast("float", paid))


def _outcome_problems(outcome: EditOutcome) -> Iterator[str]:
    yield from _cost_problems(outcome.cost)
    match outcome:
        case Edited(image=image, effective=effective, truth=truth):
            if not isinstance(cast("object", image), bytes):
                yield f"whose image is a {type(image).__name__}, not bytes"
            yield from _json_problems("effective", effective)
            if truth is not None:
                yield from _json_problems("truth", truth)
        case Refused(message=message, effective=effective):
            yield from _text_problems("message", message)
            yield from _json_problems("effective", effective)
        case Failed(error=error, retry_after=pause):
            yield from _text_problems("error", error)
            if pause is not None and not _is_number(pause):
                yield f"whose retry_after is {pause!r}, not a number"


def _assessment_problems(assessment: Assessment) -> Iterator[str]:
    yield from _cost_problems(assessment.cost)
    yield from _json_problems("effective", assessment.effective)
    if assessment.raw is not None:
        yield from _text_problems("raw", assessment.raw)
    ratings = cast("object", assessment.ratings)
    if not isinstance(ratings, Mapping):
        yield f"whose ratings are a {type(ratings).__name__}, not a mapping"
        return
    for axis, rating in cast("Mapping[object, object]", ratings).items():
        yield from _text_problems("axis", axis)
        match rating:
            case Rated(score=score, evidence=evidence):
                if not _is_number(score):
                    yield f"whose score on {axis!r} is {score!r}, not a finite number"
                yield from _text_problems(f"evidence on {axis!r}", evidence)
            case Abstained(reason=reason):
                yield from _text_problems(f"reason on {axis!r}", reason)
            case Failed(error=error):
                yield from _text_problems(f"error on {axis!r}", error)
            case _:
                yield f"whose rating on {axis!r} is a {type(rating).__name__}"


def _cost_problems(cost: object) -> Iterator[str]:
    if not _is_number(cost) or cast("float", cost) < 0:
        yield f"whose cost is {cost!r}, not a number of dollars"


def _text_problems(name: str, text: object) -> Iterator[str]:
    if not isinstance(text, str):
        yield f"whose {name} is a {type(text).__name__}, not a text"
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        yield f"whose {name} has half a character, which no file can hold"


def _json_problems(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"whose {name} is a {type(value).__name__}, not a mapping"
        return
    try:
        json.dumps(cast("Mapping[str, Any]", value), ensure_ascii=False, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        yield f"whose {name} cannot be written as JSON ({error})"


def _is_number(value: object) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(float(cast("float", value))) and not isinstance(value, str)
    except (TypeError, ValueError, OverflowError):
        return False
