"""The last step before the network: images join the request, and an error inside a 200 becomes an error.

Clients copy, encode and escape the whole request several times, which takes most of the CPU time of a question. So they
get a short placeholder for each image, and the image's base64, encoded once, takes its place in the finished request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import httpx2

from stillme.json_paths import dig
from stillme.types import Json

IMAGES: ContextVar[Mapping[bytes, bytes]] = ContextVar("IMAGES")
"""Of the question that the current task sends: base64 of the placeholder to base64 of the image."""
_LONGEST_BODY = 200
"""Characters of a body that is no answer."""
_RATE_LIMITS = frozenset({"rate_limit_exceeded", "rate_limit_error", "insufficient_quota"})


class QuestionClient(httpx2.AsyncClient):
    """The HTTP client of one model. Only questions are changed, not files and batches."""

    def __init__(self, endpoint: str, required: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._endpoint, self._required = endpoint, required

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; for a question, with its images, and with an honest status in return."""
        if not request.url.path.endswith(self._endpoint):
            return await super().send(request, **options)
        _insert_images(request, IMAGES.get({}))
        response = await super().send(request, **options)
        if response.status_code != httpx2.codes.OK:
            return response
        await response.aread()
        return _with_honest_status(response, self._required)


def _insert_images(request: httpx2.Request, images: Mapping[bytes, bytes]) -> None:
    content = request.content
    for placeholder, image in images.items():
        if placeholder not in content:
            raise RuntimeError("the client did not put an image into the request as base64")
        content = content.replace(placeholder, image)
    request.stream = httpx2.ByteStream(content)
    request.headers["Content-Length"] = str(len(content))


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
