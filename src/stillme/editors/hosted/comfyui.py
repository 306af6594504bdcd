"""ComfyUI: a workflow of one's own on a server of one's own.

https://docs.comfy.org/development/comfyui-server/comms_routes. The workflow is a file in ComfyUI's API format, with
placeholders as values: `{source}` (then `{source_2}`, …) where a picture is loaded, `{instruction}`, `{seed}`, and
`{output}` as the file name's prefix of the node that saves the result. What the file says is part of the key; where it
lies is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast
from urllib.parse import urlencode
from uuid import uuid4

from pydantic import BaseModel, Field

from stillme.core.errors import StillmeError
from stillme.core.json_paths import dig
from stillme.core.placeholders import fill_json, names_in, unknown_names
from stillme.core.types import Json, Portrait, Prompt, Request, digest
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Price
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.encoded_images import EncodedImage
from stillme.editors.hosted.faults import CallFailed, JobGone, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Reply
from stillme.editors.hosted.queued import Queue, Queued, ResumingParameters
from stillme.editors.revisions import revision_note

_KNOWN = catalogue.service("comfyui")
_REQUIRED = ("source", "instruction", "output")
_PLACEHOLDERS = frozenset({*_REQUIRED, "seed", *(f"source_{number}" for number in range(2, 10))})


class ComfyUIParameters(ResumingParameters):
    """A workflow, and the server that runs it."""

    unkeyed: ClassVar[frozenset[str]] = frozenset({"workflow"})

    workflow: str = Field(default="", min_length=1, validate_default=True)
    """A file in ComfyUI's API format, with placeholders."""
    model: str = "workflow"
    """What reports call it; the workflow decides which model runs."""
    base_url: str = _KNOWN.base_url
    revision: str = ""
    """Which checkpoint is behind the address; change it when another one is, and edits are made again."""
    price: Price | None = Field(default=Price(), exclude=True)
    """Zero by default: the server is one's own."""


