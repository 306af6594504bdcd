"""The official clients behind one interface: how each is built, and where each of our settings goes.

Only this module knows provider names. Retries are off in every client: `stillme.work.loop` decides when to retry, and
counts every attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from stillme.core.json_paths import dig, find
from stillme.core.types import Json
from stillme.judges.vlm.settings import ModelSettings, Provider

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai.models import Model as Client


class Envelope(NamedTuple):
    """Where an answer has its text and its tokens, as paths."""

    text: str
    input: str
    output: tuple[str, ...]

    def read(self, body: Json) -> tuple[str, int, int]:
        """The text, and the tokens of question and answer; 0 where they are not counted."""
        counted = [sum(n for n in find(body, path) if isinstance(n, int)) for path in (self.input, *self.output)]
        return "".join(str(part) for part in find(body, self.text)), counted[0], sum(counted[1:])


class ProviderAdapter(Protocol):
    """One provider's API."""

    detail_per_image: bool
    """Whether `detail` is sent with each image instead of once per request."""
    required: Sequence[str]
    """Fields of a response without which its client cannot read it."""
    envelope: Envelope

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        """The model behind its official client, with retries off."""
        ...

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        """Our settings under pydantic-ai's names."""
        ...

    def sent_settings(self, body: Json) -> dict[str, Json]:
        """The settings that a request body really carries, under our names."""
        ...


class _OpenAIResponses:
    detail_per_image = True
    required: Sequence[str] = ("output",)
    envelope = Envelope("output.*.content.*.text", "usage.input_tokens", ("usage.output_tokens",))

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        sdk = AsyncOpenAI(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        return OpenAIResponsesModel(settings.model, provider=OpenAIProvider(openai_client=sdk))

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        return {
            "openai_reasoning_effort": settings.effort,
            "openai_text_verbosity": settings.verbosity,
            "openai_service_tier": settings.service_tier,
            # The provider is asked not to store portraits of people.
            "openai_store": False,
        }

    def sent_settings(self, body: Json) -> dict[str, Json]:
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body.get("max_output_tokens"),
            "effort": dig(body, "reasoning", "effort"),
            "verbosity": dig(body, "text", "verbosity"),
            "service_tier": body.get("service_tier"),
            "detail": _first_of_type(body, "input_image", "detail"),
            "store": body.get("store"),
            "schema": dig(body, "text", "format", "type"),
        }


class _OpenAIChat:
    detail_per_image = True
    required: Sequence[str] = ("choices",)
    envelope = Envelope("choices.0.message.content", "usage.prompt_tokens", ("usage.completion_tokens",))

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        sdk = AsyncOpenAI(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        provider = OpenAICompatibleProvider("openai-compatible", openai_client=sdk)
        # A self-hosted model's name says nothing about its server. vLLM, SGLang, Ollama and llama.cpp accept a JSON
        # schema, and `max_tokens`, the name that OpenAI itself has deprecated.
        profile = {"supports_json_schema_output": True, "openai_chat_supports_max_completion_tokens": False}
        return OpenAIChatModel(settings.model, provider=provider, profile=cast("Any", profile))

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        return {
            "openai_reasoning_effort": settings.effort,
            "openai_text_verbosity": settings.verbosity,
            "openai_service_tier": settings.service_tier,
        }

    def sent_settings(self, body: Json) -> dict[str, Json]:
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
            "effort": body.get("reasoning_effort"),
            "verbosity": body.get("verbosity"),
            "service_tier": body.get("service_tier"),
            "detail": _first_of_type(body, "image_url", "detail"),
            "schema": dig(body, "response_format", "type"),
        }


class _Gemini:
    detail_per_image = False
    required: Sequence[str] = ()
    envelope = Envelope(
        "candidates.0.content.parts.*.text",
        "usageMetadata.promptTokenCount",
        ("usageMetadata.candidatesTokenCount", "usageMetadata.thoughtsTokenCount"),
    )

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from google.genai.types import HttpRetryOptions
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        once = HttpRetryOptions(attempts=1)
        provider = GoogleProvider(api_key=key, base_url=settings.address, http_client=http, retry_options=once)
        return GoogleModel(settings.model, provider=provider)

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        level = settings.effort and {"thinking_level": settings.effort.upper()}
        resolution = settings.detail and f"MEDIA_RESOLUTION_{settings.detail.upper()}"
        return {
            "google_thinking_config": level,
            "google_video_resolution": resolution,
            "service_tier": settings.service_tier,
        }

    def sent_settings(self, body: Json) -> dict[str, Json]:
        config = body.get("generationConfig", {})
        return {
            "temperature": config.get("temperature"),
            "max_tokens": config.get("maxOutputTokens"),
            "effort": dig(config, "thinkingConfig", "thinkingLevel") or dig(config, "thinkingConfig", "thinking_level"),
            "detail": config.get("mediaResolution"),
            "service_tier": body.get("serviceTier"),
            "schema": config.get("responseMimeType"),
        }


class _Anthropic:
    detail_per_image = False
    required: Sequence[str] = ("content", "usage")
    envelope = Envelope("content.*.text", "usage.input_tokens", ("usage.output_tokens",))

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        sdk = AsyncAnthropic(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        return AnthropicModel(settings.model, provider=AnthropicProvider(anthropic_client=sdk))

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        return {"anthropic_effort": settings.effort, "service_tier": settings.service_tier}

    def sent_settings(self, body: Json) -> dict[str, Json]:
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body.get("max_tokens"),
            "effort": dig(body, "output_config", "effort"),
            "service_tier": body.get("service_tier"),
            "schema": dig(body, "output_config", "format", "type"),
        }


ADAPTERS: Mapping[Provider, ProviderAdapter] = {
    "openai": _OpenAIResponses(),
    "openai-chat": _OpenAIChat(),
    "google": _Gemini(),
    "anthropic": _Anthropic(),
}


def _first_of_type(value: Json, type_: str, field: str) -> Json:
    """The field of the first part of that type, at any depth."""
    if isinstance(value, dict):
        part = cast("dict[str, Json]", value)
        if part.get("type") == type_:
            return part.get(field) or dig(part, type_, field)
        value = list(part.values())
    if isinstance(value, list):
        nested = (_first_of_type(part, type_, field) for part in cast("list[Json]", value))
        return next((detail for detail in nested if detail is not None), None)
    return None
