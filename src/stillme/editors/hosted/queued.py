"""What the providers over plain HTTP share: request fields that differ by model, and polling."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from stillme.editors.hosted.editor import Call, Hosted, HostedParameters
from stillme.editors.hosted.json_client import JsonClient, Polling


class QueuedParameters(HostedParameters):
    """Settings of models behind a queue."""

    images: str | None = Field(default=None, pattern=r"^\w+(\[\])?(,\w+(\[\])?)*$")
    """The request field that takes the portraits, with a trailing `[]` if it is a list; by default the catalogue's.
    Several, separated by commas, if it is not known which one a model reads."""
    seed_field: str = "seed"
    """Empty for a model that takes no seed."""
    poll_seconds: float = Field(default=0.5, gt=0, exclude=True)
    """Seconds between the first looks at the queue; later ones are further apart."""


class Queued(Hosted[JsonClient]):
    """An editor whose provider queues the work."""

    def __init__(self, parameters: QueuedParameters) -> None:
        self._queue = parameters
        super().__init__(parameters)
        self._images = (parameters.images or self._default_images()).split(",")
        if not parameters.seed_field:
            self.capabilities = replace(self.capabilities, seed="none")

    @abstractmethod
    def _headers(self, key: str) -> Mapping[str, str]:
        """The headers that carry the key."""

    def _default_images(self) -> str:
        return self.facts.images

    def _reserved(self) -> frozenset[str]:
        return self.reserved | {*(name.removesuffix("[]") for name in self._images), self._queue.seed_field}

    @property
    def polling(self) -> Polling:
        """The audit's timeout and interval."""
        return Polling(timeout=self._queue.timeout, interval=self._queue.poll_seconds)

    def _connect(self, key: str) -> JsonClient:
        return JsonClient(self._queue.base_url, self._headers(key), timeout=self._queue.timeout)

    def _fields(self, call: Call) -> dict[str, Any]:
        """Prompt, images and seed under the model's field names."""
        links = [picture.data_uri for picture in call.pictures]
        pictures = {name.removesuffix("[]"): links if name.endswith("[]") else links[0] for name in self._images}
        seed = {self._queue.seed_field: call.seed} if self._queue.seed_field else {}
        return {"prompt": call.instruction, **pictures, **seed, **self._queue.extra}
