"""Tell responses and errors apart: an answer, a refusal or block, a malformed answer, a failure.

Only a machine-readable signal of the provider is a refusal. Answers are validated strictly: a score as text, a half
point or a score of 6 is malformed, never rounded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from stillme.types import Failed, Json
from stillme.vlm.replies import Answered, Malformed, ModelDeclined

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError
    from pydantic_ai.messages import ModelResponse

_LONGEST_ERROR = 600
"""Characters; a server may answer with a whole web page."""
_POLICY_CODES = frozenset({"content_filter", "content_policy_violation", "invalid_prompt", "moderation_blocked"})
"""Error codes of a policy violation, at OpenAI and compatible servers."""
_RETRY_DELAY = re.compile(r"'retryDelay': '(\d+(?:\.\d+)?)s'")
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A failure, and what it means for the next question."""

    failed: Failed
    account: bool = False
    """Every question fails the same way until the user acts: a wrong key, no credit, no such model."""
    slow_down: bool = False
    """A rate limit: all callers must slow down."""


def read(
    response: ModelResponse, answer: type[BaseModel], effective: Mapping[str, Json], cost: float
) -> Answered | Malformed | ModelDeclined:
    """Classify a response."""
    text = response.text or ""
    if response.finish_reason == "content_filter":
        reason, kind = _refusal(response.provider_details or {})
        return ModelDeclined(reason=reason, kind=kind, raw=text or None, effective=effective, cost=cost)
    if response.finish_reason == "length":
        return Malformed(text=text, problem="the answer was truncated", effective=effective, cost=cost)
    try:
        value = answer.model_validate_json(_unfenced(text), strict=True)
    except ValidationError as error:
        return Malformed(text=text, problem=_problem(error), effective=effective, cost=cost)
    return Answered(text=text, value=value, effective=effective, cost=cost)


def _status(error: Exception) -> str:
    """The provider's HTTP status, where there was one."""
    return str(getattr(error, "status_code", None) or "")


def fault_of(error: Exception, timeout: float) -> Fault | ModelDeclined:
    """Classify an exception; a policy error is a block, not a failure."""
    from pydantic_ai import exceptions

    # From specific to general.
    match error:
        case asyncio.TimeoutError() | exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout():
            return _transient(f"no complete answer within {timeout:g} s", error)
        case exceptions.ModelAPIError() if str(error.provider_error_code) in _POLICY_CODES:
            return ModelDeclined(reason=f"{error.provider_error_code}: {_error_text(error)}", kind="blocked")
        case (
            exceptions.ModelAuthenticationError()
            | exceptions.ModelQuotaExceededError()
            | exceptions.ModelNotFoundError()
        ):
            # Never final: the user can fix it and run again.
            return Fault(failed=Failed(error=_error_text(error), retryable=True, status=_status(error)), account=True)
        case exceptions.ModelRateLimitError():
            return Fault(
                failed=Failed(
                    error=_error_text(error), retryable=True, retry_after=_retry_after(error), status=_status(error)
                ),
                slow_down=True,
            )
        case exceptions.ModelHTTPError():
            transient = error.status_code >= 500 or error.status_code in (408, 409, 425, 429)
            return Fault(
                failed=Failed(
                    error=_error_text(error),
                    retryable=transient,
                    retry_after=_retry_after(error),
                    status=_status(error),
                )
            )
        case exceptions.ModelRequestRejectedError():
            return Fault(failed=Failed(error=_error_text(error), retryable=False))
        case exceptions.UserError():
            return Fault(failed=Failed(error=_error_text(error), retryable=False))
        case _:
            return _transient(_error_text(error), error)


def _refusal(details: Mapping[str, Any]) -> tuple[str, Any]:
    """Why the provider stopped the answer, and whether model or provider did."""
    if message := details.get("refusal"):
        return str(message), "refusal"
    if details.get("finish_reason") == "refusal":
        return "the model refused (stop_reason = refusal)", "refusal"
    for field in ("block_reason", "finish_reason"):
        if value := details.get(field):
            message = details.get("block_reason_message")
            return f"{field} = {value}{f': {message}' if message else ''}", "blocked"
    return "the provider's content filter", "blocked"


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"


def _unfenced(text: str) -> str:
    """Some local servers wrap the JSON in a Markdown fence."""
    fenced = _FENCED.match(text)
    return fenced.group(1) if fenced else text


def _transient(text: str, error: Exception) -> Fault:
    return Fault(failed=Failed(error=text, retryable=True, retry_after=getattr(error, "retry_after", None)))


def _retry_after(error: ModelAPIError) -> float | None:
    """Seconds to wait, if the server says so: in a header or, as Gemini does, in the body."""
    if error.retry_after is not None:
        return error.retry_after
    delay = _RETRY_DELAY.search(str(error.body))
    return float(delay.group(1)) if delay else None


def _error_text(error: Exception) -> str:
    status: object = getattr(error, "status_code", None)
    message = _message(cast("Json", getattr(error, "body", None))) if status is not None else ""
    line = f"{status}: {message}" if message else " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= _LONGEST_ERROR else f"{line[:_LONGEST_ERROR]}…"


def _message(body: Json) -> str:
    """The server's own error message, at whatever depth."""
    while isinstance(body, dict):
        fields = cast("dict[str, Json]", body)
        if message := fields.get("message"):
            return " ".join(str(message).split())
        body = fields.get("error")
    return ""
