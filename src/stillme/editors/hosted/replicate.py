"""Replicate: predictions over plain HTTP.

The official client retries reads ten times silently and drops `Retry-After` from its errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, Declined, JobGone, fatal
from stillme.editors.hosted.json_client import JsonClient, Polling, download, path_of, poll
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("replicate")
_FLAGGED = re.compile(r"\(E005\)|NSFW content|flagged as sensitive", re.IGNORECASE)
"""A prediction that was flagged: Replicate's own code, or what its models say. Other errors are faults of the model."""
_NO_VERSION = re.compile(r"version does not exist|invalid version", re.IGNORECASE)
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

    def _submit(self, client: JsonClient, call: Call) -> str:
        return submit(client, self._queue.model, self._fields(call))

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        return collect(client, job, self.polling)


def submit(client: JsonClient, model: str, fields: Mapping[str, Any], *, prefix: str = "") -> str:
    """Create a prediction."""
    name, _, version = model.partition(":")
    path = f"{prefix}/v1/predictions" if version else f"{prefix}/v1/models/{name}/predictions"
    body: dict[str, Any] = {"input": dict(fields), **({"version": version} if version else {})}
    created = client.send("POST", path, body=body)
    message = str(dig(created.body, "detail") or created.text)
    try:
        created.require_success(message)
    except CallFailed as failure:
        raise (fatal(failure) if _NO_VERSION.search(message) else failure) from None
    return f"{prefix}{path_of(dig(created.require_json(), 'urls', 'get'))}"


def collect(client: JsonClient, job: str, polling: Polling) -> Answer:
    """Poll, and fetch the picture."""
    prediction = poll(lambda: client.send("GET", job), lambda body: dig(body, "status") not in _UNDER_WAY, polling)
    seconds = dig(prediction, "metrics", "predict_time")
    usage = Usage(seconds=float(seconds) if isinstance(seconds, int | float) else 0.0)
    status, error = dig(prediction, "status"), str(dig(prediction, "error") or "")
    if status == "failed" and (flag := _FLAGGED.search(error)):
        raise Declined(error, signal=f"error = {flag[0]}", usage=usage)
    if status != "succeeded":
        raise JobGone(f"the prediction is {status}: {error or 'no explanation'}", usage=usage)
    output: Json = dig(prediction, "output")
    link = output if isinstance(output, str) else dig(output, 0)
    paid = replace(usage, images=1)
    if link is None:
        # Replicate deletes outputs after an hour.
        raise JobGone(f"no picture in the answer; the answer: {prediction}", usage=paid)
    details = {name: dig(prediction, name) for name in ("id", "model", "version")}
    try:
        image = download(link, timeout=polling.timeout, interval=polling.interval)
    except JobGone as gone:
        raise JobGone(gone.failed.error, usage=paid) from None
    return Answer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})
