"""fal: queued models, over plain HTTP.

The official client retries ten times silently, ignores `Retry-After` and has a fixed host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import Declined, JobGone
from stillme.editors.hosted.json_client import JsonClient, Polling, Reply, download, fetch, path_of, poll
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("fal")
_REFUSAL = "content_policy_violation"
_WAITING = ("IN_QUEUE", "IN_PROGRESS")
_SERVER = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of the server in front of the job; with any other, the job itself has failed."""


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

    def _submit(self, client: JsonClient, call: Call) -> str:
        return submit(client, f"/{self._queue.model}", self._fields(call))

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        return collect(client, job, call.instruction, self.polling)


def submit(client: JsonClient, route: str, fields: Mapping[str, Any], *, prefix: str = "") -> str:
    """Queue the work. `route` may have a query string, which a router needs on every call."""
    query = route.partition("?")[2]
    queued = _checked(client.send("POST", f"{prefix}{route}", body=dict(fields))).require_json()
    return f"{prefix}{path_of(dig(queued, 'response_url'))}{f'?{query}' if query else ''}"


def collect(client: JsonClient, job: str, instruction: str, polling: Polling) -> Answer:
    """Poll, and fetch the result."""
    place, mark, query = job.partition("?")
    status = poll(
        lambda: _checked(client.send("GET", f"{place}/status{mark}{query}")),
        lambda body: dig(body, "status") not in _WAITING,
        polling,
    )
    if dig(status, "status") != "COMPLETED":
        raise JobGone(f"unknown queue status; the answer: {status}")
    result = fetch(lambda: _result(client.send("GET", job)), polling)
    return _answer(result, instruction, polling)


def _result(reply: Reply) -> Json:
    if reply.status >= 500 and reply.status not in _SERVER and dig(reply.body, "detail"):
        raise JobGone(f"the job failed ({reply.status}: {_message(reply)})", usage=Usage())
    return _checked(reply).require_json()


def _answer(result: Json, instruction: str, polling: Polling) -> Answer:
    concepts: Json = dig(result, "has_nsfw_concepts")
    if isinstance(concepts, list) and any(flag is True for flag in cast("list[Json]", concepts)):
        # The picture was made before it was withheld.
        raise Declined(f"has_nsfw_concepts: {concepts}", signal="has_nsfw_concepts", usage=Usage(images=1))
    link = dig(result, "images", 0, "url") or dig(result, "image", "url")
    if link is None:
        raise JobGone(f"no picture in the answer; the answer: {result}")
    details = {"seed": dig(result, "seed"), "revised_prompt": dig(result, "prompt")}
    if details["revised_prompt"] == instruction:
        details["revised_prompt"] = None
    return Answer(
        image=download(link, timeout=polling.timeout, interval=polling.interval),
        effective={name: value for name, value in details.items() if value not in (None, "")},
    )


def _checked(reply: Reply) -> Reply:
    """Raise an error reply: as a refusal if fal marks it as one."""
    if reply.status < 400:
        return reply
    for entry in _entries(reply):
        if dig(entry, "type") == _REFUSAL:
            raise Declined(str(dig(entry, "msg") or entry), signal=f"detail.type = {_REFUSAL}")
    return reply.require_success(_message(reply))


def _message(reply: Reply) -> str:
    entries = "; ".join(str(dig(entry, "msg") or entry) for entry in _entries(reply))
    return entries or str(dig(reply.body, "detail") or reply.text)


def _entries(reply: Reply) -> list[Json]:
    detail: Json = dig(reply.body, "detail")
    return cast("list[Json]", detail) if isinstance(detail, list) else []
