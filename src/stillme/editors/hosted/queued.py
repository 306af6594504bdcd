"""Providers with a queue: one adapter, driven by data, and jobs that are paid for once."""

from __future__ import annotations

import json
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast
from urllib.parse import urlsplit

from pydantic import Field

from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import LONGEST_PAUSE, MAX_FAILURES, Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.faults import UNKNOWN, CallFailed, Declined, JobGone, unexpected_answer
from stillme.editors.hosted.json_client import Content, JsonClient, Reply
from stillme.http_calls.replies import origin_of
from stillme.json_paths import find, follow
from stillme.protocols import Jobs
from stillme.types import Json

T = TypeVar("T")

_GONE = frozenset({"404", "410"})
_IN_FRONT = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of the server in front of a job; with any other, the job itself has failed."""
_PICTURE = "picture "
"""What a job begins with that is nothing but the link to a finished picture."""
_FIELD = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A field of an answer whose value means something."""

    path: str
    values: tuple[Json, ...] = ()
    """Without any, every value but null, false, zero and an empty one."""
    pattern: str = ""
    """Instead of `values`: what its text contains."""
    words: str = ""
    """Path of the words to keep; by default the field itself."""
    pictures: int = 0
    """That are charged nevertheless."""

    def found(self, body: Json) -> Json:
        """The value that marks it; None where nothing does."""
        for value in find(body, self.path):
            if self.pattern:
                matched = re.search(self.pattern, str(value)) is not None
            else:
                matched = (value in self.values or str(value) in self.values) if self.values else bool(value)
            if matched:
                return value
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How a provider's queue is asked, and what its answers mean."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """`{key}` is the key."""
    link: str = ""
    """Path of the link to the queued work. The key is sent to the provider's own host, and to `hosts`, only."""
    job: str = ""
    """Its address where there is no such link, with fields of the answer: `/tasks/{output.task_id}`."""
    hosts: str = ""
    """The end of other host names that are the provider's own."""
    look: str = "{job}"
    result: str = ""
    """Address of the result, if the look does not have it."""
    state: str = "status"
    done: tuple[Json, ...] = ()
    waiting: tuple[Json, ...] = ()
    failed: tuple[Json, ...] = ()
    """Instead of `waiting`: the states of a job without a picture; every other is waited for."""
    reason: str = "error"
    """Path of the words of a job that failed."""
    pictures: tuple[str, ...] = ()
    refusals: tuple[Mark, ...] = ()
    hopeless: tuple[Mark, ...] = ()
    """Errors that concern every request until the user acts, though their status does not say so."""
    seconds: str = ""
    """Path of the computing time."""
    effective: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is recorded, by the path in the answer."""

    def ended(self, body: Json) -> bool:
        """Whether the job has an end, good or bad."""
        state = follow(body, self.state)
        return state in self.done or (state in self.failed if self.failed else state not in self.waiting)


class ResumingParameters(HostedParameters):
    """Settings of providers with a queue."""

    poll_seconds: float = Field(default=0.5, gt=0, exclude=True)
    """Seconds between the first looks at the queue; later ones are further apart."""


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
    for the job. The address is remembered before the wait, and asked for again until it gives a picture, a refusal or
    `JobGone`: neither a failed look nor a crash pays twice. (docs/decisions/004-paid-jobs-survive-crashes.md)
    """

    def __init__(self, parameters: ResumingParameters) -> None:
        super().__init__(parameters)
        self._poll_seconds = parameters.poll_seconds
        self._jobs: Jobs = JobsInMemory()

    @abstractmethod
    def _headers(self, key: str) -> Mapping[str, str]:
        """The headers that carry the key."""

    @abstractmethod
    def _submit(self, client: JsonClient, call: Call) -> str | Answer:
        """Hand the work in, once; returns where its result is asked for, or the result itself."""

    @abstractmethod
    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        """Wait for a job and fetch its picture. Raises `JobGone` if there will never be one."""

    def _connect(self, key: str) -> JsonClient:
        return JsonClient(self._settings.base_url, self._headers(key), timeout=self._settings.timeout)

    def remember_in(self, jobs: Jobs) -> None:
        """Keep jobs where a crash does not lose them."""
        self._jobs = jobs

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        job = self._jobs.open(call.key)
        if job is None:
            submitted = self._submit(connection, call)
            if isinstance(submitted, Answer):
                return submitted
            job = submitted
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

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _poll(self, look: Callable[[], Reply], done: Callable[[Json], bool]) -> Reply:
        """Look until the job is done. Raises `JobGone` if the provider no longer has it."""
        end = time.monotonic() + self._settings.timeout
        pause = self._poll_seconds
        while True:
            reply = self._fetch(look, end)
            if done(reply.require_json()):
                return reply
            if time.monotonic() + pause > end:
                waited = f"not done after {self._settings.timeout:g} s; the same job is asked for again"
                raise CallFailed(waited, retryable=True)
            time.sleep(pause)
            pause = min(pause * 1.5, max(5.0, self._poll_seconds))

    def _fetch(self, look: Callable[[], T], end: float | None = None) -> T:
        """Read something that is paid for: a failed look is repeated, further and further apart.

        Raises `JobGone` if it is not there, also when looked for again; the last failure if it cannot be read for now.
        """
        end = time.monotonic() + self._settings.timeout if end is None else end
        for failures in range(MAX_FAILURES + 1):
            try:
                return look()
            except JobGone:
                raise
            except CallFailed as failure:
                failed = failure.failed
                gone = failed.status in _GONE
                if not gone and not failed.retryable:
                    raise JobGone(failed.error, retryable=False, usage=UNKNOWN) from None
                if not gone and failed.fatal:
                    raise
                wait = self._pause(failures) if failed.retry_after is None else failed.retry_after
                if failures == MAX_FAILURES or wait > LONGEST_PAUSE or time.monotonic() + wait > end:
                    if gone:
                        raise JobGone(f"the provider no longer has the job ({failed.error})") from None
                    # A look that fails is free, and the job is asked for again.
                    raise CallFailed.of(failed) from None
            time.sleep(wait)
        raise AssertionError("the last failure is raised")


