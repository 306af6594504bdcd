"""What the providers over plain HTTP share: fields that differ by model, and looking after queued work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from stillme.editors.hosted.editor import Call, Hosted, HostedParameters
from stillme.editors.hosted.wire import Patience, Wire


class QueuedParameters(HostedParameters):
    """What models behind a queue differ in."""

    images: str | None = Field(default=None, pattern=r"^\w+(\[\])?(,\w+(\[\])?)*$")
    """The field that takes the portraits, with `[]` at its end if it is a list; by default what the catalogue says.
    Several, separated by commas, where it is not known which one a model reads."""
    seed_field: str = "seed"
    """Empty for a model that takes no seed."""
    poll_seconds: float = Field(default=0.5, gt=0, exclude=True)
    """How often to look whether the work is done, at first."""


class Queued(Hosted[Wire]):
    """An editor whose provider takes work into a queue."""

    def __init__(self, parameters: QueuedParameters) -> None:
        self._queue = parameters
        super().__init__(parameters)
        self._images = (parameters.images or self._default_images()).split(",")
        if not parameters.seed_field:
            self.capabilities = replace(self.capabilities, seed="none")

    @abstractmethod
    def _headers(self, key: str) -> Mapping[str, str]:
        """How the provider wants to see the key."""

    def _default_images(self) -> str:
        return self.facts.images

    def _reserved(self) -> frozenset[str]:
        return self.reserved | {*(name.removesuffix("[]") for name in self._images), self._queue.seed_field}

    @property
    def patience(self) -> Patience:
        """As the audit sets it."""
        return Patience(seconds=self._queue.timeout, interval=self._queue.poll_seconds)

    def _connect(self, key: str) -> Wire:
        return Wire(self._queue.base_url, self._headers(key), timeout=self._queue.timeout)

    def _fields(self, call: Call) -> dict[str, Any]:
        """Prompt, pictures and seed under the names that the model knows."""
        links = [picture.data_uri for picture in call.pictures]
        pictures = {name.removesuffix("[]"): links if name.endswith("[]") else links[0] for name in self._images}
        seed = {self._queue.seed_field: call.seed} if self._queue.seed_field else {}
        return {"prompt": call.instruction, **pictures, **seed, **self._queue.extra}
