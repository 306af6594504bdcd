"""A web address as an editor: `use = "http"`, with a template of what is sent and the path of the picture."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from stillme import images
from stillme.editors.hosted.queued import JobsInMemory
from stillme.endpoints import Endpoint, EndpointParameters, Refusing, encoded
from stillme.errors import UnreadableImage
from stillme.http_calls.replies import Reply
from stillme.json_paths import follow
from stillme.protocols import Capabilities, Jobs, Needs, spec_of
from stillme.types import Edited, EditOutcome, Failed, Portrait, Prompt, Refused, Request

PLACEHOLDERS = ("source", "source_data_uri", "source2", "source2_data_uri", "instruction", "seed")


class HttpEditorParameters(EndpointParameters):
    """A server that edits, and where its answer holds the picture."""

    picture: str = ""
    """Path of the picture in the answer, such as `data.0.b64_json`: base64, a data URI or a link. Empty: the whole
    answer is the picture."""
    seed: Literal["exact", "best_effort", "none"] | None = Field(default=None, exclude=True)
    """What a seed is worth; by default `best_effort` with {seed} in `template`, else `none`."""


class HttpEditor:
    """Any server that takes JSON and returns a picture: by `url`, `template` and `picture`."""

    Parameters: ClassVar[type[BaseModel]] = HttpEditorParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted")

    def __init__(self, parameters: HttpEditorParameters) -> None:
        self._endpoint = Endpoint(parameters)
        self._picture = parameters.picture
        self._jobs: Jobs = JobsInMemory()
        self.spec = spec_of("http", "1", parameters)
        placeholders = self._endpoint.placeholders
        self.capabilities = Capabilities(
            inputs=2 if {"source2", "source2_data_uri"} & placeholders else 1,
            concurrency=parameters.concurrency,
            seed=parameters.seed or ("best_effort" if "seed" in placeholders else "none"),
            size="any",
            can_refuse=bool(parameters.refusal),
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Placeholders that are unknown or missing, and keys that are missing or would be sent in the open."""
        yield from self._endpoint.problems(PLACEHOLDERS, ("source", "instruction"))

    @property
    def provider(self) -> str:
        """The server's address."""
        return self._endpoint.server

    def expected_dollars(self) -> float | None:
        """The price that the audit gives; None if unknown."""
        return self._endpoint.price

    def remember_in(self, jobs: Jobs) -> None:
        """Keep links to pictures that are paid for where a crash does not lose them."""
        self._jobs = jobs

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One call per request."""
        for request in requests:
            yield self._outcome(request)

    def close(self) -> None:
        """Close the connections. The next edit opens them again."""
        self._endpoint.close()

    def _outcome(self, request: Request) -> EditOutcome:
        if link := self._jobs.open(request.key):
            return self._fetched(request, link)
        given, taken = len(request.portraits), self.capabilities.inputs
        if given > taken:
            return Failed(error=f"takes {taken} portraits, not {given}; add {{source2}} to `template`", retryable=False)
        # A request with one portrait leaves the second place empty.
        values: dict[str, object] = {"source2": None, "source2_data_uri": None}
        try:
            for place, portrait in zip(("source", "source2"), request.portraits, strict=False):
                values |= encoded(place, portrait.image.path)
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=False)
        answer = self._endpoint.ask(values | {"instruction": request.instruction, "seed": request.seed})
        match answer:
            case Reply():
                return self._answered(request, answer)
            case Refusing():
                cost = (self._endpoint.price or 0.0) * answer.charged
                effective = {"signal": answer.signal, **(self._endpoint.unknown_cost if answer.charged else {})}
                return Refused(message=answer.message, effective=effective, cost=cost)
            case Failed():
                return answer

    def _answered(self, request: Request, reply: Reply) -> EditOutcome:
        """The picture is the answer itself, or stands at `picture`, or is linked there."""
        if not self._picture:
            return self._edited(reply.content)
        text = follow(reply.body, self._picture)
        if not isinstance(text, str) or not text:
            shown = self._endpoint.shown(reply.text) or "empty"
            return self._endpoint.failed(f"no picture at {self._picture!r}; the answer: {shown}")
        if text.startswith(("http://", "https://")):
            # Before it is fetched: the picture is paid for, and the next try fetches this one.
            self._jobs.add(request.key, text)
            return self._fetched(request, text)
        try:
            written = text.partition(";base64,")[2] if text.startswith("data:") else text
            return self._edited(base64.b64decode("".join(written.split()), validate=True))
        except (binascii.Error, ValueError) as error:
            return self._endpoint.failed(f"{self._picture!r} is neither base64 nor a link ({error})")

    def _fetched(self, request: Request, link: str) -> EditOutcome:
        reply = self._endpoint.fetch(link)
        if isinstance(reply, Failed):
            return reply
        outcome = (
            self._edited(reply.content)
            if reply.status < 300
            else self._endpoint.failed(f"the picture is not there ({reply.status}: {self._endpoint.shown(reply.text)})")
        )
        if isinstance(outcome, Failed):
            self._jobs.end(request.key)
        else:
            self._jobs.answered(request.key)
        return outcome

    def _edited(self, data: bytes) -> EditOutcome:
        try:
            size = images.read_picture(data, name="the picture in the answer").size
        except UnreadableImage as error:
            return self._endpoint.failed(str(error))
        effective = {"size": list(size), **self._endpoint.unknown_cost}
        return Edited(image=data, effective=effective, cost=self._endpoint.price or 0.0)
