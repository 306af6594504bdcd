"""Replicate: predictions over plain HTTP.

The official client retries reads ten times in silence and drops `Retry-After` from its errors.
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
from stillme.editors.hosted.faults import Broken, Declined, dig, of_answer, shortened
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.editors.hosted.wire import Patience, Wire, download, path_of, wait_for
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

    def _ask(self, connection: Wire, call: Call) -> Answer:
        return run(connection, self._queue.model, self._fields(call), self.patience)


def run(wire: Wire, model: str, fields: Mapping[str, Any], patience: Patience, *, prefix: str = "") -> Answer:
    """Create a prediction, wait, fetch."""
    name, _, version = model.partition(":")
    path = f"{prefix}/v1/predictions" if version else f"{prefix}/v1/models/{name}/predictions"
    body: dict[str, Any] = {"input": dict(fields), **({"version": version} if version else {})}
    made = wire.send("POST", path, body=body)
    prediction = made.require_success(shortened(str(dig(made.body, "detail") or made.text))).require_json()
    if dig(prediction, "status") in _UNDER_WAY:
        place = f"{prefix}{path_of(dig(prediction, 'urls', 'get'))}"
        try:
            prediction = wait_for(
                lambda: wire.send("GET", place), lambda body: dig(body, "status") not in _UNDER_WAY, patience
            )
        except Broken:
            # Nobody waits for it any more; what has not run need not be paid for.
            with suppress(Broken):
                wire.send("POST", f"{place}/cancel")
            raise
    return _answer(prediction, patience)


def _answer(prediction: Json, patience: Patience) -> Answer:
    seconds = dig(prediction, "metrics", "predict_time")
    usage = Usage(seconds=float(seconds) if isinstance(seconds, int | float) else 0.0)
    status, error = dig(prediction, "status"), str(dig(prediction, "error") or "")
    if status == "failed" and _FLAGGED.search(error):
        raise Declined(error, signal="error code E005", usage=usage)
    if status != "succeeded":
        raise Broken(f"the prediction is {status}: {shortened(error) or 'no explanation'}", retryable=True, usage=usage)
    output: Json = dig(prediction, "output")
    link = output if isinstance(output, str) else dig(output, 0)
    if link is None:
        raise of_answer("no picture in the answer", prediction, usage=usage)
    told = {name: dig(prediction, name) for name in ("id", "model", "version")}
    return Answer(
        image=download(link, timeout=patience.seconds),
        usage=usage,
        effective={name: value for name, value in told.items() if value},
    )
