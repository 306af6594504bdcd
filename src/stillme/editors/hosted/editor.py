"""What all hosted editors share: rate limits, account faults, refusals, redaction, cost."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Price, Usage, dollars
from stillme.editors.hosted.encoded_images import EncodedImage, encode_for_upload, size_of
from stillme.editors.hosted.faults import CallFailed, Declined
from stillme.errors import UnreadableImage
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.throttle import RateLimiter, TooEarly
from stillme.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Refused, Request

_MEGAPIXEL = (1024, 1024)


class HostedParameters(Parameters):
    """Settings of every hosted editor. Those that cannot change a picture are not part of the key."""

    model: str = Field(min_length=1)
    base_url: str = Field(pattern=r"^https?://")
    extra: dict[str, Any] = {}
    """Further fields of the request, sent as they are."""

    inputs: int | None = Field(default=None, ge=1, exclude=True)
    """How many portraits a request may carry, for a model that the catalogue does not list."""
    price: Price | None = Field(default=None, exclude=True)
    """The model's prices, if the catalogue lacks them or is out of date."""
    requests_per_minute: float | None = Field(default=None, gt=0, exclude=True)
    concurrency: int = Field(default=4, ge=1, le=256, exclude=True)
    """Calls at once."""
    timeout: float = Field(default=300.0, gt=0, exclude=True)
    """Seconds for one edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, ready to send."""

    instruction: str
    pictures: tuple[EncodedImage, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The provider returned an image."""

    image: bytes
    usage: Usage = field(default_factory=Usage)
    effective: Mapping[str, Json] = field(default_factory=lambda: dict[str, Json]())


class _Connection(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Connection)


class Hosted(ABC, Generic[C]):
    """An editor behind a connection `C`. A subclass implements connecting and one call."""

    Parameters: ClassVar[type[BaseModel]]
    needs: ClassVar[Needs]

    service: ClassVar[str]
    """Its section in the catalogue, and its name in audits."""
    version: ClassVar[str] = "1"
    key_variable: ClassVar[str]
    """The environment variable that holds the key."""
    key_required: ClassVar[bool] = True
    reserved: ClassVar[frozenset[str]] = frozenset({"prompt", "model"})
    """Fields that `extra` must not set: the experiment decides them."""
    seed: ClassVar[Literal["best_effort", "none"]] = "best_effort"

    def __init__(self, parameters: HostedParameters) -> None:
        self._settings = parameters
        self._key_variable = self.key_variable
        self.facts = catalogue.service(self.service).facts(parameters.model)
        self.spec = spec_of(self.service, self.version, parameters)
        self.capabilities = Capabilities(
            inputs=parameters.inputs or self.facts.inputs,
            concurrency=parameters.concurrency,
            seed=self.seed,
            size="any",
            can_refuse=True,
        )
        self._limiter = RateLimiter(parameters.requests_per_minute)
        self._lock = threading.Lock()
        self._connection: C | None = None

    @abstractmethod
    def _connect(self, key: str) -> C:
        """Open a connection; called once, before the first edit. SDKs are imported here."""

    @abstractmethod
    def _ask(self, connection: C, call: Call) -> Answer:
        """Make one edit; raise `Declined` or `CallFailed` otherwise."""

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Settings that this model is known to reject, and extra fields that would change the experiment."""
        given = self._settings.model_dump() | self._settings.extra
        for name in self.facts.rejects:
            if given.get(name) is not None:
                yield f"`{name}` is rejected by {self._settings.model!r}; leave it out"
        for name, choices in self.facts.choices.items():
            if given.get(name) is not None and given[name] not in choices:
                allowed = ", ".join(choices)
                yield f"{name} = {given[name]!r} is not offered by {self._settings.model!r}; write one of {allowed}"
        for name in sorted(self._reserved() & self._settings.extra.keys()):
            yield f"`extra.{name}` would override what the audit sets; remove it"

    def expected_dollars(self) -> float | None:
        """The cost of one edit of a one-megapixel portrait; None if it depends on tokens or is unknown."""
        price = self._settings.price or self.facts.price
        return dollars(price, Usage(images=1, sizes=[_MEGAPIXEL, _MEGAPIXEL])) if price and not price.second else None

    def _reserved(self) -> frozenset[str]:
        return self.reserved

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One call per request."""
        for request in requests:
            yield self._outcome(request)

    def close(self) -> None:
        """Close the connection. The next edit opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _outcome(self, request: Request) -> EditOutcome:
        given, taken = len(request.portraits), self.capabilities.inputs
        if given > taken:
            return Failed(error=f"{self._settings.model!r} takes {taken} portraits, not {given}", retryable=False)
        try:
            pictures = tuple(encode_for_upload(portrait.image.path) for portrait in request.portraits)
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=False)
        call = Call(instruction=request.instruction, pictures=pictures, seed=request.seed)
        turn = self._limiter.wait()
        if isinstance(turn, TooEarly):
            return turn.failed(self.service)
        try:
            return self._edited(call, self._ask(self._connected(), call))
        except Declined as declined:
            cost, note = self._cost(declined.usage)
            return Refused(message=declined.message, effective={"signal": declined.signal, **note}, cost=cost)
        except CallFailed as failure:
            return self._failed(failure)

    def _edited(self, call: Call, answer: Answer) -> Edited:
        width, height = size_of(answer.image)
        sizes = [*(picture.size for picture in call.pictures), (width, height)]
        usage = _with_pictures(answer.usage, sizes)
        cost, note = self._cost(usage)
        return Edited(image=answer.image, effective={"size": [width, height], **answer.effective, **note}, cost=cost)

    def _failed(self, failure: CallFailed) -> Failed:
        failed, (cost, _) = failure.failed, self._cost(failure.usage)
        error = f"{self.service}: {self._redacted(failed.error)}"
        return replace(failed, error=error, fatal=failure.account, throttled=failure.slow_down, cost=cost)

    def _cost(self, usage: Usage) -> tuple[float, Mapping[str, Json]]:
        cost = dollars(self._settings.price or self.facts.price, usage)
        return (0.0, {"cost": "unknown"}) if cost is None else (cost, {})

    def _connected(self) -> C:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect(self._key())
            return self._connection

    def _key(self) -> str:
        key = self._environment()
        if key.isascii() and (key or not self.key_required):
            return key or "none"
        what = "contains characters that no key has" if key else "is not set"
        raise CallFailed(
            f"{self._key_variable} {what}: run `export {self._key_variable}=…` with your key",
            retryable=True,
            account=True,
        )

    def _redacted(self, message: str) -> str:
        """Some servers repeat a rejected key; it must not be stored."""
        key = self._environment()
        return message.replace(key, "…") if len(key) >= 4 else message

    def _environment(self) -> str:
        return os.environ.get(self._key_variable, "").strip()


def _with_pictures(usage: Usage, sizes: Sequence[tuple[int, int]]) -> Usage:
    return Usage(
        input_text=usage.input_text,
        input_image=usage.input_image,
        output_text=usage.output_text,
        output_image=usage.output_image,
        images=1,
        sizes=sizes,
        seconds=usage.seconds,
    )
