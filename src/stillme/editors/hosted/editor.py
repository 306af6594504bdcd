"""What all hosted editors share: rate limits, refusals, failures, checked pictures, cost, and keys that stay secret."""

from __future__ import annotations

import itertools
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, Field

from stillme.core import images
from stillme.core.addresses import key_in, key_problem, problems_of
from stillme.core.errors import UnreadableImage
from stillme.core.http.replies import Reply, Unanswered, is_temporary
from stillme.core.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.core.redaction import redacted, shortened, without_secrets
from stillme.core.throttle import RateLimiter, TooEarly
from stillme.core.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Refused, Request
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Price, Usage, dollars
from stillme.editors.hosted.encoded_images import EncodedImage, encode_for_upload, from_base64
from stillme.editors.hosted.faults import CallFailed, Declined, JobGone
from stillme.editors.hosted.json_client import JsonClient

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_MEGAPIXEL = (1024, 1024)
_GONE = frozenset({"404", "410"})
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


T = TypeVar("T")


class Hosted(ABC):
    """An editor behind an API. A subclass implements `_ask`.

    `_ask` returns an `Answer`, or raises `Declined` or `CallFailed`, each with the `Usage` that was charged. Texts and
    effective parameters are redacted and pictures are decoded here, for all providers alike.
    """

    Parameters: ClassVar[type[BaseModel]]
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted")
    """A subclass with a `key_variable` need not name that again."""

    service: ClassVar[str]
    """Its section in the catalogue, and its name in audits."""
    version: ClassVar[str] = "1"
    key_variable: ClassVar[str]
    """The environment variable that usually holds the key; "" if there is none."""
    key_required: ClassVar[bool] = True
    headers: ClassVar[Mapping[str, str]] = {"Authorization": "Bearer {key}"}
    reserved: ClassVar[frozenset[str]] = frozenset({"prompt", "model"})
    """Fields that `extra` must not set: the experiment decides them."""
    seed: ClassVar[Literal["best_effort", "none"]] = "best_effort"
    more_inputs: ClassVar[str] = ""
    """What a message about too many portraits adds."""

    def __init_subclass__(cls) -> None:
        if "needs" not in vars(cls):
            variable = getattr(cls, "key_variable", "")
            cls.needs = Needs(modules=("httpx2",), extra="hosted", variables=(variable,) if variable else ())

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
        self._connection: JsonClient | None = None
        self._storage: Connection | None = None

    def _connect(self, key: str) -> JsonClient:
        """Open a connection; called once, before the first edit."""
        return JsonClient(self._settings.base_url, self._headers(key), timeout=self._settings.timeout)

    def _headers(self, key: str) -> Mapping[str, str]:
        return {name: text.replace("{key}", key) for name, text in self.headers.items()}

    @abstractmethod
    def _ask(self, connection: JsonClient, call: Call) -> Answer:
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
        del call

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
        problem, reply = "", None

        def fetched() -> bytes:
            nonlocal problem, reply
            try:
                reply, problem = None, ""
                reply = self._download(cast("str", link))
                problem = _unlike_a_picture(reply.content) if reply.status < 300 else reply.text[:200] or "empty"
            except Unanswered as error:
                problem = str(error)
            if problem or reply is None:
                problem = f"{reply.status}: {problem}" if reply else problem
                raise CallFailed(f"the picture cannot be fetched for now ({problem})", retryable=True)
            return reply.content

        def renew() -> None:
            nonlocal link
            again = renewed() if renewed else link
            link = again if isinstance(again, str) else link

        try:
            return self._repeated(fetched, between=renew)
        except JobGone:
            raise
        except CallFailed:
            if reply and reply.status < 300 and not _legible(reply.content):
                return reply.content  # broken for good, not a page of words
            # Who keeps the picture is not the provider: none of its statuses concerns the account.
            if reply and renewed is None and not is_temporary(reply.status):
                raise JobGone(f"the picture is not there ({problem})") from None
            raise

    def _repeated(
        self, look: Callable[[], T], *, between: Callable[[], None] | None = None, end: float = math.inf
    ) -> T:
        """Look at something that is paid for. A look that fails is free and repeated, further and further apart.

        Raises `JobGone` if the provider no longer has it; the last failure, without a cost, if it cannot be read now.
        """
        for failures in itertools.count():
            try:
                return look()
            except JobGone:
                raise
            except CallFailed as failure:
                failed = failure.failed
                gone = failed.status in _GONE
                if failed.fatal and not gone:
                    raise
            wait = min(self._poll_seconds * 2**failures, LONGEST_PAUSE)
            wait = wait if failed.retry_after is None else failed.retry_after
            if failures == MAX_FAILURES or wait > LONGEST_PAUSE or time.monotonic() + wait > end:
                if gone:
                    raise JobGone(f"the provider no longer has the job ({failed.error})")
                # Only the job itself says that it has failed, so it is asked for again.
                raise CallFailed.of(replace(failed, retryable=True))
            time.sleep(wait)
            if between:
                between()
        raise AssertionError("the last failure is raised")

    def _download(self, link: str) -> Reply:
        """What is behind a link, without our headers: its host must not see a key."""
        from stillme.core.http.client import Connection

        with self._lock:
            if self._storage is None:
                self._storage = Connection(timeout=self._settings.timeout, follow_redirects=True)
            storage = self._storage
        return storage.send("GET", link)

    # -- keys -------------------------------------------------------------------------------------------------------

    def _connected(self) -> JsonClient:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect(self._key())
            return self._connection

    def _key(self, url: str | None = None) -> str:
        """The key, if it may be sent to this address (by default `base_url`); "none" for a server without keys."""
        for problem in self._address_problems(url or self._settings.base_url):
            raise CallFailed(problem, retryable=True, fatal=True)
        key = self._environment()
        needed = self._key_variable and (key or self.key_required or self._settings.key_variable)
        if needed and (problem := key_problem(self._key_variable)):
            raise CallFailed(problem, retryable=True, fatal=True)
        return key or "none"

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
        return key_in(self._key_variable)


def _legible(content: bytes) -> str:
    """The beginning of what came instead of a picture, if it is text."""
    text = " ".join(content[:400].decode(errors="ignore").split())
    return f"; the answer: {text or 'empty'}" if text.isprintable() else ""


def _unlike_a_picture(content: bytes) -> str:
    """Why it is not a whole picture; empty if it is one. A storage that has none may answer with a page of words."""
    try:
        images.check(content, name="the returned file")
    except UnreadableImage as error:
        return str(error).rstrip(".") + _legible(content)
    return ""
