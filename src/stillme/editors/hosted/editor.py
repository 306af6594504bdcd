"""What all hosted editors share: rate limits, refusals, failures, checked pictures, cost, and keys that stay secret."""

from __future__ import annotations

import io
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from PIL import Image
from pydantic import AliasChoices, BaseModel, Field

from stillme import images
from stillme.addresses import problems_of
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Price, Usage, dollars
from stillme.editors.hosted.encoded_images import EncodedImage, encode_for_upload, from_base64
from stillme.editors.hosted.faults import CallFailed, Declined, JobGone
from stillme.errors import UnreadableImage
from stillme.http_calls.replies import Reply, Unanswered, is_temporary
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.redaction import redacted, shortened, without_secrets
from stillme.throttle import RateLimiter, TooEarly
from stillme.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Refused, Request

if TYPE_CHECKING:
    from stillme.http_calls.client import Connection

_MEGAPIXEL = (1024, 1024)
MAX_FAILURES = 5
"""Looks in a row at something paid for that fail before a call ends."""
LONGEST_PAUSE = 10.0
"""Seconds; who says to come back later than that is left in peace, and the worker is free for something else."""


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
    """Seconds for one whole answer; for queued work, also the longest wait before a call ends."""
    key_variable: str | None = Field(
        default=None, validation_alias=AliasChoices("key_variable", "api_key_env"), exclude=True
    )
    """The environment variable that holds the key, if not the provider's usual one; "" for a server without keys."""
    insecure_http: bool = Field(default=False, exclude=True)
    """Send the key also over plain http to a public address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, ready to send."""

    instruction: str
    pictures: tuple[EncodedImage, ...]
    seed: int
    key: str = ""
    """The request's key, under which queued work is remembered. It is not sent."""


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
    """An editor behind a connection `C`. A subclass implements `_connect` and `_ask`.

    `_ask` returns an `Answer`, or raises `Declined` or `CallFailed`, each with the `Usage` that was charged. Texts and
    effective parameters are redacted and pictures are decoded here, for all providers alike.
    """

    Parameters: ClassVar[type[BaseModel]]
    needs: ClassVar[Needs]

    service: ClassVar[str]
    """Its section in the catalogue, and its name in audits."""
    version: ClassVar[str] = "1"
    key_variable: ClassVar[str]
    """The environment variable that usually holds the key; "" if there is none."""
    key_required: ClassVar[bool] = True
    reserved: ClassVar[frozenset[str]] = frozenset({"prompt", "model"})
    """Fields that `extra` must not set: the experiment decides them."""
    seed: ClassVar[Literal["best_effort", "none"]] = "best_effort"
    more_inputs: ClassVar[str] = ""
    """What a message about too many portraits adds."""

    def __init__(self, parameters: HostedParameters) -> None:
        self._settings = parameters
        self._key_variable = self.key_variable if parameters.key_variable is None else parameters.key_variable
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
        self._poll_seconds = 0.5
        self._lock = threading.Lock()
        self._connection: C | None = None
        self._storage: Connection | None = None

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
        yield from self._address_problems(self._settings.base_url)

    @property
    def provider(self) -> str:
        """The server's address."""
        return urlsplit(self._settings.base_url).netloc

    def expected_dollars(self) -> float | None:
        """The approximate cost of one edit of a one-megapixel portrait; None if unknown."""
        price = self._price
        return dollars(price, self._expected_usage()) if price else None

    def _expected_usage(self) -> Usage:
        """What one edit of a one-megapixel portrait uses. Override it for models that are charged by tokens."""
        seconds = self._price.usual_seconds if self._price else 0.0
        return Usage(images=1, sizes=[_MEGAPIXEL, _MEGAPIXEL], seconds=seconds)

    def _exact_size(self) -> tuple[int, int] | None:
        """Width and height that the picture must have, where the API promises them."""
        return None

    def _give_up(self, call: Call) -> None:
        """Forget queued work that gives no picture. Nothing to do for providers that answer at once."""

    @property
    def _price(self) -> Price | None:
        return self._settings.price or self.facts.price

    def _reserved(self) -> frozenset[str]:
        return self.reserved

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One call per request."""
        for request in requests:
            yield self._outcome(request)

    def close(self) -> None:
        """Close the connection. The next edit opens it again."""
        with self._lock:
            connections = (self._connection, self._storage)
            self._connection = self._storage = None
        for connection in connections:
            if connection is not None:
                connection.close()

    def _outcome(self, request: Request) -> EditOutcome:
        given, taken = len(request.portraits), self.capabilities.inputs
        if given > taken:
            error = f"{self._settings.model!r} takes {taken} portraits, not {given}{self.more_inputs}"
            return Failed(error=error, retryable=False)
        try:
            pictures = tuple(encode_for_upload(portrait.image.path) for portrait in request.portraits)
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=False)
        call = Call(instruction=request.instruction, pictures=pictures, seed=request.seed, key=request.key)
        turn = self._limiter.wait()
        if isinstance(turn, TooEarly):
            return turn.failed(self.service)
        try:
            return self._edited(call, self._ask(self._connected(), call))
        except Declined as declined:
            cost, note = self._cost(declined.usage, call)
            effective = self._without_secrets({"signal": declined.signal, **note})
            return Refused(message=self._redacted(declined.message), effective=effective, cost=cost)
        except CallFailed as failure:
            if isinstance(failure, JobGone) or not failure.failed.retryable:
                self._give_up(call)
            return self._failed(failure, call)

    def _edited(self, call: Call, answer: Answer) -> Edited:
        usage = replace(answer.usage, images=1)
        try:
            size = images.read_picture(answer.image, name="the returned file").size
        except UnreadableImage as error:
            raise JobGone(str(error).rstrip(".") + _legible(answer.image), usage=usage) from None
        if (exact := self._exact_size()) and size != exact:
            raise JobGone(f"the picture has {size[0]}×{size[1]} pixels instead of {exact[0]}×{exact[1]}", usage=usage)
        cost, note = self._cost(usage, call, size)
        effective = self._without_secrets({"size": list(size), **answer.effective, **note})
        return Edited(image=answer.image, effective=effective, cost=cost)

    def _failed(self, failure: CallFailed, call: Call) -> Failed:
        error = f"{self.service}: {shortened(self._redacted(failure.failed.error))}"
        if failure.usage == Usage():  # rejected, or not done yet
            return replace(failure.failed, error=error)
        cost, note = self._cost(failure.usage, call)
        return replace(failure.failed, error=error, effective=note, cost=cost)

    def _cost(self, usage: Usage, call: Call, size: tuple[int, int] | None = None) -> tuple[float, Mapping[str, Json]]:
        """The dollars, and a note if they are unknown. A picture of unknown size is taken to be like the portrait."""
        if usage.images and not usage.sizes:
            portraits = [picture.size for picture in call.pictures]
            usage = replace(usage, sizes=[*portraits, size or portraits[0]])
        cost = dollars(self._price, usage)
        return (0.0, {"cost": "unknown"}) if cost is None else (cost, {})

    # -- pictures that are paid for ---------------------------------------------------------------------------------

    def _picture(self, link: Json, renewed: Callable[[], Json] | None = None) -> bytes:
        """The picture behind a link or in a data URI. It is paid for: what does not give it is asked again.

        `renewed` asks the job for a new link. Without it, a link that leads nowhere for good is a job that is gone.
        """
        if not isinstance(link, str) or urlsplit(link).scheme not in ("http", "https", "data"):
            raise JobGone(f"no link to a picture; the answer: {link}")
        if link.startswith("data:"):
            try:
                return from_base64(link.partition(";base64,")[2])
            except CallFailed as broken:
                raise JobGone(broken.failed.error) from None
        problem, lost = "", False
        for failures in range(MAX_FAILURES + 1):
            if failures:
                time.sleep(self._pause(failures - 1))
                again = renewed() if renewed else link
                link = again if isinstance(again, str) else link
            try:
                reply = self._download(link)
            except Unanswered as error:
                problem, lost = str(error), False
                continue
            if reply.status < 300 and _begins_a_picture(reply.content):
                return reply.content
            # Who keeps the picture is not the provider: none of its statuses concerns the account.
            problem, lost = f"{reply.status}: {reply.text[:200] or 'empty'}", not is_temporary(reply.status)
        if lost and renewed is None:
            raise JobGone(f"the picture is not there ({problem})")
        raise CallFailed(f"the picture cannot be fetched for now ({problem})", retryable=True)

    def _download(self, link: str) -> Reply:
        """What is behind a link, without our headers: its host must not see a key."""
        from stillme.http_calls.client import Connection

        with self._lock:
            if self._storage is None:
                self._storage = Connection(timeout=self._settings.timeout, follow_redirects=True)
            storage = self._storage
        return storage.send("GET", link)

    def _pause(self, failures: int) -> float:
        return min(self._poll_seconds * 2**failures, LONGEST_PAUSE)

    # -- keys -------------------------------------------------------------------------------------------------------

    def _connected(self) -> C:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect(self._key())
            return self._connection

    def _key(self, url: str | None = None) -> str:
        """The key, if it may be sent to this address (by default `base_url`); "none" for a server without keys."""
        for problem in self._address_problems(url or self._settings.base_url):
            raise CallFailed(problem, retryable=True, fatal=True)
        key = self._environment()
        if key.isascii() and (key or not (self._key_variable and (self.key_required or self._settings.key_variable))):
            return key or "none"
        what = "contains characters that no key has" if key else "is not set"
        raise CallFailed(
            f"{self._key_variable} {what}: run `export {self._key_variable}=…` with your key",
            retryable=True,
            fatal=True,
        )

    def _address_problems(self, url: str) -> Iterator[str]:
        sent = self._key_variable if self.key_required or self._environment() else ""
        return problems_of(url, key=sent, insecure_http=self._settings.insecure_http)

    def _secrets(self) -> Sequence[str]:
        """What must not be stored."""
        return (self._environment(),)

    def _redacted(self, text: str) -> str:
        return redacted(text, *self._secrets())

    def _without_secrets(self, effective: Mapping[str, Json]) -> Mapping[str, Json]:
        return without_secrets(dict(effective), *self._secrets())

    def _environment(self) -> str:
        return os.environ.get(self._key_variable, "").strip() if self._key_variable else ""


def _legible(content: bytes) -> str:
    """The beginning of what came instead of a picture, if it is text."""
    text = " ".join(content[:400].decode(errors="ignore").split())
    return f"; the answer: {text or 'empty'}" if text.isprintable() else ""


def _begins_a_picture(content: bytes) -> bool:
    """Whether it is a picture at all, whole or not: a storage that has none may answer with a page of words."""
    try:
        with Image.open(io.BytesIO(content)):
            return True
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False