class Queued(Resuming):
    """A `Resuming` editor whose queue is described by data. A subclass says what to submit."""

    queue: Queue

    @abstractmethod
    def _submission(self, call: Call) -> Content:
        """What is sent to hand the work in."""

    def _headers(self, key: str) -> Mapping[str, str]:
        return {name: text.replace("{key}", key) for name, text in self.queue.headers.items()}

    def _submit(self, client: JsonClient, call: Call) -> str | Answer:
        reply = self._checked(client.post(self._submission(call)))
        link = self._link(reply)
        if link is None:
            return self._address(reply.body)
        effective = dict(self._effective(reply.body, call))
        if str(link).startswith("data:"):
            return Answer(image=self._picture(link), effective=effective)
        return _PICTURE + json.dumps([link, effective])

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        if job.startswith(_PICTURE):
            link, effective = json.loads(job.removeprefix(_PICTURE))
            return Answer(image=self._picture(link), effective=effective)
        result = self._result(client, job)

        def renewed() -> Json:
            nonlocal result
            result = self._result(client, job)
            return self._link(result)

        link, usage = self._link(result), self._usage(result.body)
        if link is None:
            raise JobGone(f"no picture in the answer; the answer: {result.text}", usage=replace(usage, images=1))
        image = self._picture(link, renewed)
        return Answer(image=image, usage=usage, effective=dict(self._effective(result.body, call)))

    def _result(self, client: JsonClient, job: str) -> Reply:
        """What a job that has ended well says."""
        queue = self.queue
        look = queue.look.replace("{job}", job)
        reply = self._poll(lambda: self._checked(client.send("GET", look)), queue.ended)
        if (state := follow(reply.body, queue.state)) not in queue.done:
            words = follow(reply.body, queue.reason) or "no explanation"
            usage = self._usage(reply.body) if queue.seconds else None
            raise JobGone(f"the job ended with {state!r}: {words}", usage=usage)
        if not queue.result:
            return reply
        address = queue.result.replace("{job}", job)
        return self._fetch(lambda: self._checked(_of_the_job(client.send("GET", address))))

    def _checked(self, reply: Reply) -> Reply:
        """Raise an error reply, and whatever its status what is marked as a refusal."""
        for mark in self.queue.refusals:
            if (value := mark.found(reply.body)) is not None:
                words = "; ".join(_sentence(found) for found in find(reply.body, mark.words or mark.path))
                signal = f"{mark.path.replace('.*', '')} = {value}"
                usage = replace(self._usage(reply.body), images=mark.pictures if reply.status < 400 else 0)
                raise Declined(words or str(value), signal=signal, usage=usage)
        try:
            return reply.require_success()
        except CallFailed as failure:
            hopeless = any(mark.found(reply.body) is not None for mark in self.queue.hopeless)
            raise (failure.as_fatal() if hopeless else failure) from None

    def _address(self, body: Json) -> str:
        """Where the queued work is looked for."""
        queue, base = self.queue, self._settings.base_url
        link = follow(body, queue.link) if queue.link else None
        asked = urlsplit(link) if isinstance(link, str) else urlsplit("")
        own = bool(queue.hosts) and asked.scheme == "https" and (asked.hostname or "").endswith(queue.hosts)
        if isinstance(link, str) and asked.netloc and (own or origin_of(link) == origin_of(base)):
            return link
        values = {name: follow(body, name) for name in _FIELD.findall(queue.job)}
        if queue.job and all(isinstance(value, str | int) for value in values.values()):
            return _FIELD.sub(lambda match: str(values[match[1]]), queue.job)
        if asked.path and not queue.job:
            return asked.path
        raise unexpected_answer("no link to the queued work", body)

    def _link(self, reply: Reply) -> Json:
        body = reply.require_json()
        return next((found for path in self.queue.pictures if (found := follow(body, path)) is not None), None)

    def _usage(self, body: Json) -> Usage:
        seconds = follow(body, self.queue.seconds) if self.queue.seconds else None
        return Usage(seconds=float(seconds) if isinstance(seconds, int | float) else 0.0)

    def _effective(self, body: Json, call: Call) -> Iterator[tuple[str, Json]]:
        for name, path in self.queue.effective.items():
            value = follow(body, path)
            if value not in (None, "") and not (name == "revised_prompt" and value == call.instruction):
                yield name, value


def _of_the_job(reply: Reply) -> Reply:
    """Raise what a job that failed says where its result is asked for."""
    if reply.status >= 500 and reply.status not in _IN_FRONT and isinstance(reply.body, dict):
        raise JobGone(f"the job failed ({reply.status}: {reply.explanation})", usage=Usage())
    return reply


def _sentence(words: Json) -> str:
    return ", ".join(map(str, cast("list[Json]", words))) if isinstance(words, list) else str(words)
