"""Queues described by data, over plain HTTP: fal, Replicate, Black Forest Labs, DashScope. A job is paid for once.

- fal: https://docs.fal.ai/model-apis/model-endpoints/queue
- Replicate: https://replicate.com/docs/reference/http
- Black Forest Labs: https://docs.bfl.ai/api_integration/integration_guidelines and …/api_integration/errors. The answer
  to a request names the address to look at, which may be another host of theirs.
- DashScope: https://www.alibabacloud.com/help/en/model-studio/qwen-image-edit-api (one call),
  …/qwen-image-generation-and-editing-api-reference (as a task) and …/error-code.
"""

from __future__ import annotations

import json
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import Field

from stillme.core.capabilities import AcceptedJobs
from stillme.core.http.replies import UNKNOWN, CallDeclined, CallFailed, Reply, Usage, origin_of, unexpected_answer
from stillme.core.json_paths import Mark, follow
from stillme.core.types import Json
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Call, Hosted, HostedAnswer, HostedParameters, JobGone

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_IN_FRONT = frozenset({401, 402, 403, 404, 405, 408, 409, 410, 425, 429, 502, 503, 504})
"""Statuses that say nothing about a job where its result is asked for; with any other, the job itself has failed."""
_PICTURE = "picture "
"""What a job begins with that is nothing but the link to a finished picture."""
_FIELD = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How a provider's queue is asked, and what its answers mean."""

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

    def ended(self, state: Json) -> bool:
        """Whether the job has an end, good or bad."""
        return state in self.done or (state in self.failed if self.failed else state not in self.waiting)


class ResumingParameters(HostedParameters):
    """Settings of providers with a queue."""

    poll_seconds: float = Field(default=0.5, gt=0, exclude=True)
    """Seconds between the first looks at the queue; later ones are further apart."""


P = TypeVar("P", bound=ResumingParameters)


