"""How each provider takes a batch, and how a batch is found again whose number was lost.

Every batch carries the ticket under which it was handed over: as metadata (OpenAI), as its display name (Gemini), or,
as Anthropic keeps no such field, in the ids of its requests, which can be read once it has ended.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from stillme.vlm.settings import Provider

if TYPE_CHECKING:
    from pydantic_ai.models.batch import EncodedBatchRequest

_EARLIER = timedelta(minutes=10)
"""Our clock and the provider's may differ by less than this."""
_ENDPOINT = "/v1/responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The batch that was handed over under a ticket."""

    batch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Perhaps:
    """A batch that may be it; only its results will tell."""


class Nowhere:
    """The provider has no batch under that ticket."""


Whereabouts = Found | Perhaps | Nowhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What is known of a batch whose number was lost."""

    ticket: str
    since: datetime
    requests: int


class Courier(ABC):
    """One provider's batch service, as far as pydantic-ai does not cover it."""

    @abstractmethod
    async def hand_over(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Submit, once and without retries; the number that the provider gives to the batch."""

    @abstractmethod
    async def find(self, client: Any, sought: Sought) -> Whereabouts:
        """Look for a batch that was handed over under a ticket."""

    @abstractmethod
    async def tidy(self, client: Any, batch: str) -> None:
        """Delete what was uploaded for a batch: portraits are not left lying about."""


class OpenAICourier(Courier):
    """A file of requests, then a batch over it with the ticket as metadata."""

    async def hand_over(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Upload the file and create the batch."""
        lines = (
            f'{{"custom_id":{json.dumps(each.custom_id)},"method":"POST","url":"{_ENDPOINT}","body":{each.body}}}'
            for each in requests
        )
        file = ("stillme.jsonl", "\n".join(lines).encode())
        uploaded = await client.client.files.create(file=file, purpose="batch")
        created = await client.client.batches.create(
            input_file_id=uploaded.id, endpoint=_ENDPOINT, completion_window="24h", metadata={"stillme": ticket}
        )
        return created.id

    async def find(self, client: Any, sought: Sought) -> Whereabouts:
        """Newest first, back to when the ticket was written."""
        async for batch in client.client.batches.list(limit=100):
            metadata: dict[str, str] = batch.metadata or {}
            if metadata.get("stillme") == sought.ticket:
                return Found(batch=batch.id)
            if batch.created_at < (sought.since - _EARLIER).timestamp():
                break
        return Nowhere()

    async def tidy(self, client: Any, batch: str) -> None:
        """Delete the uploaded file and the answers' files."""
        from openai import OpenAIError

        with suppress(OpenAIError):
            known = await client.client.batches.retrieve(batch)
            for file in filter(None, (known.input_file_id, known.output_file_id, known.error_file_id)):
                await client.client.files.delete(file)


class GeminiCourier(Courier):
    """A file of requests, then a job over it with the ticket as display name."""

    async def hand_over(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Upload the file and create the job."""
        lines = (f'{{"key":{json.dumps(each.custom_id)},"request":{each.body}}}' for each in requests)
        upload = io.BytesIO("\n".join(lines).encode())
        speaking = client.client.aio
        named = {"mime_type": "application/jsonl", "display_name": _label(ticket)}
        file = await speaking.files.upload(file=upload, config=named)
        once = {"retry_options": {"attempts": 1}}
        job = await speaking.batches.create(
            model=client.model_name, src=file.name, config={"display_name": _label(ticket), "http_options": once}
        )
        return job.name

    async def find(self, client: Any, sought: Sought) -> Whereabouts:
        """Jobs come in no promised order, so all are looked at; Google keeps few."""
        async for job in await client.client.aio.batches.list(config={"page_size": 100}):
            if job.display_name == _label(sought.ticket):
                return Found(batch=job.name)
        return Nowhere()

    async def tidy(self, client: Any, batch: str) -> None:
        """Delete the uploaded file, which carries the job's display name."""
        from google.genai.errors import APIError

        speaking = client.client.aio
        with suppress(APIError):
            label = (await speaking.batches.get(name=batch)).display_name
            async for file in await speaking.files.list(config={"page_size": 100}):
                if label and file.display_name == label:
                    await speaking.files.delete(name=file.name)


class AnthropicCourier(Courier):
    """One call that holds all requests; nothing is uploaded beside it."""

    async def hand_over(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Create the batch. The ticket stands in every request's id."""
        held = [{"custom_id": each.custom_id, "params": json.loads(each.body)} for each in requests]
        extras = json.loads(requests[0].group).get("betas")
        more: dict[str, Any] = {"betas": extras} if extras else {}
        created = await client.client.beta.messages.batches.create(requests=held, **more)
        return created.id

    async def find(self, client: Any, sought: Sought) -> Whereabouts:
        """Of the batches of that time and size, the one whose results bear the ticket."""
        batches = client.client.beta.messages.batches
        perhaps = False
        async for batch in batches.list(limit=100):
            if batch.created_at < sought.since - _EARLIER:
                break
            counts = batch.request_counts
            held = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            if held != sought.requests:
                continue
            if batch.processing_status != "ended":
                perhaps = True
            elif await self._bears(batches, batch.id, sought.ticket):
                return Found(batch=batch.id)
        return Perhaps() if perhaps else Nowhere()

    async def tidy(self, client: Any, batch: str) -> None:
        """Delete the batch with its requests."""
        from anthropic import AnthropicError

        with suppress(AnthropicError):
            await client.client.beta.messages.batches.delete(batch)

    async def _bears(self, batches: Any, batch: str, ticket: str) -> bool:
        async for result in await batches.results(batch):
            return str(result.custom_id).startswith(ticket)
        return False


COURIERS: Mapping[Provider, Courier] = {
    "openai": OpenAICourier(),
    "google": GeminiCourier(),
    "anthropic": AnthropicCourier(),
}


def _label(ticket: str) -> str:
    return f"stillme-{ticket}"
