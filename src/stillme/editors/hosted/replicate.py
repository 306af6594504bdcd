"""Replicate: predictions over plain HTTP.

The official client retries reads ten times silently and drops `Retry-After` from its errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, Declined, shortened, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Polling, download, path_of, poll
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("replicate")
_FLAGGED = re.compile(r"\(E005\)")
"""Replicate's code for an input or output that was flagged as sensitive. Other codes are faults of the model."""
_UNDER_WAY = frozenset({"starting", "processing", "queued"})


class ReplicateParameters(QueuedParameters):
    """A model on Replicate: `owner/name`, or `owner/name:version` to pin a version."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url


class Replicate(Queued):
    """Image editing models hosted by Replicate."""

    Parameters: ClassVar[type[BaseModel]] = ReplicateParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted", variables=("REPLICATE_API_TOKEN",))
    service: ClassVar[str] = "replicate"
    key_variable: ClassVar[str] = "REPLICATE_API_TOKEN"

    def _headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        return run(connection, self._queue.model, self._fields(call), self.polling)


def run(client: JsonClient, model: str, fields: Mapping[str, Any], polling: Polling, *, prefix: str = "") -> Answer:
    """Create a prediction, poll, fetch."""
    name, _, version = model.partition(":")
    path = f"{prefix}/v1/predictions" if version else f"{prefix}/v1/models/{name}/predictions"
    body: dict[str, Any] = {"input": dict(fields), **({"version": version} if version else {})}
    created = client.send("POST", path, body=body)
    prediction = created.require_success(shortened(str(dig(created.body, "detail") or created.text))).require_json()
    if dig(prediction, "status") in _UNDER_WAY:
        place = f"{prefix}{path_of(dig(prediction, 'urls', 'get'))}"
        try:
            prediction = poll(
                lambda: client.send("GET", place), lambda body: dig(body, "status") not in _UNDER_WAY, polling
            )
        except CallFailed:
            # Cancelled before it runs, the work is not charged.
            with suppress(CallFailed):
                client.send("POST", f"{place}/cancel")
            raise
    return _answer(prediction, polling)


def _answer(prediction: Json, polling: Polling) -> Answer:
    seconds = dig(prediction, "metrics", "predict_time")
    usage = Usage(seconds=float(seconds) if isinstance(seconds, int | float) else 0.0)
    status, error = dig(prediction, "status"), str(dig(prediction, "error") or "")
    if status == "failed" and _FLAGGED.search(error):
        raise Declined(error, signal="error code E005", usage=usage)
    if status != "succeeded":
        raise CallFailed(
            f"the prediction is {status}: {shortened(error) or 'no explanation'}", retryable=True, usage=usage
        )
    output: Json = dig(prediction, "output")
    link = output if isinstance(output, str) else dig(output, 0)
    if link is None:
        raise unexpected_answer("no picture in the answer", prediction, usage=usage)
    details = {name: dig(prediction, name) for name in ("id", "model", "version")}
    return Answer(
        image=download(link, timeout=polling.timeout),
        usage=usage,
        effective={name: value for name, value in details.items() if value},
    )
