"""What an answer cost: by the audit's own price, else by the price list, else unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillme.judges.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

TYPICAL_TOKENS = (3000, 600)
"""Input and output of one judged pair, for estimates before the first answer."""


def dollars(settings: ModelSettings, response: ModelResponse) -> float | None:
    """What the call cost; None if unknown."""
    used = response.usage
    if not used.input_tokens or (response.text and not used.output_tokens):
        # Nothing is asked or answered without tokens, so the server did not count them.
        return None
    if settings.price is not None:
        return _by_own_price(settings, used.input_tokens, used.output_tokens)
    if settings.provider == "openai-chat":
        # A self-hosted model may bear the name of one that a vendor sells.
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def expected(settings: ModelSettings, *, pictures: int = 2) -> float | None:
    """The approximate cost of one question about a pair, or about one picture: half of that; None if unknown."""
    read, written = TYPICAL_TOKENS
    return of_tokens(settings, read * pictures // 2, written * pictures // 2)


def of_tokens(settings: ModelSettings, input_tokens: int, output_tokens: int) -> float | None:
    """What so many tokens cost; None if unknown."""
    if settings.price is not None:
        return _by_own_price(settings, input_tokens, output_tokens)
    if settings.provider == "openai-chat":
        return None
    from genai_prices import Usage, calc_price

    try:
        price = calc_price(
            Usage(input_tokens=input_tokens, output_tokens=output_tokens),
            settings.model,
            provider_id=settings.provider,
            price_context={"service_tier": settings.service_tier} if settings.service_tier else None,
        )
    except (LookupError, ValueError):
        return None
    return float(price.total_price)


def _by_own_price(settings: ModelSettings, input_tokens: int, output_tokens: int) -> float:
    assert settings.price is not None
    full = (settings.price.input * input_tokens + settings.price.output * output_tokens) / 1e6
    return full * (settings.price.flex if settings.service_tier == "flex" else 1.0)
