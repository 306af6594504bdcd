"""A model that can be asked from any thread."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stillme.errors import StillmeError, UnreadableImage
from stillme.types import Failed, ImageFile, Json
from stillme.vlm import loop, prices, wire
from stillme.vlm.limits import Allowance
from stillme.vlm.pictures import Darkroom, Picture
from stillme.vlm.reading import Fault, fault_of, read
from stillme.vlm.replies import Answered, Declined, Malformed, Question, Reply
from stillme.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with its pictures encoded."""

    question: Question
    parts: tuple[str | Picture, ...]

    @property
    def sizes(self) -> list[list[int]]:
        """Width and height of each picture, as sent."""
        return [list(part.size) for part in self.parts if isinstance(part, Picture)]


class Model:
    """One model of one provider. Cheap to build: clients come with the first question."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.darkroom = Darkroom(settings.image_side, settings.image_quality)
        self._allowance = Allowance(settings.requests_per_minute, settings.tokens_per_minute)
        self._lock = threading.Lock()
        self._line: wire.Line | None = None
        self._locked_out: Failed | None = None

    def objections(self) -> list[str]:
        """What this model would ignore of its settings, each as a sentence. Sends nothing."""
        return wire.rehearse(self.settings).ignored

    def ask(self, question: Question) -> Reply:
        """Ask, and once more if the answer is malformed. What goes wrong is a value, not an exception."""
        if self._locked_out:
            return self._locked_out
        try:
            prepared = self.prepare(question)
            line = self._connected()
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=False)
        except StillmeError as error:
            return self._lock_out(Failed(error=str(error), retryable=True))
        return loop.run(self._ask(line, prepared))

    def ask_again(self, question: Question, first: Malformed) -> Reply:
        """Ask a second and last time, after a malformed answer that came by another way."""
        if self._locked_out:
            return both(first, self._locked_out)
        return both(first, loop.run(self._attempt(self._connected(), self.prepare(question))))

    def prepare(self, question: Question) -> Prepared:
        """Encode the question's pictures, each once for as long as it is remembered."""
        parts = (self.darkroom.develop(part) if isinstance(part, ImageFile) else part for part in question.parts)
        return Prepared(question, tuple(parts))

    def close(self) -> None:
        """Close the connections. A further question opens them again, and asks again after a lock-out."""
        with self._lock:
            line, self._line = self._line, None
            self._locked_out = None
        if line is not None:
            loop.run(line.close())

    def line(self) -> wire.Line:
        """The open connection, for batches; raises `StillmeError` for a missing key or a setting that has no effect."""
        return self._connected()

    def understood(self, response: ModelResponse, prepared: Prepared, line: wire.Line, *, batch: bool = False) -> Reply:
        """The reply that a response stands for, with what it cost and what really applied."""
        cost = prices.dollars(self.settings, response, batch=batch)
        effective = _effective(response, prepared, line, batch=batch)
        if cost is None:
            effective["cost"] = "unknown"
        return read(response, prepared.question.answer, effective, cost or 0.0)

    async def _ask(self, line: wire.Line, prepared: Prepared) -> Reply:
        first = await self._attempt(line, prepared)
        if not isinstance(first, Malformed):
            return first
        second = await self._attempt(line, prepared)
        return both(first, second)

    async def _attempt(self, line: wire.Line, prepared: Prepared) -> Reply:
        turn, set_aside = self._allowance.take()
        while (left := self._allowance.wait(turn)) > 0:
            await asyncio.sleep(left)
        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await line.send(prepared.question, prepared.parts)
        except Exception as error:
            return self._faulted(fault_of(error, self.settings.timeout))
        self._allowance.settle(set_aside, response.usage.total_tokens)
        return self.understood(response, prepared, line)

    def _faulted(self, fault: Fault | Declined) -> Reply:
        if isinstance(fault, Declined):
            return fault
        told = replace(fault.failed, error=f"{self.settings.model}: {self._without_key(fault.failed.error)}")
        if fault.slow_down and told.retry_after:
            self._allowance.hold(told.retry_after)
        return self._lock_out(told) if fault.account else told

    def _lock_out(self, failed: Failed) -> Failed:
        """Thousands of further questions would only repeat it."""
        self._locked_out = replace(failed, retry_after=0.0)
        return failed

    def _connected(self) -> wire.Line:
        with self._lock:
            if self._line is None:
                self._line = wire.connect(self.settings, key_of(self.settings))
            return self._line

    def _without_key(self, words: str) -> str:
        """Some servers repeat the key that they did not like; it must not reach the ledger."""
        key = os.environ.get(self.settings.key_name, "").strip() if self.settings.key_name else ""
        return words.replace(key, "…") if len(key) >= 4 else words


def key_of(settings: ModelSettings) -> str:
    """The key from the environment; a server that wants none gets a word that is none."""
    if not (name := settings.key_name):
        return "none"
    key = os.environ.get(name, "").strip()
    if key and key.isascii():
        return key
    what = "holds characters that no key has" if key else "is not set"
    raise StillmeError(f"{name} {what}: run `export {name}=…` with your key.")


def both(first: Malformed, second: Reply) -> Reply:
    """The second try's reply, with the first one's text and cost kept."""
    match second:
        case Failed():
            return replace(
                second, error=f"{second.error} (before that: {first.problem})", cost=second.cost + first.cost
            )
        case Answered() | Declined() | Malformed():
            asked = {**second.effective, "asked": 2}
            return replace(second, earlier=first.text, effective=asked, cost=second.cost + first.cost)


def _effective(response: ModelResponse, prepared: Prepared, line: wire.Line, *, batch: bool) -> dict[str, Json]:
    about: dict[str, Any] = response.provider_details or {}
    used = response.usage
    told: dict[str, Json] = {
        "model": response.model_name,
        "sent": dict(line.sent),
        "images": prepared.sizes,
        "tokens": {"input": used.input_tokens, "output": used.output_tokens, **_thoughts(used.details)},
        "finish": str(about.get("finish_reason") or response.finish_reason or ""),
    }
    if tier := about.get("service_tier"):
        told["service_tier"] = tier
    if response.provider_response_id:
        told["response"] = response.provider_response_id
    if batch:
        told["delivery"] = "batch"
    return told


def _thoughts(details: dict[str, int]) -> dict[str, int]:
    named = [details[name] for name in ("reasoning_tokens", "thoughts_tokens", "thinking_tokens") if details.get(name)]
    return {"thoughts": named[0]} if named else {}
