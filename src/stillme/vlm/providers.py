"""The official clients behind one interface: how each is built, and where each of our settings goes.

Only this module knows provider names. Retries are off in every client: who retries, and when, is decided in
`stillme.stages.loop`, where each attempt is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from stillme.types import Json
from stillme.vlm.settings import ModelSettings, Provider

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai.models import Model as Client


class Dialect(Protocol):
    """One provider's protocol."""

    detail_goes_with_pictures: bool
    """Whether `detail` stands beside each picture instead of once for the request."""

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        """The model behind its official client, with retries off."""
        ...

    def wishes(self, settings: ModelSettings) -> dict[str, Any]:
        """Our settings under the names of pydantic-ai."""
        ...

    def sent(self, body: Json) -> dict[str, Json]:
        """What a request that goes out really says, under our names."""
        ...


class _OpenAIResponses:
    detail_goes_with_pictures = True

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        speaking = AsyncOpenAI(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        return OpenAIResponsesModel(settings.model, provider=OpenAIProvider(openai_client=speaking))

    def wishes(self, settings: ModelSettings) -> dict[str, Any]:
        return {
            "openai_reasoning_effort": settings.effort,
            "openai_text_verbosity": settings.verbosity,
            "openai_service_tier": settings.service_tier,
            # Portraits are nobody's to keep: the provider is asked not to store the exchange.
            "openai_store": False,
        }

    def sent(self, body: Json) -> dict[str, Json]:
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body.get("max_output_tokens"),
            "effort": _dig(body, "reasoning", "effort"),
            "verbosity": _dig(body, "text", "verbosity"),
            "service_tier": body.get("service_tier"),
            "detail": _first(body, "input_image", "detail"),
            "store": body.get("store"),
            "schema": _dig(body, "text", "format", "type"),
        }


class _OpenAIChat:
    detail_goes_with_pictures = True

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        speaking = AsyncOpenAI(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        provider = OpenAICompatibleProvider("openai-compatible", openai_client=speaking)
        # What such a server serves cannot be told from its name. vLLM, SGLang, Ollama and llama.cpp take a JSON schema,
        # and all know `max_tokens`, the name that OpenAI itself has given up.
        profile = {"supports_json_schema_output": True, "openai_chat_supports_max_completion_tokens": False}
        return OpenAIChatModel(settings.model, provider=provider, profile=cast("Any", profile))

    def wishes(self, settings: ModelSettings) -> dict[str, Any]:
        return {
            "openai_reasoning_effort": settings.effort,
            "openai_text_verbosity": settings.verbosity,
            "openai_service_tier": settings.service_tier,
        }

    def sent(self, body: Json) -> dict[str, Json]:
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
            "effort": body.get("reasoning_effort"),
            "verbosity": body.get("verbosity"),
            "service_tier": body.get("service_tier"),
            "detail": _first(body, "image_url", "detail"),
            "schema": _dig(body, "response_format", "type"),
        }


class _Gemini:
    detail_goes_with_pictures = False

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from google.genai.types import HttpRetryOptions
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        once = HttpRetryOptions(attempts=1)
        provider = GoogleProvider(api_key=key, base_url=settings.address, http_client=http, retry_options=once)
        return GoogleModel(settings.model, provider=provider)

    def wishes(self, settings: ModelSettings) -> dict[str, Any]:
        level = settings.effort and {"thinking_level": settings.effort.upper()}
        resolution = settings.detail and f"MEDIA_RESOLUTION_{settings.detail.upper()}"
        return {
            "google_thinking_config": level,
            "google_video_resolution": resolution,
            "service_tier": settings.service_tier,
        }

    def sent(self, body: Json) -> dict[str, Json]:
        config = body.get("generationConfig", {})
        return {
            "temperature": config.get("temperature"),
            "max_tokens": config.get("maxOutputTokens"),
            "effort": _dig(config, "thinkingConfig", "thinkingLevel")
            or _dig(config, "thinkingConfig", "thinking_level"),
            "detail": config.get("mediaResolution"),
            "service_tier": body.get("serviceTier"),
            "schema": config.get("responseMimeType"),
        }


class _Anthropic:
    detail_goes_with_pictures = False

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        speaking = AsyncAnthropic(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        return AnthropicModel(settings.model, provider=AnthropicProvider(anthropic_client=speaking))

    def wishes(self, settings: ModelSettings) -> dict[str, Any]:
        return {"anthropic_effort": settings.effort, "service_tier": settings.service_tier}

    def sent(self, body: Json) -> dict[str, Json]:
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body.get("max_tokens"),
            "effort": _dig(body, "output_config", "effort"),
            "service_tier": body.get("service_tier"),
            "schema": _dig(body, "output_config", "format", "type"),
        }


DIALECTS: Mapping[Provider, Dialect] = {
    "openai": _OpenAIResponses(),
    "openai-chat": _OpenAIChat(),
    "google": _Gemini(),
    "anthropic": _Anthropic(),
}


def _dig(value: Json, *path: str) -> Json:
    for step in path:
        value = cast("dict[str, Json]", value).get(step) if isinstance(value, dict) else None
    return value


def _first(value: Json, kind: str, name: str) -> Json:
    """The field `name` of the first part of that kind, however deep it lies."""
    if isinstance(value, dict):
        known = cast("dict[str, Json]", value)
        if known.get("type") == kind:
            return known.get(name) or _dig(known, kind, name)
        value = list(known.values())
    if isinstance(value, list):
        found = (_first(entry, kind, name) for entry in cast("list[Json]", value))
        return next((each for each in found if each is not None), None)
    return None
