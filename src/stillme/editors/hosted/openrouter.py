"""OpenRouter: image models of many providers behind chat completions, over plain HTTP.

https://openrouter.ai/docs/features/multimodal/image-generation, …/api/reference/errors-and-debugging and
…/use-cases/usage-accounting. An error may come with status 200; its precise kind stands in `error.metadata.error_type`.
Every answer says what it cost.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.faults import CallFailed, Declined, JobGone, from_status, unexpected_answer
from stillme.editors.hosted.gemini import DECLINES
from stillme.editors.hosted.json_client import JsonClient, Reply, download
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import IN_WORDS, Json

_KNOWN = catalogue.service("openrouter")
_REFUSALS = frozenset({"content_policy_violation", "refusal"})
"""Kinds of errors that name a policy. `permission_denied` may also be a guardrail of one's own account."""


class OpenRouterParameters(HostedParameters):
    """A model with pictures among its output modalities."""

    model: str = Field(min_length=1)
    base_url: str = _KNOWN.base_url
    provider: str = ""
    """The only provider to ask, such as `google-vertex`; without it, the provider may differ from edit to edit."""
    modalities: tuple[Literal["image", "text"], ...] = ("image", "text")
    """Without `text` for a model that returns pictures only."""


class OpenRouter(Hosted[JsonClient]):
    """Image models of many providers, by OpenRouter."""

    Parameters: ClassVar[type[BaseModel]] = OpenRouterParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted", variables=("OPENROUTER_API_KEY",))
    service: ClassVar[str] = "openrouter"
    key_variable: ClassVar[str] = "OPENROUTER_API_KEY"
    # `models` names substitutes: one of them would answer where the audited model refuses.
    reserved: ClassVar[frozenset[str]] = frozenset(
        {"messages", "modalities", "model", "models", "n", "provider", "seed", "stream"}
    )

    def __init__(self, parameters: OpenRouterParameters) -> None:
        self._router = parameters
        super().__init__(parameters)

    def _connect(self, key: str) -> JsonClient:
        return JsonClient(self._router.base_url, {"Authorization": f"Bearer {key}"}, timeout=self._router.timeout)

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        reply = connection.send("POST", "/chat/completions", body=self._fields(call))
        return _answer(reply, timeout=self._router.timeout)

    def _fields(self, call: Call) -> dict[str, Any]:
        pictures = [{"type": "image_url", "image_url": {"url": picture.data_uri}} for picture in call.pictures]
        content = [{"type": "text", "text": call.instruction}, *pictures]
        only = {"order": [self._router.provider], "allow_fallbacks": False}
        return {
            "model": self._router.model,
            "messages": [{"role": "user", "content": content}],
            "modalities": list(self._router.modalities),
            "seed": call.seed,
            **({"provider": only} if self._router.provider else {}),
            **self._router.extra,
        }


def _answer(reply: Reply, *, timeout: float) -> Answer:
    usage = _usage(dig(reply.body, "usage", "cost"))
    choice: Json = dig(reply.body, "choices", 0)
    if error := dig(reply.body, "error") or dig(choice, "error"):
        raise _from_error(reply, error, usage)
    body = reply.require_json()
    message: Json = dig(choice, "message")
    link = dig(message, "images", -1, "image_url", "url")
    if link is None:
        raise _no_image(choice, body, usage)
    try:
        image = download(link, timeout=timeout)
    except CallFailed as failure:
        raise JobGone(failure.failed.error, usage=usage) from None
    details = {name: dig(body, name) for name in ("id", "model", "provider")} | {"text": dig(message, "content")}
    return Answer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})


def _from_error(reply: Reply, error: Json, usage: Usage) -> Declined | CallFailed:
    message = str(dig(error, "message") or reply.text)
    kind, reasons = dig(error, "metadata", "error_type"), dig(error, "metadata", "reasons")
    if kind in _REFUSALS:
        return Declined(message, signal=f"error.metadata.error_type = {kind}", usage=usage)
    if isinstance(reasons, list) and reasons:
        flags = ", ".join(map(str, cast("list[Json]", reasons)))
        return Declined(message, signal=f"error.metadata.reasons = {flags}", usage=usage)
    code: Json = dig(error, "code")
    status = code if isinstance(code, int) and code >= 400 else reply.status
    if status < 400:
        return unexpected_answer("an error without a status", error, usage=usage)
    provider = dig(error, "metadata", "provider_name")
    return from_status(status, f"{message} ({provider})" if provider else message, reply.headers)


def _no_image(choice: Json, body: Json, usage: Usage) -> Declined | CallFailed:
    reason, text = dig(choice, "finish_reason"), str(dig(choice, "message", "content") or "")
    refusal, signal = dig(choice, "message", "refusal"), f"finish_reason = {reason}"
    if reason == "content_filter":
        return Declined(str(refusal or text or signal), signal=signal, usage=usage)
    if refusal:
        return Declined(str(refusal), signal="message.refusal", usage=usage)
    if reason == "stop" and text:
        if DECLINES.search(text):
            return Declined(text, signal="a no in words instead of a picture", usage=usage)
        return CallFailed(f"answered in words: {text}", retryable=True, status=IN_WORDS, usage=usage)
    return unexpected_answer(f"no picture in the answer, {signal}", body, usage=usage)


def _usage(cost: Json) -> Usage:
    """A credit is a US dollar."""
    return Usage(charged=float(cost) if isinstance(cost, int | float) else None)
