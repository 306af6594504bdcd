"""The connection to a provider. A request is inspected before the first one is sent."""

from __future__ import annotations

import base64
import itertools
import json
import re
import secrets
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import BaseModel, Field

from stillme.core.errors import StillmeError
from stillme.core.http.client import UNSENT, on_loop
from stillme.core.http.client import Client as HttpClient
from stillme.core.http.replies import parsed
from stillme.core.images.sending import EncodedImage
from stillme.core.json_paths import dig
from stillme.core.types import Json
from stillme.judges.vlm.providers import ADAPTERS, Envelope, ProviderAdapter
from stillme.judges.vlm.replies import Question
from stillme.judges.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, AsyncClient, Request
    from pydantic_ai.messages import ModelRequest, ModelResponse
    from pydantic_ai.models import Model as Client
    from pydantic_ai.models import ModelRequestParameters

_MUST_BE_SENT = ("temperature", "max_tokens", "effort", "verbosity", "detail", "service_tier")
"""Settings that must be in the request if they are set. Clients drop some with a warning, others silently."""

_LONGEST_BODY = 200
"""Characters of a body that is no answer."""
_RATE_LIMITS = frozenset({"rate_limit_exceeded", "rate_limit_error", "insufficient_quota"})

ARRIVED: ContextVar[list[Json]] = ContextVar("arrived")
"""The envelopes of successful answers to the question that this task asks; None for a body that is no answer."""

_IMAGES: ContextVar[Sequence[bytes]] = ContextVar("images")
"""The images of the question that this task asks, in base64."""
_STAND_IN = secrets.token_hex(12)
"""What a client gets in place of an image, before its number: to copy and escape images takes longer than to send them.

It is base64 in every alphabet, and random, so that no text contains it.
"""
_STAND_INS = re.compile(rf"{_STAND_IN}(\d{{4}})".encode())

_DRY_RUN_LOCK = threading.Lock()
"""Warnings are silenced during a dry run, and Python can do that only for the whole process."""


class _DryRunAnswer(BaseModel):
    score: int = Field(ge=1, le=5)


_DRY_RUN_QUESTION = Question(system="-", parts=("-",), answer=_DryRunAnswer)
"""A question that is never sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a request with these settings would contain."""

    sent: Mapping[str, Json]
    problems: list[str]
    """Settings that would be dropped, each as a sentence."""


@dataclass(slots=True)
class ModelConnection:
    """An open connection to one model."""

    settings: ModelSettings
    client: Client
    http: AsyncClient
    sent: Mapping[str, Json]
    """The settings that are really sent."""

    @property
    def envelope(self) -> Envelope:
        """Where an answer of this provider has its text and its tokens."""
        return _adapter(self.settings).envelope

    async def send(self, question: Question, parts: Sequence[str | EncodedImage]) -> ModelResponse:
        """One request, one response."""
        from pydantic_ai.direct import model_request

        alphabet = _adapter(self.settings).base64_alphabet
        _IMAGES.set([part.base64.encode().translate(alphabet) for part in parts if isinstance(part, EncodedImage)])
        return await model_request(
            self.client,
            [_message_of(question, parts, self.settings)],
            model_settings=_request_settings(self.settings),  # pyright: ignore[reportArgumentType]
            model_request_parameters=_schema_of(question),
        )

    async def close(self) -> None:
        """Close the sockets."""
        await self.http.aclose()


def connect(settings: ModelSettings, key: str) -> ModelConnection:
    """Open a connection; raises `StillmeError` if the model would ignore a setting."""
    checked = dry_run(settings)
    if checked.problems:
        raise StillmeError(f"{'; '.join(checked.problems)}.")
    http = _http(settings)
    return ModelConnection(settings, _adapter(settings).client(settings, key, http), http, checked.sent)


def dry_run(settings: ModelSettings) -> DryRun:
    """Build a request with the real client, intercept it before it is sent, and compare it with the settings."""
    with _DRY_RUN_LOCK:
        body = on_loop(_intercepted(settings))
    sent = _adapter(settings).sent_settings(body)
    problems = [
        f"{settings.model!r} ignores `{name} = {getattr(settings, name)!r}`; leave it out"
        for name in _MUST_BE_SENT
        if getattr(settings, name) is not None and name not in sent
    ]
    if "schema" not in sent:
        problems.append(f"{settings.model!r} does not support structured output; choose another model")
    return DryRun(sent=sent, problems=problems)


