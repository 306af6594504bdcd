"""What an answer cost: by the audit's own price, else by the price list, else unknown and said so."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from stillme.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

GUIDE = (3000, 600)
"""Tokens in and out of one judged pair, as a guide before the first answer."""


def dollars(settings: ModelSettings, response: ModelResponse, *, batch: bool = False) -> float | None:
    """What the call cost; None where nobody can say."""
    used = response.usage
    if settings.price is not None:
        return _at(settings, used.input_tokens, used.output_tokens, batch=batch)
    if settings.provider == "openai-chat":
        # A server of one's own may serve a model under a name that somebody else sells.
        return None
    try:
        found: Decimal = response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return None
    return float(found)


def expected(settings: ModelSettings, questions: int = 1, *, batch: bool = False) -> float | None:
    """What that many questions about a pair will cost, roughly; None where nobody can say."""
    tokens_in, tokens_out = GUIDE
    if settings.price is not None:
        return questions * _at(settings, tokens_in, tokens_out, batch=batch)
    if settings.provider == "openai-chat":
        return None
    from genai_prices import Usage, calc_price

    try:
        listed = calc_price(
            Usage(input_tokens=tokens_in, output_tokens=tokens_out), settings.model, provider_id=settings.provider
        )
    except (LookupError, ValueError):
        return None
    share = 0.5 if batch or settings.service_tier == "flex" else 1.0
    return questions * float(listed.total_price) * share


def _at(settings: ModelSettings, tokens_in: int, tokens_out: int, *, batch: bool) -> float:
    assert settings.price is not None
    full = (settings.price.input * tokens_in + settings.price.output * tokens_out) / 1e6
    return full * (settings.price.batch if batch or settings.service_tier == "flex" else 1.0)
