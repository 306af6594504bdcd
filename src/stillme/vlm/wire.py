"""The connection to a provider: what goes out, seen before it goes."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from stillme.errors import StillmeError
from stillme.types import Json
from stillme.vlm import loop
from stillme.vlm.pictures import Picture
from stillme.vlm.providers import DIALECTS, Dialect
from stillme.vlm.replies import Question
from stillme.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, AsyncClient, Request
    from pydantic_ai.messages import ModelRequest, ModelResponse
    from pydantic_ai.models import Model as Client
    from pydantic_ai.models import ModelRequestParameters

_CHECKED = ("temperature", "max_tokens", "effort", "verbosity", "detail", "service_tier")
"""Settings that must be on the wire if they are set. Clients drop some of them with a warning, others in silence."""

_ONE_AT_A_TIME = threading.Lock()
"""Warnings are silenced during a rehearsal, and Python can do that only for the whole process."""


class _Probe(BaseModel):
    score: int = Field(ge=1, le=5)


PROBE = Question(system="-", parts=("-",), answer=_Probe)
"""A question that nobody is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a request with these settings says, found out without sending one."""

    sent: Mapping[str, Json]
    ignored: list[str]


@dataclass(slots=True)
class Line:
    """An open connection to one model."""

    settings: ModelSettings
    client: Client
    http: AsyncClient
    sent: Mapping[str, Json]
    """The settings as they really go out."""

    async def send(self, question: Question, parts: Sequence[str | Picture]) -> ModelResponse:
        """One request, one response."""
        from pydantic_ai.direct import model_request

        return await model_request(
            self.client,
            [message_of(question, parts, self.settings)],
            model_settings=wishes_of(self.settings),  # pyright: ignore[reportArgumentType]
            model_request_parameters=schema_of(question),
        )

    async def close(self) -> None:
        """Close the sockets."""
        await self.http.aclose()


def connect(settings: ModelSettings, key: str) -> Line:
    """Open a connection; a setting that the model would ignore is an error before the first question."""
    found = rehearse(settings)
    if found.ignored:
        raise StillmeError(f"{'; '.join(found.ignored)}.")
    http = _http(settings)
    return Line(settings, _dialect(settings).client(settings, key, http), http, found.sent)


def rehearse(settings: ModelSettings) -> Rehearsal:
    """Build a request with the real client, catch it at the door, and read what it says."""
    with _ONE_AT_A_TIME:
        seen = loop.run(_caught(settings))
    sent = {name: value for name, value in _dialect(settings).sent(seen).items() if value is not None}
    ignored = [
        f"{settings.model!r} ignores `{name} = {getattr(settings, name)!r}`; leave it out"
        for name in _CHECKED
        if getattr(settings, name) is not None and name not in sent
    ]
    if "schema" not in sent:
        ignored.append(f"{settings.model!r} cannot be held to a schema; name another model")
    return Rehearsal(sent=sent, ignored=ignored)


def message_of(question: Question, parts: Sequence[str | Picture], settings: ModelSettings) -> ModelRequest:
    """The question as pydantic-ai wants it: instructions in the system channel, the rest in order."""
    from pydantic_ai.messages import BinaryContent, ModelRequest, UserPromptPart

    detail = settings.detail if _dialect(settings).detail_goes_with_pictures else None
    content = [
        part
        if isinstance(part, str)
        else BinaryContent(data=part.data, media_type=part.mime, vendor_metadata={"detail": detail} if detail else None)
        for part in parts
    ]
    return ModelRequest(parts=[UserPromptPart(content=content)], instructions=question.system)


def wishes_of(settings: ModelSettings) -> dict[str, Any]:
    """All settings under pydantic-ai's names."""
    wished = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        **_dialect(settings).wishes(settings),
    }
    return {name: value for name, value in wished.items() if value is not None}


def schema_of(question: Question) -> ModelRequestParameters:
    """The provider's own structured output, by JSON schema."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    schema = _json_schema(question.answer)
    wanted = OutputObjectDefinition(json_schema=schema, name=question.answer.__name__, strict=True)
    return ModelRequestParameters(output_mode="native", output_object=wanted)


@cache
def _json_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Working it out takes longer than sending a picture."""
    return answer.model_json_schema()


async def _caught(settings: ModelSettings) -> Json:
    import httpx2

    caught: list[Json] = []

    def catch(request: Request) -> httpx2.Response:
        caught.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "a rehearsal is not sent"}})

    blank = Picture(data=b"-", size=(1, 1))
    async with _http(settings, httpx2.MockTransport(catch)) as http:
        line = Line(settings, _dialect(settings).client(settings, "none", http), http, {})
        try:
            with warnings.catch_warnings():
                # What is ignored is seen in the request itself, whether or not somebody warns of it.
                warnings.simplefilter("ignore")
                await line.send(PROBE, ("-", blank))
        except Exception as error:
            if not caught:
                raise StillmeError(f"{settings.model!r} cannot be asked: {error}") from error
    return caught[0]


def _http(settings: ModelSettings, transport: AsyncBaseTransport | None = None) -> AsyncClient:
    import httpx2

    limits = httpx2.Limits(max_connections=settings.concurrency + 4, max_keepalive_connections=settings.concurrency + 4)
    # `Model` ends a question after `timeout` seconds in all; the client's own patience, per piece, must not be shorter.
    patience = httpx2.Timeout(settings.timeout + 1, connect=min(10.0, settings.timeout))
    return httpx2.AsyncClient(limits=limits, timeout=patience, transport=transport)


def _dialect(settings: ModelSettings) -> Dialect:
    return DIALECTS[settings.provider]
