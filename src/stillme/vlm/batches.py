"""Submit many questions at once and collect their answers later, perhaps in another process.

pydantic-ai encodes requests and decodes results. Submitting and looking up is done here: a batch whose ID was lost in a
crash must be found again, not paid for twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stillme.errors import StillmeError
from stillme.types import Failed
from stillme.vlm import event_loop, prices
from stillme.vlm.batch_apis import BATCH_APIS, BatchLookup, LostBatch
from stillme.vlm.connection import DRY_RUN_QUESTION, message_of, request_settings, schema_of
from stillme.vlm.image_encoding import EncodedImage
from stillme.vlm.model import Model, PreparedQuestion
from stillme.vlm.reading import error_text, fault_of
from stillme.vlm.replies import Question, Reply

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client
    from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest

log = logging.getLogger(__name__)

_MAX_BYTES = 100_000_000
"""Of one batch, as it is held in memory. OpenAI accepts 200 MB, the others more."""
_REJECTED = frozenset({400, 401, 402, 403, 404, 413, 422, 429})
"""Statuses that mean for certain that no batch was created."""


class BatchRejected(StillmeError):
    """The provider did not accept the batch."""


class BatchStateUnknown(StillmeError):
    """The provider did not answer, so it is unknown whether a batch was created or has ended."""


class BatchGone(StillmeError):
    """The provider no longer has the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedQuestion:
    """A question in the provider's format, ready to submit."""

    request: EncodedBatchRequest
    bytes: int
    sizes: list[list[int]]
    """Width and height of its images."""

    def with_id(self, id_: str) -> EncodedQuestion:
        """The same question under the ID that comes back with its answer."""
        return replace(self, request=replace(self.request, custom_id=id_))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingQuestion:
    """A question whose answer is in a batch."""

    question: Question
    sizes: Sequence[Sequence[int]]


