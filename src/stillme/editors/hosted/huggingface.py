"""Hugging Face inference providers: several providers behind one router and one key.

The official client loses fal's refusals: it ignores the status of the final answer and drops `has_nsfw_concepts`. So we
speak the providers' own protocols through the router.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue, fal, replicate
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient
from stillme.editors.hosted.queued import Queued, QueuedParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("huggingface")
_TASK = "image-to-image"
_IMAGES = {
    "fal-ai": "image_url,image_urls[]",
    "replicate": "image,images[],input_image,input_images[]",
    "hf-inference": "inputs",
}
"""The hub does not say which field a model reads; like the official client, we fill all fields of a provider."""


class HuggingFaceParameters(QueuedParameters):
    """A model of the hub, run by one of its providers."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    provider: Literal["fal-ai", "replicate", "hf-inference"] = "fal-ai"
    provider_id: str = ""
    """The model's name at the provider; by default looked up on the hub."""
    hub_url: str = Field(default="https://huggingface.co", exclude=True)


class HuggingFace(Queued):
    """Image editing models of the Hugging Face hub, by inference providers."""

    Parameters: ClassVar[type[BaseModel]] = HuggingFaceParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted", variables=("HF_TOKEN",))
    service: ClassVar[str] = "huggingface"
    key_variable: ClassVar[str] = "HF_TOKEN"

    def __init__(self, parameters: HuggingFaceParameters) -> None:
        self._hub = parameters
        super().__init__(parameters)
        self._resolved_id = parameters.provider_id
        self._resolving = threading.Lock()

    def _default_images(self) -> str:
        return _IMAGES[self._hub.provider]

    def _headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        name, provider = self._provider_id(), self._hub.provider
        if provider == "hf-inference":
            answer = _direct(connection, f"/{provider}/models/{name}", self._direct_fields(call))
        else:
            answer = super()._ask(connection, call)
        return replace(answer, effective={**answer.effective, "provider": provider, "provider_id": name})

    def _submit(self, client: JsonClient, call: Call) -> str:
        name, fields, prefix = self._provider_id(), self._fields(call), f"/{self._hub.provider}"
        if self._hub.provider == "replicate":
            return replicate.submit(client, name, fields, prefix=prefix)
        # Without this query, the router does not use fal's queue.
        return fal.submit(client, f"/{name}?_subdomain=queue", fields, prefix=prefix)

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        if self._hub.provider == "replicate":
            return replicate.collect(client, job, self.polling)
        return fal.collect(client, job, call.instruction, self.polling)

    def _direct_fields(self, call: Call) -> dict[str, Any]:
        parameters = {"prompt": call.instruction, **self._hub.extra}
        if self._hub.seed_field:
            parameters[self._hub.seed_field] = call.seed
        return {"inputs": call.pictures[0].data_uri.partition(",")[2], "parameters": parameters}

    def _provider_id(self) -> str:
        with self._resolving:
            if not self._resolved_id:
                key = self._key(self._hub.hub_url)
                hub = JsonClient(self._hub.hub_url, self._headers(key), timeout=self._hub.timeout)
                try:
                    reply = hub.send("GET", f"/api/models/{self._hub.model}?expand[]=inferenceProviderMapping")
                finally:
                    hub.close()
                self._resolved_id = self._mapped(dig(reply.require_json(), "inferenceProviderMapping"))
            return self._resolved_id

    def _mapped(self, mapping: Json) -> str:
        """The model's name at the provider. The hub answers with an object or with a list."""
        provider, model = self._hub.provider, self._hub.model
        if isinstance(mapping, list):
            mapping = {dig(entry, "provider"): entry for entry in cast("list[Json]", mapping)}
        entry = dig(mapping, provider)
        name = dig(entry, "providerId")
        if not isinstance(name, str):
            known = ", ".join(cast("dict[str, Json]", mapping or {})) or "none"
            raise CallFailed(f"{provider!r} does not serve {model!r}; these do: {known}", retryable=True, fatal=True)
        if dig(entry, "task") != _TASK:
            raise CallFailed(
                f"{provider!r} serves {model!r} for {dig(entry, 'task')}, not {_TASK}", retryable=True, fatal=True
            )
        return name


def _direct(client: JsonClient, path: str, body: Mapping[str, Any]) -> Answer:
    """The hub's own servers answer directly, with the image's bytes."""
    reply = client.send("POST", path, body=dict(body), headers={"Accept": "image/png"}).require_success()
    if isinstance(reply.body, dict):
        raise unexpected_answer("no picture in the answer", reply.text)
    return Answer(image=reply.content)
