"""A web address as an editor: `use = "http"`, with a template of what is sent and the path of the picture."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit

from pydantic import Field

from stillme.core.endpoints import ApiServer, EndpointParameters
from stillme.core.http.replies import CallFailed, Reply, Usage, origin_of, unexpected_answer
from stillme.core.images.sending import EncodedImage
from stillme.core.json_paths import follow, leaves
from stillme.core.placeholders import fill_json, names_in
from stillme.core.protocols import Capabilities, spec_of
from stillme.core.types import Json, Portrait, Prompt
from stillme.editors.hosted.catalogue import ModelPrice
from stillme.editors.hosted.editor import Call, HostedAnswer
from stillme.editors.hosted.queues import Queue, Queued, ResumingParameters

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

PLACEHOLDERS = ("source", "source_data_uri", "source2", "source2_data_uri", "instruction", "seed")
_NEVER = "\0"
"""A state that no job has: where the audit names none that is bad, every one but `done` is waited for."""
_SHOWN = 8
"""Fields of an answer that a message names."""
_SHORT = 60
"""Characters of a field's value that a message shows."""


class HttpEditorParameters(EndpointParameters):
    """A server that edits, and where its answer holds the picture."""

    picture: str = ""
    """Path of the picture in the answer, such as `data.0.b64_json`: base64, a data URI or a link. Empty: the whole
    answer is the picture."""
    files: dict[str, Literal["{source}", "{source2}"]] = {}
    """Fields of an upload form that take a picture's file; then `template` has the other fields of the form."""
    job: str = ""
    """For a server that queues work: path of the job's name in the first answer, such as `id`."""
    status_url: str = Field(default="", exclude=True)
    """Where to look for the job, such as `https://images.example/jobs/{job}`."""
    status: str = Field(default="status", exclude=True)
    """Path of the job's state in the answer to a look."""
    done: tuple[str, ...] = Field(default=(), exclude=True)
    """States of a job that has its picture, such as `["succeeded"]`."""
    failed: tuple[str, ...] = Field(default=(), exclude=True)
    """States of a job that will never have one. Every other state is waited for."""
    result_url: str = Field(default="", exclude=True)
    """Where the picture is asked for, if the look does not have it: `https://images.example/jobs/{job}/result`."""
    poll_seconds: float = Field(default=0.5, gt=0, exclude=True)
    """Seconds between the first looks; later ones are further apart."""
    seed: Literal["exact", "best_effort", "none"] | None = Field(default=None, exclude=True)
    """What a seed is worth; by default `best_effort` with {seed} in `template`, else `none`."""


