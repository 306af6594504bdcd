"""fal: queued models, over plain HTTP.

The official client retries ten times silently, ignores `Retry-After` and has a fixed host.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, Declined, shortened, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Polling, Reply, download, path_of, poll
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("fal")
_REFUSAL = "content_policy_violation"


class FalParameters(QueuedParameters):
    """A model on fal."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url


class Fal(Queued):
    """Image editing models hosted by fal."""

    Parameters: ClassVar[type[BaseModel]] = FalParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted", variables=("FAL_KEY",))
    service: ClassVar[str] = "fal"
    key_variable: ClassVar[str] = "FAL_KEY"

    def _headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Key {key}"}

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        return run(connection, f"/{self._queue.model}", self._fields(call), self.polling)


def run(client: JsonClient, route: str, fields: Mapping[str, Any], polling: Polling, *, prefix: str = "") -> Answer:
    """Submit, poll, fetch. `route` may have a query string, which a router needs on every call."""
    query = route.partition("?")[2]
    query = f"?{query}" if query else ""
    queued = _checked(client.send("POST", f"{prefix}{route}", body=fields)).require_json()
    place = f"{prefix}{path_of(dig(queued, 'response_url'))}"
    try:
        status = poll(
            lambda: _checked(client.send("GET", f"{place}/status{query}")),
            lambda body: dig(body, "status") not in ("IN_QUEUE", "IN_PROGRESS"),
            polling,
        )
        if dig(status, "status") != "COMPLETED":
            raise unexpected_answer("unknown queue status", status)
        result = _checked(client.send("GET", f"{place}{query}")).require_json()
    except CallFailed:
        # Cancelled before it starts, the work is not charged.
        with suppress(CallFailed):
            client.send("PUT", f"{place}/cancel{query}")
        raise
    return _answer(result, fields, polling)


def _answer(result: Json, fields: Mapping[str, Any], polling: Polling) -> Answer:
    concepts: Json = dig(result, "has_nsfw_concepts")
    if isinstance(concepts, list) and any(flag is True for flag in cast("list[Json]", concepts)):
        raise Declined(f"has_nsfw_concepts: {concepts}", signal="has_nsfw_concepts")
    link = dig(result, "images", 0, "url") or dig(result, "image", "url")
    if link is None:
        raise unexpected_answer("no picture in the answer", result)
    details = {"seed": dig(result, "seed"), "revised_prompt": dig(result, "prompt")}
    if details["revised_prompt"] == fields["prompt"]:
        details["revised_prompt"] = None
    return Answer(
        image=download(link, timeout=polling.timeout),
        effective={name: value for name, value in details.items() if value not in (None, "")},
    )


def _checked(reply: Reply) -> Reply:
    """Raise an error reply: as a refusal if fal marks it as one."""
    if reply.status < 400:
        return reply
    detail: Json = dig(reply.body, "detail")
    entries = cast("list[Json]", detail) if isinstance(detail, list) else []
    plain = "" if entries else str(cast("Json", detail) or reply.text)
    for entry in entries:
        if dig(entry, "type") == _REFUSAL:
            raise Declined(str(dig(entry, "msg") or entry), signal=f"detail.type = {_REFUSAL}")
    message = "; ".join(str(dig(entry, "msg") or entry) for entry in entries) or plain
    return reply.require_success(shortened(message))
