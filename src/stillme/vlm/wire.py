"""The last step before an answer is read: an error inside a 200 becomes an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from stillme.json_paths import dig
from stillme.types import Json

_LONGEST_BODY = 200
"""Characters of a body that is no answer."""
_RATE_LIMITS = frozenset({"rate_limit_exceeded", "rate_limit_error", "insufficient_quota"})


class QuestionClient(httpx2.AsyncClient):
    """The HTTP client of one model."""

    def __init__(self, required: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._required = required

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a question, with an honest status in return."""
        response = await super().send(request, **options)
        if response.status_code != httpx2.codes.OK:
            return response
        await response.aread()
        return _with_honest_status(response, self._required)


def _with_honest_status(response: httpx2.Response, required: Sequence[str]) -> httpx2.Response:
    """Gateways and overloaded servers answer 200 with an error, with nothing, or with a web page."""
    try:
        body: Json = response.json()
    except ValueError:
        body = None
    error = dig(body, "error")
    if error:
        return httpx2.Response(
            _status(error),
            json=body if dig(error, "message") else {"error": {"message": str(error)}},
            request=response.request,
        )
    absent = [name for name in required if dig(body, name) is None]
    if isinstance(body, dict) and body and not absent:
        return response
    what = f"`{absent[0]}`" if isinstance(body, dict) and absent else "an answer"
    message = f"an HTTP 200 without {what} ({response.text[:_LONGEST_BODY]!r})"
    return httpx2.Response(httpx2.codes.BAD_GATEWAY, json={"error": {"message": message}}, request=response.request)


def _status(error: Json) -> int:
    """The status that an error should have had."""
    code = str(dig(error, "code"))
    if code.isdigit() and 400 <= int(code) < 600:
        return int(code)
    is_limit = code in _RATE_LIMITS or str(dig(error, "type")) in _RATE_LIMITS
    return httpx2.codes.TOO_MANY_REQUESTS if is_limit else httpx2.codes.BAD_GATEWAY