class HttpEditor(Queued[ResumingParameters]):
    """Any server that takes JSON or an upload form and returns a picture: by `url`, `template` and `picture`."""

    Parameters = HttpEditorParameters
    name = "http"
    key_required = False
    more_inputs = "; add {source2} to `template`"

    def __init__(self, parameters: HttpEditorParameters) -> None:
        self._http = parameters
        price = parameters.dollars
        super().__init__(
            ResumingParameters(
                model=urlsplit(parameters.url).netloc or "server",
                base_url=origin_of(parameters.url),
                price=None if price is None else ModelPrice(image=price),
                timeout=parameters.timeout,
                concurrency=parameters.concurrency,
                poll_seconds=parameters.poll_seconds,
            )
        )
        self.server = ApiServer(parameters.url, parameters.headers, parameters)
        self.queue = Queue(
            look=parameters.status_url or "{job}",
            result=parameters.result_url,
            state=parameters.status,
            done=parameters.done,
            failed=parameters.failed or (_NEVER,),
            refusals=parameters.marks,
        )
        self.spec = spec_of("http", "1", parameters)
        placeholders = names_in([parameters.template, parameters.files])
        self.capabilities = Capabilities(
            inputs=2 if {"source2", "source2_data_uri"} & placeholders else 1,
            concurrency=parameters.concurrency,
            seed=parameters.seed or ("best_effort" if "seed" in placeholders else "none"),
            size="any",
            can_refuse=bool(parameters.refusal),
        )
        self._first = threading.Lock()
        self._has_answered = False
        self._wrong: CallFailed | None = None

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Placeholders that are unknown or missing, a queue that is half described, and keys that go astray."""
        yield from self._http.template_problems(PLACEHOLDERS, ("source", "instruction"), self._http.files)
        if bool(self._http.job) != bool(self._http.status_url and self._http.done):
            yield "queued work needs `job`, `status_url` and `done`; write all three, or none"
        for name in ("status_url", "result_url"):
            url = getattr(self._http, name)
            if url and (origin_of(url) != self._settings.base_url or "{job}" not in url):
                yield f"`{name}` must be at {self._settings.base_url}, where the keys go, and have {{job}} in it"
        yield from self.server.problems()

    def _ask(self, connection: Connection, call: Call) -> HostedAnswer:
        """The first answer is waited for alone: a wrong path is noticed after one paid call, not after several."""
        if self._has_answered:
            return super()._ask(connection, call)
        with self._first:
            if self._wrong is not None:
                raise self._wrong
            answer = super()._ask(connection, call)
            self._has_answered = True
            return answer

    def _submit(self, connection: Connection, call: Call) -> Reply:
        # A request with one portrait leaves the second place empty.
        values: dict[str, object] = {"source2": None, "source2_data_uri": None}
        pictures: dict[str, EncodedImage] = dict(zip(("source", "source2"), call.pictures, strict=False))
        for name, picture in pictures.items():
            values |= {name: picture.base64, f"{name}_data_uri": picture.data_uri}
        fields = fill_json(self._http.template, values | {"instruction": call.instruction, "seed": call.seed})
        if not self._http.files:
            return connection.send(self._http.method, self._http.url, body=fields)
        files = [
            (field, (picture.file_name, picture.data, picture.mime))
            for field, place in self._http.files.items()
            if (picture := pictures.get(place.strip("{}")))
        ]
        form = {name: str(value) for name, value in cast("dict[str, Json]", fields).items() if value is not None}
        return connection.send(self._http.method, self._http.url, files=files, form=form)

    def _accepted(self, reply: Reply, call: Call) -> str | HostedAnswer:
        if not self._http.job:
            return super()._accepted(reply, call)
        name = follow(reply.body, self._http.job)
        if not isinstance(name, str | int):
            raise self._misread("job", reply)
        return str(name)

    def _state(self, reply: Reply) -> Json:
        state = super()._state(reply)
        if state is None and not self._has_answered:
            raise self._misread("status", reply)
        return state

    def _link(self, reply: Reply) -> Json:
        """The picture of an answer as a link or a data URI: it is the answer itself, or stands at `picture`."""
        if not self._http.picture:
            if isinstance(reply.body, dict | list):
                raise self._misread("picture", reply)
            return f"data:;base64,{base64.b64encode(reply.content).decode()}"
        found = follow(reply.body, self._http.picture)
        if not isinstance(found, str) or not found:
            if self._http.job and self._http.picture in dict(leaves(reply.body)):
                return None  # the job's own end
            raise self._misread("picture", reply)
        if found.startswith(("http://", "https://", "data:")):
            return found
        return f"data:;base64,{''.join(found.split())}"

    def _misread(self, setting: str, reply: Reply) -> CallFailed:
        """An answer that does not have what the audit says. The first one stops the editor if the path is wrong."""
        path: str = getattr(self._http, setting)
        problem = f"there is no {setting} at {path!r}" if path else "the answer is JSON, not a picture"
        charged, waits = Usage(images=1), Usage()
        fields = {name: value for name, value in leaves(reply.body) if name}
        if not fields or path in fields or self._has_answered:
            followed = self._http.job and setting != "job"
            return unexpected_answer(problem, reply.text, usage=waits if followed else charged)
        shown = [f"{name} = {text}" if len(text := repr(value)) <= _SHORT else name for name, value in fields.items()]
        more = f" and {len(fields) - _SHOWN} more" if len(fields) > _SHOWN else ""
        error = f"{problem}; the answer has {', '.join(shown[:_SHOWN])}{more}; correct `{setting}` in the audit"
        self._wrong = CallFailed(error, fatal=True)
        # Another path of the picture is another cache key, so this job is not asked for again.
        return CallFailed.of(self._wrong.failed, waits if setting == "status" else charged)
