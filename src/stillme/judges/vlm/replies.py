"""A question to a model, every kind of reply, and how a response or an error is told to be one of them.

Only a machine-readable signal of the provider is a refusal. Answers are validated strictly: a score as text, a half
point, a score of 6 or two scores under one key are malformed, never rounded or chosen from.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from pydantic import BaseModel, ValidationError

from stillme.core.http.replies import failure_of
from stillme.core.redaction import shortened
from stillme.core.types import Failed, ImageFile, Json
from stillme.judges.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError
    from pydantic_ai.messages import ModelResponse

_POLICY_CODES = frozenset({"content_filter", "content_policy_violation", "invalid_prompt", "moderation_blocked"})
"""Error codes of a policy violation, at OpenAI and compatible servers."""
_UNAVAILABLE_HERE = "FAILED_PRECONDITION"
"""Gemini's status where the API is not offered at the user's location, or not without billing."""
_FIRST = "observations"
"""What an answer that has it must begin with, as the protocol asks."""
_READING_ERRORS = (TypeError, AttributeError, LookupError, ValueError, AssertionError)
"""What clients raise over a response that they cannot read."""
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is told, shown and asked."""

    system: str
    """Instructions, in the channel that images and prompts cannot reach."""
    parts: tuple[str | ImageFile, ...]
    """Text and images, in the order in which the model sees them."""
    answer: type[BaseModel]
    """The schema of the answer; an answer that violates it is `Malformed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    earlier: str | None = None
    """The malformed first answer, if the model had to be asked twice."""
    effective: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """The settings that were really sent, and the model that really answered."""
    cost: float = 0.0
    """Of both attempts, in dollars; 0 with `effective["cost"] == "unknown"` where the price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswered(_Answer):
    """An answer that matches the schema."""

    text: str
    """The raw answer."""
    value: BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeclined(_Answer):
    """The model refused, or its provider blocked the question or the answer."""

    reason: str
    """The model's own words, or the provider's field and value."""
    kind: Literal["refusal", "blocked"]
    raw: str | None = None
    """What came instead of an answer, if anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed(_Answer):
    """Two answers in a row that violate the schema: no JSON, truncated, a score out of range."""

    text: str
    problem: str


Reply = ModelAnswered | ModelDeclined | Malformed | Failed


def read(
    response: ModelResponse, answer: type[BaseModel], effective: Mapping[str, Json], cost: float
) -> ModelAnswered | Malformed | ModelDeclined | Failed:
    """Classify a response."""
    if response.finish_reason == "content_filter":
        reason, kind = _refusal(response.provider_details or {})
        return ModelDeclined(reason=reason, kind=kind, raw=response.text or None, effective=effective, cost=cost)
    if response.finish_reason == "length":
        return Malformed(text=response.text or "", problem="the answer was truncated", effective=effective, cost=cost)
    if not response.text:
        return Failed(error="the response contains no answer", retryable=True, cost=cost)
    text = response.text
    try:
        value = answer.model_validate_json(_unfenced(text), strict=True)
        stated = json.loads(_unfenced(text), object_pairs_hook=_unique, parse_constant=_not_a_number)
    except ValidationError as error:
        return Malformed(text=text, problem=_problem(error), effective=effective, cost=cost)
    except (ValueError, RecursionError) as error:
        return Malformed(text=text, problem=str(error), effective=effective, cost=cost)
    if _FIRST in stated and next(iter(stated)) != _FIRST:
        # A score that is given before the model has looked is a guess, and what it then sees is made to fit.
        problem = f"`{_FIRST}` must come before everything else"
        return Malformed(text=text, problem=problem, effective=effective, cost=cost)
    return ModelAnswered(text=text, value=value, effective=effective, cost=cost)


def fault_of(error: Exception, settings: ModelSettings) -> Failed | ModelDeclined:
    """Classify an exception; a policy error is a block, not a failure."""
    from pydantic_ai import exceptions

    text = f"{settings.model}: {error_text(error, settings)}"
    status = str(getattr(error, "status_code", None) or "")
    # From specific to general.
    match error:
        case asyncio.TimeoutError() | exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout():
            late = f"{settings.model}: no complete answer within {settings.timeout:g} s"
            return Failed(error=late, retryable=True, status=status)
        case exceptions.ModelAPIError() if str(error.provider_error_code) in _POLICY_CODES:
            reason = f"{error.provider_error_code}: {error_text(error, settings)}"
            return ModelDeclined(reason=reason, kind="blocked")
        case exceptions.ModelAPIError() if _needs_the_user(error):
            return Failed(error=text, retryable=True, fatal=True, status=status)
        case exceptions.ModelRateLimitError() | exceptions.ModelHTTPError():
            meant = failure_of(getattr(error, "status_code", 429), text, body=str(error.body))
            wait = meant.retry_after if error.retry_after is None else error.retry_after
            return replace(meant, error=text, retry_after=wait, status=status)
        case exceptions.ModelRequestRejectedError() | exceptions.UserError():
            return Failed(error=text, retryable=False, status=status)
        case exceptions.ModelAPIError():
            return Failed(error=text, retryable=True, retry_after=error.retry_after, status=status)
        case _:
            return Failed(error=text, retryable=True)


def error_text(error: Exception, settings: ModelSettings) -> str:
    """The provider's own sentence, on one line and without the key."""
    from pydantic_ai.exceptions import AgentRunError, UserError

    status: object = getattr(error, "status_code", None)
    message = _message(cast("Json", getattr(error, "body", None))) if status is not None else ""
    plain = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, _READING_ERRORS) and not isinstance(error, AgentRunError | UserError):
        # The official client met a response of another shape than its own API has.
        plain = f"the response is not in the format of {settings.provider} ({type(error).__name__}: {plain})"
    return shortened(settings.redacted(f"{status}: {message}" if message else plain))


def _needs_the_user(error: ModelAPIError) -> bool:
    """Whether every other question fails alike: a wrong key, no credit, no such model, no service at this place."""
    from pydantic_ai import exceptions

    match error:
        case (
            exceptions.ModelAuthenticationError()
            | exceptions.ModelQuotaExceededError()
            | exceptions.ModelNotFoundError()
        ):
            return True
        case exceptions.ModelRateLimitError():
            return error.provider_error_code == "insufficient_quota"
        case _:
            return error.provider_error_code == _UNAVAILABLE_HERE


def _refusal(details: Mapping[str, Any]) -> tuple[str, Any]:
    """Why the provider stopped the answer, and whether model or provider did."""
    if message := details.get("refusal"):
        return str(message), "refusal"
    if details.get("finish_reason") == "refusal":
        return "the model refused (stop_reason = refusal)", "refusal"
    for name in ("block_reason", "finish_reason"):
        if value := details.get(name):
            message = details.get("block_reason_message")
            return f"{name} = {value}{f': {message}' if message else ''}", "blocked"
    return "the provider's content filter", "blocked"


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object; raises `ValueError` where a key stands twice, as it is unknown which value was meant."""
    keys = [key for key, _ in pairs]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return dict(pairs)


def _not_a_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _unfenced(text: str) -> str:
    """Some local servers wrap the JSON in a Markdown fence."""
    fenced = _FENCED.match(text)
    return fenced.group(1) if fenced else text


def _message(body: Json) -> str:
    """The server's own error message, at whatever depth."""
    if isinstance(body, str):
        return " ".join(body.split())
    while isinstance(body, dict):
        fields = cast("dict[str, Json]", body)
        if message := fields.get("message"):
            return " ".join(str(message).split())
        body = fields.get("error")
    return ""