class Queued(Hosted[P]):
    """An editor whose provider accepts work now and gives the picture later, by a `Queue`.

    A subclass implements `_submit`, which sends the work. The job's address is remembered before the wait, and
    asked for again until it gives a picture, a refusal or `JobGone`: neither a failed look nor a crash pays twice.
    (docs/decisions/004-paid-jobs-survive-crashes.md)
    """

    queue: Queue

    def __init__(self, parameters: P) -> None:
        super().__init__(parameters)
        self._poll_seconds = parameters.poll_seconds
        self._jobs = AcceptedJobs()

    @abstractmethod
    def _submit(self, connection: Connection, call: Call) -> Reply:
        """Send the work, once."""

    def remember_in(self, jobs: AcceptedJobs) -> None:
        """Keep jobs where a crash does not lose them."""
        self._jobs = jobs

    def _ask(self, connection: Connection, call: Call) -> HostedAnswer:
        job = self._jobs.open(call.key)
        if job is None:
            accepted = self._accepted(self._checked(self._submit(connection, call)), call)
            if isinstance(accepted, HostedAnswer):
                return accepted
            job = accepted
            self._jobs.add(call.key, job)
        try:
            answer = self._collect(connection, job, call)
        except CallDeclined:
            self._jobs.answered(call.key)
            raise
        self._jobs.answered(call.key)
        return answer

    def _give_up(self, call: Call) -> None:
        self._jobs.end(call.key)

    def _accepted(self, reply: Reply, call: Call) -> str | HostedAnswer:
        """Where the result of accepted work is asked for, or the result itself."""
        link = self._link(reply)
        if link is None:
            return self._address(reply.body)
        effective = dict(self._effective(reply.body, call))
        if str(link).startswith("data:"):
            return HostedAnswer(image=self._picture(link), effective=effective)
        return _PICTURE + json.dumps([link, effective])

    def _collect(self, connection: Connection, job: str, call: Call) -> HostedAnswer:
        """Wait for a job and fetch its picture. Raises `JobGone` if there will never be one."""
        if job.startswith(_PICTURE):
            link, effective = json.loads(job.removeprefix(_PICTURE))
            return HostedAnswer(image=self._picture(link), effective=effective)
        result = self._result(connection, job)
        usage, link = self._usage(result.body), self._link(result)
        if link is None:
            raise JobGone(f"no picture in the answer; the answer: {result.text}", usage=replace(usage, images=1))
        image = self._image(connection, link, lambda: self._link(self._result(connection, job)))
        return HostedAnswer(image=image, usage=usage, effective=dict(self._effective(result.body, call)))

    def _image(self, connection: Connection, link: Json, renewed: Callable[[], Json]) -> bytes:
        return self._picture(link, renewed)

    def _result(self, connection: Connection, job: str) -> Reply:
        """What a job that has ended well says."""
        reply, queue = self._ended(connection, job), self.queue
        if (state := self._state(reply)) not in queue.done:
            usage = self._usage(reply.body) if queue.seconds else None
            raise JobGone(f"the job ended with {state!r}: {self._reason(reply.body)}", usage=usage)
        if not queue.result:
            return reply

        def asked() -> Reply:
            result = self._checked(connection.send("GET", queue.result.replace("{job}", job)), of_the_job=True)
            self._link(result)  # a page of words instead of an answer is asked for again
            return result

        return self._repeated(asked)

    def _ended(self, connection: Connection, job: str) -> Reply:
        """Look until the job has an end. Raises `JobGone` if the provider no longer has it."""

        def looked() -> Reply:
            reply = self._look(connection, job)
            reply.require_json()
            return reply

        end = time.monotonic() + self._settings.timeout
        pause = self._poll_seconds
        while not self.queue.ended(self._state(reply := self._repeated(looked, end=end))):
            if time.monotonic() + pause > end:
                raise CallFailed(f"not done after {self._settings.timeout:g} s; the same job is asked for again")
            time.sleep(pause)
            pause = min(pause * 1.5, max(5.0, self._poll_seconds))
        return reply

    def _look(self, connection: Connection, job: str) -> Reply:
        return self._checked(connection.send("GET", self.queue.look.replace("{job}", job)))

    def _reason(self, body: Json) -> str:
        return str(follow(body, self.queue.reason) or "no explanation")

    def _state(self, reply: Reply) -> Json:
        return follow(reply.body, self.queue.state)

    def _checked(self, reply: Reply, *, of_the_job: bool = False) -> Reply:
        """Raise an error reply, and whatever its status what is marked as a refusal.

        `of_the_job`: where its result is asked for, an error may be the job's own.
        """
        for mark in self.queue.refusals:
            if (value := mark.found(reply.body)) is not None:
                signal = f"{mark.path.replace('.*', '')} = {value}"
                usage = replace(self._usage(reply.body), images=mark.pictures if reply.status < 400 else 0)
                raise CallDeclined(mark.message(reply.body) or str(value), signal=signal, usage=usage)
        try:
            return reply.require_success()
        except CallFailed as failure:
            if of_the_job and reply.status not in _IN_FRONT and isinstance(reply.body, dict):
                usage = Usage() if reply.status >= 500 else UNKNOWN
                error, again = f"the job failed ({failure.failed.error})", failure.failed.retryable
                raise JobGone(error, retryable=again, usage=usage) from None
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


_FAL, _REPLICATE = catalogue.service("fal"), catalogue.service("replicate")
_BFL, _DASHSCOPE = catalogue.service("bfl"), catalogue.service("dashscope")
_INSPECTED = ("DataInspectionFailed", "data_inspection_failed")


class NamedFieldsParameters(ResumingParameters):
    """Settings of models that differ in the names of their request fields."""

    images: str | None = Field(default=None, pattern=r"^\w+(\[\])?(,\w+(\[\])?)*$")
    """The request field that takes the portraits, with a trailing `[]` if it is a list; by default the catalogue's.
    Several, separated by commas, if it is not known which one a model reads."""
    seed_field: str = "seed"
    """Empty for a model that takes no seed."""


