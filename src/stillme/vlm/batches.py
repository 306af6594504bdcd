"""Many questions handed over at once, and their answers collected later, perhaps by another process.

Encoding requests and reading results is pydantic-ai's; handing over and finding again is ours, as a batch whose number
was lost in a crash must be found, not paid for twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stillme.errors import StillmeError
from stillme.types import Failed
from stillme.vlm import loop, prices, wire
from stillme.vlm.couriers import COURIERS, Courier, Sought, Whereabouts
from stillme.vlm.model import Model, Prepared
from stillme.vlm.pictures import Picture
from stillme.vlm.reading import fault_of
from stillme.vlm.replies import Declined, Question, Reply

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client
    from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest

_BYTES = 100_000_000
"""Of one batch. OpenAI takes 200 MB, the others more; this is what we are ready to hold in memory."""
_UNSENT = frozenset({400, 401, 402, 403, 404, 413, 422, 429})
"""Statuses that say for certain that no batch was made."""


class Rejected(StillmeError):
    """The provider did not take the batch."""


class Unanswered(StillmeError):
    """The provider did not answer: whether it took a batch, or how one is doing, is not known."""


class Gone(StillmeError):
    """The provider no longer has the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A question in the provider's own words, ready to be handed over."""

    id: str
    request: EncodedBatchRequest
    bytes: int
    sizes: list[list[int]]
    """Width and height of its pictures."""

    def named(self, id_: str) -> Packed:
        """The same question under the name that comes back with its answer."""
        return replace(self, id=id_, request=replace(self.request, custom_id=id_))


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A question whose answer is in a batch."""

    question: Question
    sizes: Sequence[Sequence[int]]


class Batches:
    """The batch service of a model's provider."""

    def __init__(self, model: Model) -> None:
        self._model = model
        provider = model.settings.provider
        if provider not in COURIERS:
            raise StillmeError(f'{model.settings.model!r} has no batch service; write delivery = "now".')
        self._courier: Courier = COURIERS[provider]

    def pack(self, id_: str, question: Question) -> Packed:
        """Encode a question. The id comes back with its answer."""
        line = self._model.line()
        prepared = self._model.prepare(question)
        message = wire.message_of(question, prepared.parts, self._model.settings)
        encoded = loop.run(line.client.batch_encode(self._request(id_, question, [message])))
        size = line.client.batch_request_size(encoded)
        return Packed(id=id_, request=encoded, bytes=size, sizes=prepared.sizes)

    def has_room(self, packed: Sequence[Packed], more: Packed, requests: int) -> bool:
        """Whether one more question fits into a batch."""
        return len(packed) < requests and sum(each.bytes for each in packed) + more.bytes <= _BYTES

    def expected(self, questions: int) -> float | None:
        """What that many answers will cost, roughly; None where nobody can say."""
        return prices.expected(self._model.settings, questions, batch=True)

    def hand_over(self, ticket: str, packed: Sequence[Packed]) -> str:
        """Submit under a ticket. Raises `Rejected` if surely nothing was made, `Unanswered` if that is not known."""
        client = self._model.line().client
        try:
            return loop.run(self._courier.hand_over(client, ticket, [each.request for each in packed]))
        except Exception as error:
            raise _explained(error) from error

    def find(self, sought: Sought) -> Whereabouts:
        """Look for a batch whose number was lost."""
        try:
            return loop.run(self._courier.find(self._model.line().client, sought))
        except Exception as error:
            raise _explained(error, looking=True) from error

    def has_ended(self, batch: str) -> bool:
        """Whether the answers can be collected."""
        try:
            return loop.run(self._status(self._model.line().client, batch)).status == "ended"
        except Exception as error:
            raise _explained(error, looking=True) from error

    def collect(self, batch: str, awaited: Mapping[str, Awaited]) -> dict[str, Reply]:
        """The reply to every awaited question, by id. What the batch left out has failed and may be asked again."""
        try:
            results = loop.run(self._results(self._model.line().client, batch))
        except Exception as error:
            raise _explained(error, looking=True) from error
        if isinstance(results, Failed):
            return dict.fromkeys(awaited, results)
        found = {each.custom_id: each for each in results}
        return {id_: self._reply(found.get(id_), id_, each) for id_, each in awaited.items()}

    def tidy(self, batch: str) -> None:
        """Delete what was uploaded, once the answers are kept."""
        loop.run(self._courier.tidy(self._model.line().client, batch))

    async def _status(self, client: Client, batch: str) -> Batch:
        from pydantic_ai.models.batch import Batch

        # The group names endpoint and credentials, by hash; any request of ours bears it.
        probe = await client.batch_encode(self._request("probe", wire.PROBE, [_probe(self._model)]))
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
            # The job as a whole ended without a single answer: an expired or failed one.
            return Failed(error=f"the batch gave no answers ({error})", retryable=True)

    def _reply(self, result: BatchResult | None, id_: str, awaited: Awaited) -> Reply:
        if result is None:
            return Failed(error="the batch ended without this answer", retryable=True)
        line = self._model.line()
        try:
            response = line.client.batch_decode(result, self._request(id_, awaited.question, []))
        except Exception as error:
            fault = fault_of(error, self._model.settings.timeout)
            return fault if isinstance(fault, Declined) else fault.failed
        shown = tuple(Picture(data=b"", size=(width, height)) for width, height in awaited.sizes)
        return self._model.understood(response, Prepared(awaited.question, shown), line, batch=True)

    def _request(self, id_: str, question: Question, messages: list[Any]) -> BatchRequest:
        from pydantic_ai.models.batch import BatchRequest

        wishes: Any = wire.wishes_of(self._model.settings)
        return BatchRequest(
            custom_id=id_, messages=messages, model_settings=wishes, model_request_parameters=wire.schema_of(question)
        )


def _probe(model: Model) -> Any:
    return wire.message_of(wire.PROBE, ("-",), model.settings)


def _explained(error: Exception, *, looking: bool = False) -> StillmeError:
    if isinstance(error, StillmeError):
        return error
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    words = " ".join(str(error).split())[:400] or type(error).__name__
    if looking and status == 404:
        return Gone(words)
    if status in _UNSENT and not (looking and status == 429):
        return Rejected(words)
    return Unanswered(words)
