"""The official clients behind one interface: how each is built, and where each of our settings goes.

Only this module knows provider names. Retries are off in every client: `stillme.work.loop` decides when to retry, and
counts every attempt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from stillme.core.json_paths import find
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


class ProviderAdapter(ABC):
    """One provider's API."""

    detail_per_image: ClassVar[bool] = False
    """Whether `detail` is sent with each image instead of once per request."""
    base64_alphabet: ClassVar[bytes | None] = None
    """A table from the standard alphabet of base64 to the client's, if that is another."""
    required: ClassVar[Sequence[str]] = ()
    """Fields of a response without which its client cannot read it."""
    envelope: ClassVar[Envelope]
    paths: ClassVar[Mapping[str, str]]
    """Where a request has each of our settings."""

    @abstractmethod
    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        """The model behind its official client, with retries off."""

    @abstractmethod
    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        """Our settings under pydantic-ai's names."""

    def sent_settings(self, body: Json) -> dict[str, Json]:
        """The settings that a request body really carries, under our names."""
        found = {name: next(find(body, path), None) for name, path in self.paths.items()}
        return {name: value for name, value in found.items() if value is not None}


class _OpenAI(ProviderAdapter):
    """Both of OpenAI's APIs."""

    detail_per_image = True
    own: ClassVar[Mapping[str, Any]] = {}
    """What only this API is told."""

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        names = {"reasoning_effort": "effort", "text_verbosity": "verbosity", "service_tier": "service_tier"}
        return {**{f"openai_{name}": getattr(settings, ours) for name, ours in names.items()}, **self.own}

    @staticmethod
    def sdk(settings: ModelSettings, key: str, http: AsyncClient) -> Any:
        """The official client."""
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=settings.address, api_key=key, http_client=http, max_retries=0)


class _OpenAIResponses(_OpenAI):
    required = ("output",)
    envelope = Envelope("output.*.content.*.text", "usage.input_tokens", ("usage.output_tokens",))
    paths = {
        "temperature": "temperature",
        "max_tokens": "max_output_tokens",
        "effort": "reasoning.effort",
        "verbosity": "text.verbosity",
        "service_tier": "service_tier",
        "detail": "input.*.content.*.detail",
        "store": "store",
        "schema": "text.format.type",
    }
    # The provider is asked not to store portraits of people.
    own = {"openai_store": False}

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(openai_client=self.sdk(settings, key, http))
        return OpenAIResponsesModel(settings.model, provider=provider)


class _OpenAIChat(_OpenAI):
    required = ("choices",)
    envelope = Envelope("choices.0.message.content", "usage.prompt_tokens", ("usage.completion_tokens",))
    paths = {
        "temperature": "temperature",
        "max_tokens": "max_tokens",
        "effort": "reasoning_effort",
        "verbosity": "verbosity",
        "service_tier": "service_tier",
        "detail": "messages.*.content.*.image_url.detail",
        "schema": "response_format.type",
    }

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        provider = OpenAICompatibleProvider("openai-compatible", openai_client=self.sdk(settings, key, http))
        # A self-hosted model's name says nothing about its server. vLLM, SGLang, Ollama and llama.cpp accept a JSON
        # schema, and `max_tokens`, the name that OpenAI itself has deprecated.
        profile = {"supports_json_schema_output": True, "openai_chat_supports_max_completion_tokens": False}
        return OpenAIChatModel(settings.model, provider=provider, profile=cast("Any", profile))


class _Gemini(ProviderAdapter):
    base64_alphabet = bytes.maketrans(b"+/", b"-_")
    envelope = Envelope(
        "candidates.0.content.parts.*.text",
        "usageMetadata.promptTokenCount",
        ("usageMetadata.candidatesTokenCount", "usageMetadata.thoughtsTokenCount"),
    )
    paths = {
        "temperature": "generationConfig.temperature",
        "max_tokens": "generationConfig.maxOutputTokens",
        "effort": "generationConfig.thinkingConfig.thinking_level",
        "detail": "generationConfig.mediaResolution",
        "service_tier": "serviceTier",
        "schema": "generationConfig.responseMimeType",
    }

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


class _Anthropic(ProviderAdapter):
    required = ("content", "usage")
    envelope = Envelope("content.*.text", "usage.input_tokens", ("usage.output_tokens",))
    paths = {
        "temperature": "temperature",
        "max_tokens": "max_tokens",
        "effort": "output_config.effort",
        "service_tier": "service_tier",
        "schema": "output_config.format.type",
    }

    def client(self, settings: ModelSettings, key: str, http: AsyncClient) -> Client:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        sdk = AsyncAnthropic(base_url=settings.address, api_key=key, http_client=http, max_retries=0)
        return AnthropicModel(settings.model, provider=AnthropicProvider(anthropic_client=sdk))

    def request_settings(self, settings: ModelSettings) -> dict[str, Any]:
        return {"anthropic_effort": settings.effort, "service_tier": settings.service_tier}


ADAPTERS: Mapping[Provider, ProviderAdapter] = {
    "openai": _OpenAIResponses(),
    "openai-chat": _OpenAIChat(),
    "google": _Gemini(),
    "anthropic": _Anthropic(),
}