class BatchClient:
    """A model, asked through its provider's batch API."""

    def __init__(self, model: Model) -> None:
        self._model = model
        provider = model.settings.provider
        if provider not in BATCH_APIS:
            raise StillmeError(f'{model.settings.model!r} has no batch API; write delivery = "now".')
        self._api = BATCH_APIS[provider]

    def encode(self, question: Question) -> EncodedQuestion:
        """Encode a question in the provider's format."""
        client = self._model.connection().client
        prepared = self._model.prepare(question)
        message = message_of(question, prepared.parts, self._model.settings)
        request = event_loop.run(client.batch_encode(self._request("unsent", question, [message])))
        return EncodedQuestion(request=request, bytes=client.batch_request_size(request), sizes=prepared.sizes)

    def fits(self, question: EncodedQuestion, size: int) -> bool:
        """Whether one more question fits into a batch that already has `size` bytes."""
        return size + question.bytes <= _MAX_BYTES

    def expected_dollars(self, questions: int) -> float | None:
        """The approximate cost of that many answers; None if unknown."""
        return prices.expected(self._model.settings, questions, batch=True)

    def submit(self, ticket: str, questions: Sequence[EncodedQuestion]) -> str:
        """Submit under a ticket and return the batch's ID.

        Raises `BatchRejected` if no batch was created, `BatchStateUnknown` if one may have been.
        """
        client = self._model.connection().client
        try:
            return event_loop.run(self._api.submit(client, ticket, [question.request for question in questions]))
        except Exception as error:
            raise self._error(error) from error

    def look_up(self, lost: LostBatch) -> BatchLookup:
        """Look for a batch whose ID was lost."""
        try:
            return event_loop.run(self._api.look_up(self._model.connection().client, lost))
        except Exception as error:
            raise self._error(error, reading=True) from error

    def has_ended(self, batch: str) -> bool:
        """Whether the answers can be collected."""
        try:
            return event_loop.run(self._status(self._model.connection().client, batch)).status == "ended"
        except Exception as error:
            raise self._error(error, reading=True) from error

    def collect(self, batch: str, pending: Mapping[str, PendingQuestion]) -> dict[str, Reply]:
        """The reply to every pending question, by ID. Questions missing from the results have failed, retryably."""
        try:
            results = event_loop.run(self._results(self._model.connection().client, batch))
        except Exception as error:
            raise self._error(error, reading=True) from error
        if isinstance(results, Failed):
            return dict.fromkeys(pending, results)
        by_id = {result.custom_id: result for result in results}
        return {id_: self._reply(by_id.get(id_), id_, question) for id_, question in pending.items()}

    def clean_up(self, batch: str) -> None:
        """Delete what was uploaded, once the answers are saved."""
        self._delete(batch, self._api.clean_up)

    def clean_up_ticket(self, ticket: str) -> None:
        """Delete what was uploaded under a ticket that was abandoned: rejected, never submitted, or gone."""
        self._delete(ticket, self._api.clean_up_ticket)

    def _delete(self, name: str, clean_up: Callable[[Any, str], Coroutine[Any, Any, None]]) -> None:
        """The answers matter more: uploads that cannot be deleted do not end the run, but the user must know."""
        try:
            event_loop.run(clean_up(self._model.connection().client, name))
        except Exception as error:
            if _status(error) != 404:
                reason = error_text(error, self._model.settings)
                log.warning(
                    "%s: the uploads of %s were not deleted (%s); delete them in the provider's console",
                    self._model.settings.model,
                    name,
                    reason,
                )

    async def _status(self, client: Client, batch: str) -> Batch:
        from pydantic_ai.models.batch import Batch

        # The handle needs the group, a hash of endpoint and credentials, which is the same in all our requests.
        message = message_of(DRY_RUN_QUESTION, ("-",), self._model.settings)
        probe = await client.batch_encode(self._request("probe", DRY_RUN_QUESTION, [message]))
        handle = Batch(
            id=batch,
            model_name=client.model_name,
            provider_name=client.system,
            group=probe.group,
            status="in_progress",
            created_at=datetime.now(UTC),
            request_count=0,
        )
        return await client.batch_status(handle)

    async def _results(self, client: Client, batch: str) -> list[BatchResult] | Failed:
        from pydantic_ai.exceptions import ModelHTTPError

        try:
            return await client.batch_results(await self._status(client, batch))
        except ModelHTTPError as error:
            # The job as a whole ended without a single answer: it expired or failed.
            reason = error_text(error, self._model.settings)
            return Failed(error=f"the batch gave no answers ({reason})", retryable=True)

    def _reply(self, result: BatchResult | None, id_: str, pending: PendingQuestion) -> Reply:
        if result is None:
            return Failed(error="the batch ended without this answer", retryable=True)
        connection = self._model.connection()
        try:
            response = connection.client.batch_decode(result, self._request(id_, pending.question, []))
        except Exception as error:
            return fault_of(error, self._model.settings)
        images = tuple(EncodedImage(base64=b"", size=(width, height)) for width, height in pending.sizes)
        return self._model.reply_of(response, PreparedQuestion(pending.question, images), connection, batch=True)

    def _request(self, id_: str, question: Question, messages: list[Any]) -> BatchRequest:
        from pydantic_ai.models.batch import BatchRequest

        settings: Any = request_settings(self._model.settings)
        return BatchRequest(
            custom_id=id_, messages=messages, model_settings=settings, model_request_parameters=schema_of(question)
        )

    def _error(self, error: Exception, *, reading: bool = False) -> StillmeError:
        """Classify an exception; `reading` means that nothing was being submitted."""
        if isinstance(error, StillmeError):
            return error
        status = _status(error)
        text = error_text(error, self._model.settings)
        if reading and status == 404:
            return BatchGone(text)
        if status in _REJECTED and not (reading and status == 429):
            return BatchRejected(text)
        return BatchStateUnknown(text)


def _status(error: Exception) -> int | None:
    """The HTTP status, which Google's client calls a code."""
    return getattr(error, "status_code", None) or getattr(error, "code", None)
