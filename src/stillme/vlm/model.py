"""A model that can be asked from any thread."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stillme.errors import StillmeError, UnreadableImage
from stillme.throttle import RateLimiter
from stillme.types import Failed, ImageFile, Json
from stillme.vlm import event_loop, prices
from stillme.vlm.connection import Connection, connect, dry_run
from stillme.vlm.image_encoding import EncodedImage, ImageEncoder
from stillme.vlm.reading import Fault, fault_of, read
from stillme.vlm.replies import Answered, Malformed, ModelDeclined, Question, Reply
from stillme.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


@dataclass(frozen=True, slots=True)
class PreparedQuestion:
    """A question with its images encoded."""

    question: Question
    parts: tuple[str | EncodedImage, ...]

    @property
    def sizes(self) -> list[list[int]]:
        """Width and height of each image as sent."""
        return [list(part.size) for part in self.parts if isinstance(part, EncodedImage)]


class Model:
    """One model of one provider. Cheap to construct: it connects with the first question."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.encoder = ImageEncoder(settings.image_side, settings.image_quality)
        self._limiter = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._locked_out: Failed | None = None

    def problems(self) -> list[str]:
        """Settings that this model would ignore, each as a sentence. Sends nothing."""
        return dry_run(self.settings).problems

    def ask(self, question: Question) -> Reply:
        """Ask, and once more if the answer is malformed. Failures are values, not exceptions."""
        if self._locked_out:
            return self._locked_out
        try:
            prepared = self.prepare(question)
            connection = self.connection()
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=False)
        except StillmeError as error:
            return self._lock_out(Failed(error=str(error), retryable=True))
        return event_loop.run(self._ask(connection, prepared))

    def ask_again(self, question: Question, first: Malformed) -> Reply:
        """Ask a second and last time, after a batch returned a malformed answer."""
        if self._locked_out:
            return _with_first_attempt(self._locked_out, first)
        second = event_loop.run(self._attempt(self.connection(), self.prepare(question)))
        return _with_first_attempt(second, first)

    def prepare(self, question: Question) -> PreparedQuestion:
        """Encode the question's images, or take them from the cache."""
        parts = (self.encoder.encode(part) if isinstance(part, ImageFile) else part for part in question.parts)
        return PreparedQuestion(question, tuple(parts))

    def close(self) -> None:
        """Close the connection and end a lock-out. The next question connects again."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._locked_out = None
        if connection is not None:
            event_loop.run(connection.close())

    def connection(self) -> Connection:
        """The open connection; raises `StillmeError` for a missing key or a setting that would be ignored."""
        with self._lock:
            if self._connection is None:
                self._connection = connect(self.settings, key_of(self.settings))
            return self._connection

    def reply_of(
        self, response: ModelResponse, prepared: PreparedQuestion, connection: Connection, *, batch: bool = False
    ) -> Reply:
        """Read a response, with its cost and the settings that really applied."""
        cost = prices.dollars(self.settings, response, batch=batch)
        effective = _effective(response, prepared, connection, batch=batch)
        if cost is None:
            effective["cost"] = "unknown"
        return read(response, prepared.question.answer, effective, cost or 0.0)

    async def _ask(self, connection: Connection, prepared: PreparedQuestion) -> Reply:
        first = await self._attempt(connection, prepared)
        if not isinstance(first, Malformed):
            return first
        return _with_first_attempt(await self._attempt(connection, prepared), first)

    async def _attempt(self, connection: Connection, prepared: PreparedQuestion) -> Reply:
        turn = await self._limiter.wait_async()
        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await connection.send(prepared.question, prepared.parts)
        except Exception as error:
            return self._failed(fault_of(error, self.settings.timeout))
        self._limiter.settle(turn, response.usage.total_tokens)
        return self.reply_of(response, prepared, connection)

    def _failed(self, fault: Fault | ModelDeclined) -> Reply:
        if isinstance(fault, ModelDeclined):
            return fault
        failed = replace(fault.failed, error=f"{self.settings.model}: {self._without_key(fault.failed.error)}")
        if fault.slow_down and failed.retry_after:
            self._limiter.pause(failed.retry_after)
        return self._lock_out(failed) if fault.account else failed

    def _lock_out(self, failed: Failed) -> Failed:
        """Fail all further questions at once: thousands of calls would only repeat the error."""
        self._locked_out = replace(failed, retry_after=0.0)
        return failed

    def _without_key(self, text: str) -> str:
        """Some servers repeat a rejected key in their error; it must not reach the ledger."""
        key = os.environ.get(self.settings.key_name, "").strip() if self.settings.key_name else ""
        return text.replace(key, "…") if len(key) >= 4 else text


def key_of(settings: ModelSettings) -> str:
    """The key from the environment, or a placeholder for a server that needs none."""
    if not (name := settings.key_name):
        return "none"
    key = os.environ.get(name, "").strip()
    if key and key.isascii():
        return key
    problem = "contains characters that no key has" if key else "is not set"
    raise StillmeError(f"{name} {problem}: run `export {name}=…` with your key.")


def _with_first_attempt(second: Reply, first: Malformed) -> Reply:
    """The second attempt's reply, with the first one's text and cost."""
    cost = first.cost + second.cost
    match second:
        case Failed():
            return replace(second, error=f"{second.error} (before that: {first.problem})", cost=cost)
        case Answered() | ModelDeclined() | Malformed():
            return replace(second, earlier=first.text, effective={**second.effective, "asked": 2}, cost=cost)


def _effective(
    response: ModelResponse, prepared: PreparedQuestion, connection: Connection, *, batch: bool
) -> dict[str, Json]:
    details: dict[str, Any] = response.provider_details or {}
    used = response.usage
    effective: dict[str, Json] = {
        "model": response.model_name,
        "sent": dict(connection.sent),
        "images": prepared.sizes,
        "tokens": {"input": used.input_tokens, "output": used.output_tokens, **_reasoning_tokens(used.details)},
        "finish": str(details.get("finish_reason") or response.finish_reason or ""),
    }
    if tier := details.get("service_tier"):
        effective["service_tier"] = tier
    if response.provider_response_id:
        effective["response"] = response.provider_response_id
    if batch:
        effective["delivery"] = "batch"
    return effective


def _reasoning_tokens(details: dict[str, int]) -> dict[str, int]:
    names = ("reasoning_tokens", "thoughts_tokens", "thinking_tokens")
    counts = [details[name] for name in names if details.get(name)]
    return {"thoughts": counts[0]} if counts else {}
