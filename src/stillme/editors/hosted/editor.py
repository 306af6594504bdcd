"""What all hosted editors share: refusals, failures, checked pictures, cost, and what is paid for asked for again."""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field

from stillme.core import images
from stillme.core.endpoints import ApiServer, CallParameters
from stillme.core.errors import UnreadableImage
from stillme.core.http.replies import CallDeclined, CallFailed, Reply, Usage, is_temporary, unexpected_answer
from stillme.core.images.sending import EncodedImage, encode_for_upload
from stillme.core.protocols import Capabilities, Editor, Needs, revision_note
from stillme.core.redaction import shortened
from stillme.core.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Refused, Request
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import ModelPrice, dollars

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_MEGAPIXEL = (1024, 1024)
_GONE = frozenset({"404", "410"})
MAX_FAILURES = 5
"""Looks in a row at something paid for that fail before a call ends."""
LONGEST_PAUSE = 10.0
"""Seconds; who says to come back later than that is left in peace, and the worker is free for something else."""


class HostedParameters(CallParameters):
    """Settings of every hosted editor. Those that cannot change a picture are not part of the key."""

    model: str = Field(min_length=1)
    base_url: str = Field(pattern=r"^https?://")
    extra: dict[str, Any] = {}
    """Further fields of the request, sent as they are."""

    inputs: int | None = Field(default=None, ge=1, exclude=True)
    """How many portraits a request may carry, for a model that the catalogue does not list."""
    price: ModelPrice | None = Field(default=None, exclude=True)
    """The model's prices, if the catalogue lacks them or is out of date."""
    key_variable: str | None = Field(
        default=None, validation_alias=AliasChoices("key_variable", "api_key_env"), exclude=True
    )
    """The environment variable that holds the key, if not the provider's usual one; "" for a server without keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, ready to send."""

    instruction: str
    pictures: tuple[EncodedImage, ...]
    seed: int
    key: str = ""
    """The request's key, under which queued work is remembered. It is not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedAnswer:
    """The provider returned an image."""

    image: bytes
    usage: Usage = field(default_factory=Usage)
    effective: Mapping[str, Json] = field(default_factory=lambda: dict[str, Json]())


class JobGone(CallFailed):
    """The work gave no usable picture and never will; a new job may. By default, one picture counts as charged."""

    def __init__(self, error: str, *, retryable: bool = True, usage: Usage | None = None) -> None:
        super().__init__(error, retryable=retryable, usage=Usage(images=1) if usage is None else usage)


T = TypeVar("T")
P = TypeVar("P", bound=HostedParameters)


class Hosted(Editor, ABC, Generic[P]):
    """An editor behind an API. A subclass implements `_ask`.

    `_ask` returns a `HostedAnswer`, or raises `CallDeclined` or `CallFailed`, each with the `Usage` that was charged.
    Texts and effective parameters are redacted and pictures are decoded here, for all providers alike. `name` is also
    its section in the catalogue.
    """

    needs = Needs(modules=("httpx2",), extra="hosted")
    """A subclass with a `key_variable` need not name that again."""
    key_variable: ClassVar[str] = ""
    """The environment variable that usually holds the key; "" if there is none."""
    key_required: ClassVar[bool] = True
    headers: ClassVar[Mapping[str, str]] = {"Authorization": "Bearer {key}"}
    reserved: ClassVar[frozenset[str]] = frozenset({"prompt", "model"})
    """Fields that `extra` must not set: the experiment decides them."""
    seed: ClassVar[Literal["best_effort", "none"]] = "best_effort"
    rewriting: ClassVar[str] = ""
    """The parameter that lets the service rewrite the instruction."""

    def __init_subclass__(cls) -> None:
        if "needs" not in vars(cls):
            variables = (cls.key_variable,) if cls.key_variable else ()
            cls.needs = Needs(modules=("httpx2",), extra="hosted", variables=variables)

    def __init__(self, parameters: P) -> None:
        super().__init__(parameters)
        self._settings = parameters
        self.facts = catalogue.service(self.name).facts(parameters.model)
        self.capabilities = Capabilities(
            inputs=parameters.inputs or self.facts.inputs,
            concurrency=parameters.concurrency,
            seed=self.seed,
            size="any",
            can_refuse=True,
            rewrites_prompt=bool(self.rewriting and getattr(parameters, self.rewriting)),
        )
        self.server = self._server_at(parameters.base_url)
        self._poll_seconds = 0.5

    def _server_at(self, url: str) -> ApiServer:
        settings = self._settings
        variable = self.key_variable if settings.key_variable is None else settings.key_variable
        headers = {name: text.replace("{key}", f"{{env:{variable}}}") for name, text in self.headers.items()}
        required = self.key_required or bool(settings.key_variable)
        return ApiServer(url, headers if variable else {}, settings, key_required=required)

    @abstractmethod
    def _ask(self, connection: Connection, call: Call) -> HostedAnswer:
        """Make one edit; raise `CallDeclined` or `CallFailed` otherwise."""

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
        yield from self.server.problems()

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """Of a server of the user's own: that a new checkpoint would not be noticed, unless its revision is named."""
        if self.spec.parameters.get("revision") == "":
            yield revision_note(self.server.url)

    @property
    def provider(self) -> str:
        """The server's address."""
        return self.server.host

    def expected_dollars(self) -> float | None:
        """The approximate cost of one edit of a one-megapixel portrait; None if unknown."""
        return dollars(self._price, self._expected_usage())

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
    def _price(self) -> ModelPrice | None:
        return self._settings.price or self.facts.price

    def _reserved(self) -> frozenset[str]:
        return self.reserved

    def close(self) -> None:
        """Close the connections. The next edit opens them again."""
        self.server.close()

    def edit_one(self, request: Request) -> EditOutcome:
        """One call."""
        pictures = tuple(encode_for_upload(portrait.image.path) for portrait in request.portraits)
        call = Call(instruction=request.instruction, pictures=pictures, seed=request.seed, key=request.key)
        try:
            return self._edited(call, self._ask(self.server.connected(), call))
        except CallDeclined as declined:
            cost, note = self._cost(declined.usage, call)
            effective = self.server.without_secrets({"signal": declined.signal, **note})
            return Refused(message=self.server.redacted(declined.message), effective=effective, cost=cost)
        except CallFailed as failure:
            if isinstance(failure, JobGone) or not failure.failed.retryable:
                self._give_up(call)
            return self._failed(failure, call)

    def _edited(self, call: Call, answer: HostedAnswer) -> Edited:
        usage = replace(answer.usage, images=1)
        try:
            size = images.read_picture(answer.image, name="the returned file").size
        except UnreadableImage as error:
            raise JobGone(str(error).rstrip(".") + _legible(answer.image), usage=usage) from None
        if (exact := self._exact_size()) and size != exact:
            raise JobGone(f"the picture has {size[0]}×{size[1]} pixels instead of {exact[0]}×{exact[1]}", usage=usage)
        cost, note = self._cost(usage, call, size)
        effective = self.server.without_secrets({"size": list(size), **answer.effective, **note})
        return Edited(image=answer.image, effective=effective, cost=cost)

    def _failed(self, failure: CallFailed, call: Call) -> Failed:
        error = f"{self.name}: {shortened(self.server.redacted(failure.failed.error))}"
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
        reply: Reply | None = None

        def fetched() -> bytes:
            nonlocal reply
            reply = None
            reply = self.server.download(cast("str", link))
            problem = _unlike_a_picture(reply.content) if reply.status < 300 else reply.text[:200] or "empty"
            if problem:
                raise CallFailed(f"the picture cannot be fetched for now ({reply.status}: {problem})")
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
                raise JobGone(f"the picture is not there ({reply.status}: {reply.text[:200] or 'empty'})") from None
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


def from_base64(text: object) -> bytes:
    """The bytes of a base64 field."""
    if not isinstance(text, str) or not text:
        raise unexpected_answer("no picture in base64", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise unexpected_answer(f"invalid base64 ({error})", text[:80]) from None


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
