"""The last step before an answer is read: an error inside a 200 becomes an error, and what arrived is kept.

An official client may fail over an answer that was paid for, such as a number of 5,000 digits. So the envelope with its
text and its tokens is read here, before anything else can raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import httpx2

from stillme.core.http.client import UNSENT, Client
from stillme.core.http.replies import parsed
from stillme.core.json_paths import dig
from stillme.core.types import Json

_LONGEST_BODY = 200
"""Characters of a body that is no answer."""
_RATE_LIMITS = frozenset({"rate_limit_exceeded", "rate_limit_error", "insufficient_quota"})

ARRIVED: ContextVar[list[Json]] = ContextVar("arrived")
"""The envelopes of successful answers to the question that this task asks; None for a body that is no answer."""


class QuestionClient(Client):
    """The HTTP client of one model."""

    def __init__(self, required: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._required = required

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


def _status(error: Json) -> int:
    """The status that an error should have had."""
    code = str(dig(error, "code"))
    if code.isdigit() and 400 <= int(code) < 600:
        return int(code)
    is_limit = code in _RATE_LIMITS or str(dig(error, "type")) in _RATE_LIMITS
    return httpx2.codes.TOO_MANY_REQUESTS if is_limit else httpx2.codes.BAD_GATEWAY