def _message_of(question: Question, parts: Sequence[str | EncodedImage], settings: ModelSettings) -> ModelRequest:
    """The question for pydantic-ai: instructions in the system channel, the rest in order."""
    from pydantic_ai.messages import BinaryContent, ModelRequest, UserPromptPart

    detail = settings.detail if _adapter(settings).detail_per_image else None
    numbers = itertools.count()
    content = [
        part
        if isinstance(part, str)
        else BinaryContent(
            data=base64.b64decode(f"{_STAND_IN}{next(numbers):04}"),
            media_type=part.mime,
            vendor_metadata={"detail": detail} if detail else None,
        )
        for part in parts
    ]
    return ModelRequest(parts=[UserPromptPart(content=content)], instructions=question.system)


def _request_settings(settings: ModelSettings) -> dict[str, Any]:
    """All settings under pydantic-ai's names."""
    named = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        **_adapter(settings).request_settings(settings),
    }
    return {name: value for name, value in named.items() if value is not None}


def _schema_of(question: Question) -> ModelRequestParameters:
    """The provider's own structured output, by JSON schema."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    schema = _json_schema(question.answer)
    output = OutputObjectDefinition(json_schema=schema, name=schema["title"], strict=True)
    return ModelRequestParameters(output_mode="native", output_object=output)


@cache
def _json_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Cached: generating it takes longer than sending an image."""
    return answer.model_json_schema()


async def _intercepted(settings: ModelSettings) -> Json:
    """The body of a request that the client built and that was not sent."""
    bodies: list[Json] = []

    def intercept(request: Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "a dry run is not sent"}})

    blank = EncodedImage(data=b"-", mime="image/jpeg", size=(1, 1))
    async with _http(settings, httpx2.MockTransport(intercept)) as http:
        connection = ModelConnection(settings, _adapter(settings).client(settings, "none", http), http, {})
        try:
            with warnings.catch_warnings():
                # The request itself shows what is dropped, whether or not the client warns.
                warnings.simplefilter("ignore")
                await connection.send(_DRY_RUN_QUESTION, ("-", blank))
        except Exception as error:
            if not bodies:
                raise StillmeError(f"No request to {settings.model!r} can be built: {error}") from error
    return bodies[0]


def _http(settings: ModelSettings, transport: AsyncBaseTransport | None = None) -> AsyncClient:
    return QuestionClient(_adapter(settings).required, timeout=settings.timeout, transport=transport)


def _adapter(settings: ModelSettings) -> ProviderAdapter:
    return ADAPTERS[settings.provider]


class QuestionClient(HttpClient):
    """The HTTP client of one model, the last step before an answer is read.

    An official client may fail over an answer that was paid for, such as a number of 5,000 digits. So the envelope with
    its text and its tokens is read here, before anything else can raise.
    """

    def __init__(self, required: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._required = required

    def build_request(self, *where: Any, content: Any, **options: Any) -> httpx2.Request:
        """The question as the official client wrote it, with its images."""
        return super().build_request(*where, content=_with_images(content), **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a question, with an honest status in return: gateways answer 200 with an error, or with a web page."""
        arrived = ARRIVED.get([])
        try:
            response = await super().send(request, **options)
        except UNSENT:
            raise
        except BaseException:
            # The question was sent, and may be charged though its answer did not arrive whole.
            arrived.append(None)
            raise
        if response.status_code != httpx2.codes.OK:
            return response
        body = parsed(response.content)
        if error := dig(body, "error"):
            named = body if dig(error, "message") else {"error": {"message": str(error)}}
            return httpx2.Response(_status(error), json=named, request=request)
        absent = [name for name in self._required if dig(body, name) is None]
        is_answer = isinstance(body, dict) and body != {} and not absent
        arrived.append(body if is_answer else None)
        if is_answer:
            return response
        what = f"`{absent[0]}`" if isinstance(body, dict) and absent else "an answer"
        message = f"an HTTP 200 without {what} ({response.text[:_LONGEST_BODY]!r})"
        return httpx2.Response(httpx2.codes.BAD_GATEWAY, json={"error": {"message": message}}, request=request)


def _with_images(content: str | bytes) -> bytes:
    images = _IMAGES.get()
    written = content.encode() if isinstance(content, str) else content
    body, inserted = _STAND_INS.subn(lambda number: images[int(number[1])], written)
    if inserted != len(images):
        raise StillmeError(f"The request has {inserted} of the question's {len(images)} images.")
    return body


def _status(error: Json) -> int:
    """The status that an error should have had."""
    code = str(dig(error, "code"))
    if code.isdigit() and 400 <= int(code) < 600:
        return int(code)
    is_limit = code in _RATE_LIMITS or str(dig(error, "type")) in _RATE_LIMITS
    return httpx2.codes.TOO_MANY_REQUESTS if is_limit else httpx2.codes.BAD_GATEWAY
