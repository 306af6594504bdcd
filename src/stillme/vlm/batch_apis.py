"""How each provider accepts a batch, and how a batch is found again when its ID was lost.

Every batch carries the ticket under which it was submitted: as metadata (OpenAI), as its display name (Gemini), or in
the IDs of its requests (Anthropic, which has no such field); those can be read only once the batch has ended.
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

_CLOCK_SKEW = timedelta(minutes=10)
"""More than our clock and the provider's may differ."""
_ENDPOINT = "/v1/responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The batch that was submitted under a ticket."""

    batch: str


class MaybeSubmitted:
    """A batch that may be the one; only its results will tell."""


class NotSubmitted:
    """The provider has no batch under that ticket."""


BatchLookup = Located | MaybeSubmitted | NotSubmitted


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBatch:
    """What is known about a batch whose ID was lost."""

    ticket: str
    since: datetime
    requests: int


class BatchApi(ABC):
    """The parts of a provider's batch API that pydantic-ai does not cover."""

    @abstractmethod
    async def submit(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Submit once, without retries; returns the batch's ID."""

    @abstractmethod
    async def look_up(self, client: Any, lost: LostBatch) -> BatchLookup:
        """Look for a batch by its ticket."""

    @abstractmethod
    async def clean_up(self, client: Any, batch: str) -> None:
        """Delete what was uploaded for a batch, so that no portraits stay with the provider."""

    @abstractmethod
    async def clean_up_ticket(self, client: Any, ticket: str) -> None:
        """Delete what was uploaded under a ticket that became no batch, or whose batch is gone."""


class OpenAIBatchApi(BatchApi):
    """A file of requests, then a batch over it with the ticket as metadata."""

    async def submit(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Upload the file and create the batch."""
        lines = (
            f'{{"custom_id":{json.dumps(request.custom_id)},"method":"POST","url":"{_ENDPOINT}","body":{request.body}}}'
            for request in requests
        )
        file = (_file_name(ticket), "\n".join(lines).encode())
        uploaded = await client.client.files.create(file=file, purpose="batch")
        created = await client.client.batches.create(
            input_file_id=uploaded.id, endpoint=_ENDPOINT, completion_window="24h", metadata={"stillme": ticket}
        )
        return created.id

    async def look_up(self, client: Any, lost: LostBatch) -> BatchLookup:
        """Newest first, back to when the ticket was written."""
        async for batch in client.client.batches.list(limit=100):
            metadata: dict[str, str] = batch.metadata or {}
            if metadata.get("stillme") == lost.ticket:
                return Located(batch=batch.id)
            if batch.created_at < (lost.since - _CLOCK_SKEW).timestamp():
                break
        return NotSubmitted()

    async def clean_up(self, client: Any, batch: str) -> None:
        """Delete the uploaded file and the files of answers."""
        from openai import NotFoundError

        job = await client.client.batches.retrieve(batch)
        for file in filter(None, (job.input_file_id, job.output_file_id, job.error_file_id)):
            with suppress(NotFoundError):
                await client.client.files.delete(file)

    async def clean_up_ticket(self, client: Any, ticket: str) -> None:
        """Delete the uploaded file, which has the ticket's name."""
        async for file in client.client.files.list(purpose="batch"):
            if file.filename == _file_name(ticket):
                await client.client.files.delete(file.id)


class GeminiBatchApi(BatchApi):
    """A file of requests, then a job over it with the ticket as display name."""

    async def submit(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Upload the file and create the job."""
        lines = (f'{{"key":{json.dumps(request.custom_id)},"request":{request.body}}}' for request in requests)
        upload = io.BytesIO("\n".join(lines).encode())
        sdk = client.client.aio
        file = await sdk.files.upload(
            file=upload, config={"mime_type": "application/jsonl", "display_name": _display_name(ticket)}
        )
        once = {"retry_options": {"attempts": 1}}
        job = await sdk.batches.create(
            model=client.model_name, src=file.name, config={"display_name": _display_name(ticket), "http_options": once}
        )
        return job.name

    async def look_up(self, client: Any, lost: LostBatch) -> BatchLookup:
        """The list is in no documented order, so all of it is read; Google keeps few."""
        async for job in await client.client.aio.batches.list(config={"page_size": 100}):
            if job.display_name == _display_name(lost.ticket):
                return Located(batch=job.name)
        return NotSubmitted()

    async def clean_up(self, client: Any, batch: str) -> None:
        """Delete the uploaded file, which has the job's display name."""
        sdk = client.client.aio
        if name := (await sdk.batches.get(name=batch)).display_name:
            await self._delete(sdk, name)

    async def clean_up_ticket(self, client: Any, ticket: str) -> None:
        """Delete the uploaded file, which has the ticket's display name."""
        await self._delete(client.client.aio, _display_name(ticket))

    async def _delete(self, sdk: Any, name: str) -> None:
        async for file in await sdk.files.list(config={"page_size": 100}):
            if file.display_name == name:
                await sdk.files.delete(name=file.name)


class AnthropicBatchApi(BatchApi):
    """One call that contains all requests; no file is uploaded."""

    async def submit(self, client: Any, ticket: str, requests: Sequence[EncodedBatchRequest]) -> str:
        """Create the batch. The ticket is part of every request's ID."""
        bodies = [{"custom_id": request.custom_id, "params": json.loads(request.body)} for request in requests]
        betas = json.loads(requests[0].group).get("betas")
        options: dict[str, Any] = {"betas": betas} if betas else {}
        created = await client.client.beta.messages.batches.create(requests=bodies, **options)
        return created.id

    async def look_up(self, client: Any, lost: LostBatch) -> BatchLookup:
        """Among the batches of that time and size, the one whose results carry the ticket."""
        batches = client.client.beta.messages.batches
        candidate = False
        async for batch in batches.list(limit=100):
            if batch.created_at < lost.since - _CLOCK_SKEW:
                break
            counts = batch.request_counts
            size = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            if size != lost.requests:
                continue
            if batch.processing_status != "ended":
                candidate = True
            elif await self._has_ticket(batches, batch.id, lost.ticket):
                return Located(batch=batch.id)
        return MaybeSubmitted() if candidate else NotSubmitted()

    async def clean_up(self, client: Any, batch: str) -> None:
        """Delete the batch with its requests."""
        await client.client.beta.messages.batches.delete(batch)

    async def clean_up_ticket(self, client: Any, ticket: str) -> None:
        """Nothing: without a batch, nothing was uploaded."""

    async def _has_ticket(self, batches: Any, batch: str, ticket: str) -> bool:
        async for result in await batches.results(batch):
            return str(result.custom_id).startswith(ticket)
        return False


BATCH_APIS: Mapping[Provider, BatchApi] = {
    "openai": OpenAIBatchApi(),
    "google": GeminiBatchApi(),
    "anthropic": AnthropicBatchApi(),
}


def _file_name(ticket: str) -> str:
    return f"{_display_name(ticket)}.jsonl"


def _display_name(ticket: str) -> str:
    return f"stillme-{ticket}"
