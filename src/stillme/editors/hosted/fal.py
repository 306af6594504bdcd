"""fal: a queue of models, over plain HTTP.

The official client retries ten times in silence, ignores `Retry-After` and cannot be pointed at another host.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import Broken, Declined, dig, of_answer, shortened
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.editors.hosted.wire import Patience, Reply, Wire, download, path_of, wait_for
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

    def _ask(self, connection: Wire, call: Call) -> Answer:
        return run(connection, f"/{self._queue.model}", self._fields(call), self.patience)


def run(wire: Wire, route: str, fields: Mapping[str, Any], patience: Patience, *, prefix: str = "") -> Answer:
    """Queue the work, wait, fetch. `route` may carry a query, which a router wants to see each time."""
    query = route.partition("?")[2]
    query = f"?{query}" if query else ""
    queued = _checked(wire.send("POST", f"{prefix}{route}", body=fields)).require_json()
    place = f"{prefix}{path_of(dig(queued, 'response_url'))}"
    try:
        status = wait_for(
            lambda: _checked(wire.send("GET", f"{place}/status{query}")),
            lambda body: dig(body, "status") not in ("IN_QUEUE", "IN_PROGRESS"),
            patience,
        )
        if dig(status, "status") != "COMPLETED":
            raise of_answer("an unknown state of the queue", status)
        result = _checked(wire.send("GET", f"{place}{query}")).require_json()
    except Broken:
        # Nobody waits for it any more; what has not begun need not be paid for.
        with suppress(Broken):
            wire.send("PUT", f"{place}/cancel{query}")
        raise
    return _answer(result, fields, patience)


def _answer(result: Json, fields: Mapping[str, Any], patience: Patience) -> Answer:
    concepts: Json = dig(result, "has_nsfw_concepts")
    if isinstance(concepts, list) and any(flag is True for flag in cast("list[Json]", concepts)):
        raise Declined(f"has_nsfw_concepts: {concepts}", signal="has_nsfw_concepts")
    link = dig(result, "images", 0, "url") or dig(result, "image", "url")
    if link is None:
        raise of_answer("no picture in the answer", result)
    told = {"seed": dig(result, "seed"), "revised_prompt": dig(result, "prompt")}
    if told["revised_prompt"] == fields["prompt"]:
        told["revised_prompt"] = None
    return Answer(
        image=download(link, timeout=patience.seconds),
        effective={name: value for name, value in told.items() if value not in (None, "")},
    )


def _checked(reply: Reply) -> Reply:
    """Raise what an error says: a refusal where fal marks it as one."""
    if reply.status < 400:
        return reply
    detail: Json = dig(reply.body, "detail")
    entries = cast("list[Json]", detail) if isinstance(detail, list) else []
    said = "" if entries else str(cast("Json", detail) or reply.text)
    for entry in entries:
        if dig(entry, "type") == _REFUSAL:
            raise Declined(str(dig(entry, "msg") or entry), signal=f"detail.type = {_REFUSAL}")
    words = "; ".join(str(dig(entry, "msg") or entry) for entry in entries) or said
    return reply.require_success(shortened(words))