class ComfyUI(Queued):
    """A workflow of your own on a ComfyUI server."""

    Parameters: ClassVar[type[BaseModel]] = ComfyUIParameters
    service: ClassVar[str] = "comfyui"
    key_variable: ClassVar[str] = ""
    key_required: ClassVar[bool] = False
    reserved: ClassVar[frozenset[str]] = frozenset({"prompt", "prompt_id"})
    queue = Queue()

    def __init__(self, parameters: ComfyUIParameters) -> None:
        self._comfy = parameters
        super().__init__(parameters)
        self._workflow = Workflow.read(parameters.path(parameters.workflow))
        self.spec = replace(
            self.spec, parameters={**self.spec.parameters, "workflow_content": digest(self._workflow.nodes)}
        )
        self.capabilities = replace(
            self.capabilities,
            inputs=parameters.inputs or max(1, len(self._workflow.sources)),
            seed="best_effort" if "seed" in self._workflow.placeholders else "none",
            can_refuse=False,
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Also placeholders that the workflow lacks, and those that are unknown."""
        yield from super().problems(portraits, prompts)
        for name in _REQUIRED:
            if name not in self._workflow.placeholders:
                yield f"{self._comfy.workflow} has no `{{{name}}}`; write it as the value that the audit sets"
        yield from unknown_names(self._comfy.workflow, dict(self._workflow.nodes), _PLACEHOLDERS)

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """That a new checkpoint would not be noticed, unless the audit names its revision."""
        yield from revision_note(self._comfy.revision, self._comfy.base_url)

    def _headers(self, key: str) -> Mapping[str, str]:
        """ComfyUI knows no keys; a proxy before it may, and `key_variable` names its token."""
        return super()._headers(key) if self._environment() else {}

    def _submit(self, client: JsonClient, call: Call) -> str:
        sources = self._workflow.sources
        if len(sources) > len(call.pictures):
            raise CallFailed(
                f"the workflow loads {len(sources)} portraits, the request has {len(call.pictures)}", retryable=False
            )
        uploads = [_uploaded(client, picture) for picture in call.pictures]
        values = {
            **dict(zip(sources, uploads, strict=False)),
            "instruction": call.instruction,
            "seed": call.seed,
            # New for every job: ComfyUI does not run a node again whose inputs are the same.
            "output": f"stillme/{uuid4().hex}",
        }
        nodes = fill_json(dict(self._workflow.nodes), values)
        queued = _checked(client.send("POST", "/prompt", body={**self._comfy.extra, "prompt": nodes}))
        job = dig(queued.require_json(), "prompt_id")
        if not isinstance(job, str):
            raise unexpected_answer("no queued work", queued.text)
        return job

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        history = self._poll(lambda: _looked_up(client, job), lambda reply: dig(reply.body, job) is not None)
        entry = dig(history.body, job)
        if dig(entry, "status", "status_str") == "error":
            raise JobGone(_explained(dig(entry, "status", "messages")))
        file = dig(entry, "outputs", self._workflow.output, "images", 0)
        if file is None:
            raise JobGone(f"no picture from the node with `{{output}}`; the answer: {dig(entry, 'outputs')}")
        query = urlencode({name: dig(file, name) or "" for name in ("filename", "subfolder", "type")})
        reply = self._repeated(lambda: client.send("GET", f"/view?{query}").require_success())
        return Answer(image=reply.content)


class Workflow:
    """A workflow in API format: nodes by their number, some of whose inputs are placeholders."""

    def __init__(self, nodes: Mapping[str, Json]) -> None:
        self.nodes = nodes

    @classmethod
    def read(cls, file: Path) -> Workflow:
        """The workflow of a file."""
        try:
            nodes: Json = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StillmeError(f"The workflow {file} cannot be read ({error}). Correct `workflow`.") from None
        if not isinstance(nodes, dict) or not all(
            dig(node, "class_type") for node in cast("dict[str, Json]", nodes).values()
        ):
            raise StillmeError(f"{file} is not in ComfyUI's API format. Use its menu: Workflow, Export (API).")
        return cls(cast("dict[str, Json]", nodes))

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The placeholders that occur."""
        return names_in(dict(self.nodes))

    @property
    def sources(self) -> list[str]:
        """The placeholders for portraits, in their order."""
        return sorted(name for name in self.placeholders if name.startswith("source"))

    @property
    def output(self) -> str:
        """The number of the node that saves the result."""
        return next((number for number, node in self.nodes.items() if "output" in names_in(node)), "")


def _uploaded(client: JsonClient, picture: EncodedImage) -> str:
    """The name under which the server's nodes find the picture. It tells nothing but the content."""
    kind = picture.mime.removeprefix("image/")
    name = f"stillme-{hashlib.sha256(picture.data).hexdigest()[:32]}.{kind}"
    upload = [("image", (name, picture.data, picture.mime))]
    reply = client.send("POST", "/upload/image", files=upload, form={"type": "input", "overwrite": "true"})
    place = reply.require_json()
    if not isinstance(stored := dig(place, "name"), str):
        raise unexpected_answer("the picture was not stored", reply.text)
    folder = dig(place, "subfolder")
    return f"{folder}/{stored}" if folder else stored


def _looked_up(client: JsonClient, job: str) -> Reply:
    """The history, which names a job when it has ended. A job in neither history nor queue was lost with a restart."""
    reply = client.send("GET", f"/history/{job}")
    if reply.status >= 400 or dig(reply.body, job) is not None or _is_queued(client, job):
        return reply
    # It may have ended between the two looks.
    again = client.send("GET", f"/history/{job}")
    if again.status < 400 and dig(again.body, job) is None:
        raise JobGone("ComfyUI no longer knows the work; it was restarted, or the queue was cleared")
    return again


def _is_queued(client: JsonClient, job: str) -> bool:
    queue = client.send("GET", "/queue").require_json()
    entries = [*(dig(queue, "queue_running") or ()), *(dig(queue, "queue_pending") or ())]
    return any(dig(entry, 1) == job for entry in entries)


def _checked(reply: Reply) -> Reply:
    """Raise a rejected workflow with the words of the nodes that are wrong."""
    error, nodes = dig(reply.body, "error"), dig(reply.body, "node_errors")
    if reply.status < 400 or not error:
        return reply.require_success()
    sentences = [
        f"{dig(node, 'class_type')}: {dig(entry, 'message')} ({dig(entry, 'details')})"
        for node in (cast("dict[str, Json]", nodes).values() if isinstance(nodes, dict) else ())
        for entry in dig(node, "errors") or ()
    ]
    return reply.require_success("; ".join([str(dig(error, "message") or error), *sentences]))


def _explained(messages: Json) -> str:
    """Why a job failed, from its events."""
    events = cast("list[Json]", messages) if isinstance(messages, list) else []
    for event in events:
        match dig(event, 0):
            case "execution_error":
                reason = dig(event, 1, "exception_message") or "no explanation"
                return f"the node {dig(event, 1, 'node_type')} failed: {reason}"
            case "execution_interrupted":
                return "the job was interrupted at the server"
            case _:
                pass
    return f"the job failed; the answer: {messages}"