N = TypeVar("N", bound=NamedFieldsParameters)


class NamedFields(Queued[N]):
    """A queue whose models differ in the names of their request fields."""

    def __init__(self, parameters: N) -> None:
        super().__init__(parameters)
        self._images = (parameters.images or self.facts.images).split(",")
        if not parameters.seed_field:
            self.capabilities = replace(self.capabilities, seed="none")

    def _reserved(self) -> frozenset[str]:
        return self.reserved | {*(name.removesuffix("[]") for name in self._images), self._settings.seed_field}

    def _fields(self, call: Call) -> dict[str, Any]:
        """Prompt, images and seed under the model's field names."""
        links = [picture.data_uri for picture in call.pictures]
        pictures = {name.removesuffix("[]"): links if name.endswith("[]") else links[0] for name in self._images}
        seed = {self._settings.seed_field: call.seed} if self._settings.seed_field else {}
        return {"prompt": call.instruction, **pictures, **seed, **self._settings.extra}


class FalParameters(NamedFieldsParameters):
    """A model on fal."""

    model: str = _FAL.default
    base_url: str = _FAL.base_url


class Fal(NamedFields[FalParameters]):
    """Image editing models hosted by fal."""

    Parameters = FalParameters
    name = "fal"
    key_variable = "FAL_KEY"
    headers = {"Authorization": "Key {key}"}
    queue = Queue(
        link="response_url",
        look="{job}/status",
        result="{job}",
        waiting=("IN_QUEUE", "IN_PROGRESS"),
        done=("COMPLETED",),
        pictures=("images.0.url", "image.url"),
        refusals=(
            Mark(path="detail.*.type", values=("content_policy_violation",), words="detail.*.msg"),
            # The picture was made before it was withheld.
            Mark(path="has_nsfw_concepts.*", values=(True,), pictures=1),
        ),
        effective={"seed": "seed", "revised_prompt": "prompt"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        return connection.send("POST", f"/{self._settings.model}", body=self._fields(call))


class ReplicateParameters(NamedFieldsParameters):
    """A model on Replicate: `owner/name`, or `owner/name:version` to pin a version."""

    model: str = _REPLICATE.default
    base_url: str = _REPLICATE.base_url


class Replicate(NamedFields[ReplicateParameters]):
    """Image editing models hosted by Replicate."""

    Parameters = ReplicateParameters
    name = "replicate"
    key_variable = "REPLICATE_API_TOKEN"
    queue = Queue(
        job="/v1/predictions/{id}",
        waiting=("starting", "processing", "queued"),
        done=("succeeded",),
        pictures=("output.0", "output"),
        # Replicate's own code, or what its models say. Other errors are faults of the model.
        refusals=(Mark(path="error", pattern=r"\(E005\)|(?i:NSFW content|flagged as sensitive)"),),
        hopeless=(Mark(path="detail", pattern=r"(?i)version does not exist|invalid version"),),
        seconds="metrics.predict_time",
        effective={"id": "id", "model": "model", "version": "version"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        name, _, version = self._settings.model.partition(":")
        fields = {"input": self._fields(call)}
        if version:
            return connection.send("POST", "/v1/predictions", body={**fields, "version": version})
        return connection.send("POST", f"/v1/models/{name}/predictions", body=fields)


class BflParameters(ResumingParameters):
    """A FLUX model: the name is the last part of its address, such as `flux-kontext-pro`."""

    model: str = _BFL.default
    base_url: str = _BFL.base_url
    """Also `https://api.eu.bfl.ai` or `https://api.us.bfl.ai`, to stay in a region."""
    output_format: Literal["png", "jpeg"] = "png"
    prompt_upsampling: bool = False
    """Let the service rewrite the instruction."""


class Bfl(Queued[BflParameters]):
    """FLUX models by Black Forest Labs."""

    Parameters = BflParameters
    name = "bfl"
    key_variable = "BFL_API_KEY"
    rewriting = "prompt_upsampling"
    headers = {"x-key": "{key}"}
    reserved = frozenset({"input_image", "prompt", "prompt_upsampling", "seed"})
    queue = Queue(
        link="polling_url",
        job="/v1/get_result?id={id}",
        hosts=".bfl.ai",
        waiting=("Pending", "Processing"),
        done=("Ready",),
        reason="details",
        pictures=("result.sample",),
        refusals=(
            Mark(path="status", values=("Request Moderated",), words="details.Moderation Reasons"),
            # Moderated after it was made; whether it is charged is not documented.
            Mark(path="status", values=("Content Moderated",), words="details.Moderation Reasons", pictures=1),
        ),
        effective={"seed": "result.seed", "revised_prompt": "result.prompt"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        names = ["input_image", *(f"input_image_{number}" for number in range(2, len(call.pictures) + 1))]
        fields = {
            "prompt": call.instruction,
            **dict(zip(names, (picture.base64 for picture in call.pictures), strict=True)),
            "seed": call.seed,
            "output_format": self._settings.output_format,
            "prompt_upsampling": self._settings.prompt_upsampling,
            **self._settings.extra,
        }
        return connection.send("POST", f"/v1/{self._settings.model}", body=fields)


class DashScopeParameters(ResumingParameters):
    """A Qwen image model that edits."""

    model: str = _DASHSCOPE.default
    base_url: str = _DASHSCOPE.base_url
    """Singapore's; Beijing's is `https://dashscope.aliyuncs.com/api/v1`."""
    size: str | None = Field(default=None, pattern=r"^\d+\*\d+$")
    """Such as `1024*1024`; by default about a megapixel in the portrait's proportions."""
    prompt_extend: bool | None = None
    """Let the service rewrite the instruction. Off unless it is asked for."""
    as_task: bool = Field(default=False, exclude=True)
    """Queue the work and look for it, where a model offers that."""
    max_characters: int = Field(default=800, gt=0, exclude=True)
    """The service cuts longer instructions off silently, so they fail instead."""


class DashScope(Queued[DashScopeParameters]):
    """Qwen image models by Alibaba Cloud Model Studio."""

    Parameters = DashScopeParameters
    name = "dashscope"
    key_variable = "DASHSCOPE_API_KEY"
    rewriting = "prompt_extend"
    reserved = frozenset({"n", "prompt_extend", "seed", "size"})
    queue = Queue(
        job="/tasks/{output.task_id}",
        state="output.task_status",
        waiting=("PENDING", "RUNNING"),
        done=("SUCCEEDED",),
        reason="output.message",
        pictures=("output.choices.0.message.content.0.image",),
        refusals=(
            Mark(path="code", values=_INSPECTED, words="message"),
            Mark(path="output.code", values=_INSPECTED, words="output.message"),
        ),
        # Has status 400, like a mistake in one request.
        hopeless=(Mark(path="code", values=("Arrearage",)),),
        effective={"request_id": "request_id"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        settings, length = self._settings, len(call.instruction)
        if length > (limit := settings.max_characters):
            error = f"the instruction has {length} characters; {settings.model!r} reads {limit}"
            raise CallFailed(error, retryable=False)
        content = [*({"image": picture.data_uri} for picture in call.pictures), {"text": call.instruction}]
        rewriting = (
            {} if "prompt_extend" in self.facts.rejects else {"prompt_extend": bool(self._settings.prompt_extend)}
        )
        size = {"size": self._settings.size} if self._settings.size else {}
        more = {"n": 1, "seed": call.seed, "watermark": False, **rewriting, **size, **self._settings.extra}
        messages = [{"role": "user", "content": content}]
        return connection.send(
            "POST",
            f"/services/aigc/{'image' if self._settings.as_task else 'multimodal'}-generation/generation",
            body={"model": self._settings.model, "input": {"messages": messages}, "parameters": more},
            headers={"X-DashScope-Async": "enable"} if self._settings.as_task else None,
        )
