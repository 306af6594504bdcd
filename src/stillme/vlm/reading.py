"""What came back, told apart: an answer, a refusal or block, a malformed answer, a failure.

A refusal is only what a provider marks as one, in a field made for machines. An answer is only what keeps the schema,
strictly: a score as text, a half point or a sixth point is malformed, not rounded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from stillme.types import Failed, Json
from stillme.vlm.replies import Answered, Declined, Malformed

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError
    from pydantic_ai.messages import ModelResponse

_WORDS = 600
_POLICY = frozenset({"content_filter", "content_policy_violation", "invalid_prompt", "moderation_blocked"})
"""Error codes by which OpenAI and servers like it say that a request is against their policy."""
_RETRY_DELAY = re.compile(r"'retryDelay': '(\d+(?:\.\d+)?)s'")
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A failure, and what it says about the next question."""

    failed: Failed
    account: bool = False
    """Every other question would fail alike until the user acts."""
    slow_down: bool = False
    """All of us are asking too often, not only this question."""


def read(
    response: ModelResponse, answer: type[BaseModel], effective: Mapping[str, Json], cost: float
) -> Answered | Declined | Malformed:
    """The reply that a response stands for."""
    text = response.text or ""
    about = response.provider_details or {}
    if response.finish_reason == "content_filter":
        reason, kind = _declined(about)
        return Declined(reason=reason, kind=kind, raw=text or None, effective=effective, cost=cost)
    if response.finish_reason == "length":
        return Malformed(text=text, problem="the answer was cut off", effective=effective, cost=cost)
    try:
        value = answer.model_validate_json(_unfenced(text), strict=True)
    except ValidationError as error:
        return Malformed(text=text, problem=_problem(error), effective=effective, cost=cost)
    return Answered(text=text, value=value, effective=effective, cost=cost)


def fault_of(error: Exception, timeout: float) -> Fault | Declined:
    """The failure that an exception stands for; a policy error is a block."""
    from pydantic_ai import exceptions as known

    # From special to general.
    match error:
        case asyncio.TimeoutError() | known.ModelTimeoutError() | known.ModelRequestTimeout():
            return _passing(f"no whole answer within {timeout:g} s", error)
        case known.ModelAPIError() if str(error.provider_error_code) in _POLICY:
            return Declined(reason=f"{error.provider_error_code}: {_words(error)}", kind="blocked")
        case known.ModelAuthenticationError() | known.ModelQuotaExceededError() | known.ModelNotFoundError():
            # The same for every question, and gone once the user has acted: never final.
            return Fault(failed=Failed(error=_words(error), retryable=True), account=True)
        case known.ModelRateLimitError():
            return Fault(failed=Failed(error=_words(error), retryable=True, retry_after=_pause(error)), slow_down=True)
        case known.ModelHTTPError():
            passing = error.status_code >= 500 or error.status_code in (408, 409, 425, 429)
            return Fault(failed=Failed(error=_words(error), retryable=passing, retry_after=_pause(error)))
        case known.ModelRequestRejectedError():
            return Fault(failed=Failed(error=_words(error), retryable=False))
        case known.UserError():
            return Fault(failed=Failed(error=_words(error), retryable=False))
        case _:
            return _passing(_words(error), error)


def _declined(about: Mapping[str, Any]) -> tuple[str, Any]:
    if said := about.get("refusal"):
        return str(said), "refusal"
    if about.get("finish_reason") == "refusal":
        return "the model refused (stop_reason = refusal)", "refusal"
    for field in ("block_reason", "finish_reason"):
        if value := about.get(field):
            words = about.get("block_reason_message")
            return f"{field} = {value}{f': {words}' if words else ''}", "blocked"
    return "the provider's content filter", "blocked"


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"


def _unfenced(text: str) -> str:
    """Some local servers put JSON into a Markdown fence; the JSON inside is the answer as it was given."""
    found = _FENCED.match(text)
    return found.group(1) if found else text


def _passing(words: str, error: Exception) -> Fault:
    return Fault(failed=Failed(error=words, retryable=True, retry_after=getattr(error, "retry_after", None)))


def _pause(error: ModelAPIError) -> float | None:
    """Seconds to wait, if the server said how long: in a header, or, as Gemini does, inside the body."""
    if error.retry_after is not None:
        return error.retry_after
    found = _RETRY_DELAY.search(str(error.body))
    return float(found.group(1)) if found else None


def _words(error: Exception) -> str:
    status: object = getattr(error, "status_code", None)
    said = _message(cast("Json", getattr(error, "body", None))) if status is not None else ""
    line = f"{status}: {said}" if said else " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= _WORDS else f"{line[:_WORDS]}…"


def _message(body: Json) -> str:
    """The server's own sentence, wherever it put it."""
    while isinstance(body, dict):
        known = cast("dict[str, Json]", body)
        if said := known.get("message"):
            return " ".join(str(said).split())
        body = known.get("error")
    return ""
