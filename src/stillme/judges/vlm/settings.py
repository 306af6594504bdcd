"""Which model is asked and how; the known models are read from models.toml."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stillme.core.addresses import key_in, key_problem
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.files import packaged_toml
from stillme.core.protocols import Parameters
from stillme.core.redaction import redacted

Provider = Literal["openai", "openai-chat", "google", "anthropic"]
"""Which API: OpenAI's Responses, chat completions (OpenAI-compatible servers), Gemini, Anthropic."""
Profile = Literal["paper", "current"]
"""`paper`: the models that the paper used. `current`: the successors that their vendors name."""


TYPICAL_TOKENS = (3000, 600)
"""Input and output of one judged pair, for estimates before the first answer."""


class TokenPrice(Parameters):
    """US dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    flex: float = Field(default=0.5, ge=0, le=1)
    """The price of the flex tier, as a share of the full price."""


class ModelSettings(Parameters):
    """One model and how it is asked. Settings that cannot change an answer are not part of the key."""

    # The same model gives the same answers from another server, and with more room than it needs.
    unkeyed: ClassVar[frozenset[str]] = frozenset({"base_url", "max_tokens"})

    provider: Provider
    model: str = Field(min_length=1)
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """The API's address; by default the vendor's own."""
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """Reasoning effort, which Gemini calls thinking level; the provider's default where it is not set."""
    verbosity: Literal["low", "medium", "high"] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    detail: Literal["low", "medium", "high", "auto", "original"] | None = None
    """OpenAI's image detail, Gemini's media resolution."""
    max_tokens: int = Field(default=8192, ge=64)
    """Of the answer, including reasoning."""
    image_side: int = Field(default=1024, ge=64, le=4096)
    """Larger images are downscaled to this many pixels on their longer side."""
    image_quality: int = Field(default=92, ge=50, le=100)
    """Of the JPEG that is sent."""

    key_variable: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the key, if not the vendor's usual one; "" for a server without keys."""
    service_tier: Literal["default", "flex", "priority"] | None = Field(default=None, exclude=True)
    """`flex` is slower and costs about half (OpenAI, Google)."""
    price: TokenPrice | None = Field(default=None, exclude=True)
    """What the model costs, if the price list lacks it or is out of date."""
    requests_per_minute: float | None = Field(default=None, gt=0, exclude=True)
    tokens_per_minute: float | None = Field(default=None, gt=0, exclude=True)
    concurrency: int = Field(default=16, ge=1, le=512, exclude=True)
    """Questions in flight at once."""
    timeout: float = Field(default=300.0, gt=0, exclude=True)
    """Seconds to wait for one answer."""

    @property
    def address(self) -> str:
        """The API's address."""
        return self.base_url or ADDRESSES[self.provider]

    @property
    def key_name(self) -> str:
        """The environment variable that holds the key; empty if the server needs none."""
        return KEYS.get(self.provider, "") if self.key_variable is None else self.key_variable

    @property
    def key(self) -> str:
        """The key from the environment, or a placeholder for a server that needs none."""
        if not (name := self.key_name):
            return "none"
        if problem := key_problem(name):
            raise StillmeError(f"{problem}.")
        return key_in(name)

    def redacted(self, text: str) -> str:
        """A provider's words without the key, which some repeat when they reject it. Redact before you truncate."""
        return redacted(text, key_in(self.key_name))

    def dollars(self, input_tokens: int, output_tokens: int) -> float | None:
        """What so many tokens cost, by the audit's own price, else by the price list; None if unknown."""
        if self.price is not None:
            full = (self.price.input * input_tokens + self.price.output * output_tokens) / 1e6
            return full * (self.price.flex if self.service_tier == "flex" else 1.0)
        if self.provider == "openai-chat":
            # A self-hosted model may bear the name of one that a vendor sells.
            return None
        from genai_prices import Usage, calc_price

        try:
            price = calc_price(
                Usage(input_tokens=input_tokens, output_tokens=output_tokens),
                self.model,
                provider_id=self.provider,
                price_context={"service_tier": self.service_tier} if self.service_tier else None,
            )
        except (LookupError, ValueError):
            return None
        return float(price.total_price)

    def expected_dollars(self, *, pictures: int = 2) -> float | None:
        """The approximate cost of one question about a pair, or about one picture: half of that; None if unknown."""
        read, written = TYPICAL_TOKENS
        return self.dollars(read * pictures // 2, written * pictures // 2)

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if self.base_url is None and self.provider not in ADDRESSES:
            raise ValueError('`base_url` is missing: name your server, such as "http://localhost:8000/v1"')
        return self


ADDRESSES: Mapping[Provider, str] = {
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com",
    "anthropic": "https://api.anthropic.com",
}

KEYS: Mapping[Provider, str] = {
    "openai": "OPENAI_API_KEY",
    "google": "GEMINI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}


def known_models() -> Mapping[str, Mapping[str, Any]]:
    """The presets of models.toml, by name."""
    return _file()["models"]


def model_named(name: str, profile: Profile = "paper", **changes: Any) -> ModelSettings:
    """The settings of a preset, with `changes` on top; the profile `current` uses its successor."""
    entry = preset(name, profile)
    return ModelSettings.model_validate({**entry, **changes})


def preset(name: str, profile: Profile = "paper") -> dict[str, Any]:
    """The preset's settings as in models.toml."""
    known = known_models()
    if name not in known:
        raise UnknownName.among("model", name, known, f"Known models: {', '.join(known)}.")
    entry = dict(known[name])
    if profile == "current" and "successor" in entry:
        entry = dict(known[entry["successor"]])
    return {key: value for key, value in entry.items() if key not in _METADATA}


def retired_on(model: str) -> date | None:
    """When the vendor shuts the model down, if models.toml says so."""
    entries = known_models().values()
    return next((entry["retires"] for entry in entries if entry.get("model") == model and "retires" in entry), None)


_METADATA = frozenset({"summary", "successor", "retires"})


@cache
def _file() -> Mapping[str, Any]:
    return packaged_toml("stillme.judges.vlm", "models.toml")
