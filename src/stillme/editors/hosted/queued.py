"""What the providers with a queue share: request fields that differ by model, and jobs that are paid for once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.faults import Declined
from stillme.editors.hosted.json_client import JsonClient, Polling
from stillme.protocols import Jobs


class ResumingParameters(HostedParameters):
    """Settings of providers with a queue."""

    poll_seconds: float = Field(default=0.5, gt=0, exclude=True)
    """Seconds between the first looks at the queue; later ones are further apart."""


class QueuedParameters(ResumingParameters):
    """Settings of models behind a queue."""

    images: str | None = Field(default=None, pattern=r"^\w+(\[\])?(,\w+(\[\])?)*$")
    """The request field that takes the portraits, with a trailing `[]` if it is a list; by default the catalogue's.
    Several, separated by commas, if it is not known which one a model reads."""
    seed_field: str = "seed"
    """Empty for a model that takes no seed."""


class JobsInMemory:
    """The jobs of one process, for editors that are used without a run."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}

    def open(self, key: str) -> str | None:
        """The job of a request."""
        return self._jobs.get(key)

    def add(self, key: str, job: str) -> None:
        """Remember it."""
        self._jobs[key] = job

    def answered(self, key: str) -> None:
        """Forget it: who has the answer does not ask again."""
        self.end(key)

    def end(self, key: str) -> None:
        """Forget it."""
        self._jobs.pop(key, None)


class Resuming(Hosted[JsonClient]):
    """An editor whose provider accepts work now and gives the picture later.

    A subclass implements `_submit`, which hands the work in and returns the job's address, and `_collect`, which waits
    for the job. The address is remembered before anybody waits, and asked for again until it gives a picture, a refusal
    or `JobGone`: neither a failed look nor a crash pays twice. (docs/decisions/004-paid-jobs-survive-crashes.md)
    """

    def __init__(self, parameters: ResumingParameters) -> None:
        super().__init__(parameters)
        self._poll_seconds = parameters.poll_seconds
        self._jobs: Jobs = JobsInMemory()

    @abstractmethod
    def _headers(self, key: str) -> Mapping[str, str]:
        """The headers that carry the key."""

    @abstractmethod
    def _submit(self, client: JsonClient, call: Call) -> str:
        """Hand the work in, once; returns where its result is asked for."""

    @abstractmethod
    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        """Wait for a job and fetch its picture. Raises `JobGone` if there will never be one."""

    @property
    def polling(self) -> Polling:
        """The audit's timeout and interval."""
        return Polling(timeout=self._settings.timeout, interval=self._poll_seconds)

    def _connect(self, key: str) -> JsonClient:
        return JsonClient(self._settings.base_url, self._headers(key), timeout=self._settings.timeout)

    def remember_in(self, jobs: Jobs) -> None:
        """Keep jobs where a crash does not lose them."""
        self._jobs = jobs

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        job = self._jobs.open(call.key)
        if job is None:
            job = self._submit(connection, call)
            self._jobs.add(call.key, job)
        try:
            answer = self._collect(connection, job, call)
        except Declined:
            self._jobs.answered(call.key)
            raise
        self._jobs.answered(call.key)
        return answer

    def _give_up(self, call: Call) -> None:
        self._jobs.end(call.key)


class Queued(Resuming):
    """A `Resuming` editor whose models differ in the names of their request fields."""

    def __init__(self, parameters: QueuedParameters) -> None:
        self._queue = parameters
        super().__init__(parameters)
        self._images = (parameters.images or self._default_images()).split(",")
        if not parameters.seed_field:
            self.capabilities = replace(self.capabilities, seed="none")

    def _default_images(self) -> str:
        return self.facts.images

    def _reserved(self) -> frozenset[str]:
        return self.reserved | {*(name.removesuffix("[]") for name in self._images), self._queue.seed_field}

    def _fields(self, call: Call) -> dict[str, Any]:
        """Prompt, images and seed under the model's field names."""
        links = [picture.data_uri for picture in call.pictures]
        pictures = {name.removesuffix("[]"): links if name.endswith("[]") else links[0] for name in self._images}
        seed = {self._queue.seed_field: call.seed} if self._queue.seed_field else {}
        return {"prompt": call.instruction, **pictures, **seed, **self._queue.extra}
