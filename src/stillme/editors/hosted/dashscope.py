"""Alibaba Cloud Model Studio (DashScope): the Qwen image models, over plain HTTP.

https://www.alibabacloud.com/help/en/model-studio/qwen-image-edit-api (one call),
…/qwen-image-generation-and-editing-api-reference (as a task) and …/error-code. Singapore and Beijing have addresses and
keys of their own. A refusal is the code `DataInspectionFailed`, of the call or of the task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, Declined, JobGone, fatal, from_status, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Reply, download, poll
from stillme.editors.hosted.queued import Resuming, ResumingParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("dashscope")
_NOW = "/services/aigc/multimodal-generation/generation"
_LATER = "/services/aigc/image-generation/generation"
_TASKS = "/tasks/"
_UNDER_WAY = frozenset({"PENDING", "RUNNING"})
_REFUSALS = frozenset({"DataInspectionFailed", "data_inspection_failed"})
_UNPAID = "Arrearage"
"""Has status 400, like a mistake in one request."""


class DashScopeParameters(ResumingParameters):
    """A Qwen image model that edits."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    """Singapore's; Beijing's is `https://dashscope.aliyuncs.com/api/v1`."""
    size: str | None = Field(default=None, pattern=r"^\d+\*\d+$")
    """Such as `1024*1024`; by default about a megapixel in the portrait's proportions."""
    prompt_extend: bool | None = None
    """Let the service rewrite the instruction. Off unless it is asked for."""
    as_task: bool = Field(default=False, exclude=True)
    """Queue the work and look for it, where a model offers that."""
    max_characters: int = Field(default=800, gt=0, exclude=True)
    """The service cuts longer instructions off silently, so they fail instead."""


class DashScope(Resuming):
    """Qwen image models by Alibaba Cloud Model Studio."""

    Parameters: ClassVar[type[BaseModel]] = DashScopeParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted", variables=("DASHSCOPE_API_KEY",))
    service: ClassVar[str] = "dashscope"
    key_variable: ClassVar[str] = "DASHSCOPE_API_KEY"
    reserved: ClassVar[frozenset[str]] = frozenset({"n", "prompt_extend", "seed", "size"})

    def __init__(self, parameters: DashScopeParameters) -> None:
        self._scope = parameters
        super().__init__(parameters)
        self.capabilities = replace(self.capabilities, rewrites_prompt=bool(parameters.prompt_extend))

    def _headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        length, limit = len(call.instruction), self._scope.max_characters
        if length > limit:
            raise CallFailed(
                f"the instruction has {length} characters; {self._scope.model!r} reads {limit}", retryable=False
            )
        return super()._ask(connection, call)

    def _submit(self, client: JsonClient, call: Call) -> str:
        """The address of a task, or the whole answer: it has a link to a picture that is paid for."""
        if not self._scope.as_task:
            return json.dumps(_checked(client.send("POST", _NOW, body=self._fields(call))).require_json())
        reply = client.send("POST", _LATER, body=self._fields(call), headers={"X-DashScope-Async": "enable"})
        task = dig(_checked(reply).require_json(), "output", "task_id")
        if not isinstance(task, str):
            raise unexpected_answer("no task", reply.text)
        return f"{_TASKS}{task}"

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        if not job.startswith(_TASKS):
            return self._answer(json.loads(job))
        result = poll(
            lambda: _checked(client.send("GET", job)),
            lambda body: dig(body, "output", "task_status") not in _UNDER_WAY,
            self.polling,
        )
        if (status := dig(result, "output", "task_status")) != "SUCCEEDED":
            raise _ended(status, dig(result, "output"))
        return self._answer(result)

    def _answer(self, result: Json) -> Answer:
        link = dig(result, "output", "choices", 0, "message", "content", 0, "image")
        if link is None:
            raise JobGone(f"no picture in the answer; the answer: {result}")
        request = dig(result, "request_id")
        image = download(link, timeout=self._scope.timeout, interval=self._scope.poll_seconds)
        return Answer(image=image, effective={"request_id": request} if request else {})

    def _fields(self, call: Call) -> dict[str, Any]:
        content = [*({"image": picture.data_uri} for picture in call.pictures), {"text": call.instruction}]
        rewriting = {} if "prompt_extend" in self.facts.rejects else {"prompt_extend": bool(self._scope.prompt_extend)}
        size = {"size": self._scope.size} if self._scope.size else {}
        return {
            "model": self._scope.model,
            "input": {"messages": [{"role": "user", "content": content}]},
            "parameters": {
                "n": 1,
                "seed": call.seed,
                "watermark": False,
                **rewriting,
                **size,
                **self._scope.extra,
            },
        }


def _checked(reply: Reply) -> Reply:
    """Raise an error reply: as a refusal if its code is one."""
    code, message = dig(reply.body, "code"), str(dig(reply.body, "message") or reply.text)
    if code in _REFUSALS:
        raise Declined(message, signal=f"code = {code}")
    if reply.status < 400:
        return reply
    failure = from_status(reply.status, f"{message} ({code})" if code else message, reply.headers)
    raise fatal(failure) if code == _UNPAID else failure


def _ended(status: Json, output: Json) -> Declined | CallFailed:
    """A task without a picture."""
    code, message = dig(output, "code"), dig(output, "message")
    if code in _REFUSALS:
        return Declined(str(message or code), signal=f"output.code = {code}")
    return JobGone(f"the task is {status}: {message or 'no explanation'}" + (f" ({code})" if code else ""))
