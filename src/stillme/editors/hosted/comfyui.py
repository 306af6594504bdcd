"""ComfyUI: your own workflow on your own server.

https://docs.comfy.org/development/comfyui-server/comms_routes. The workflow is a file in ComfyUI's API format, with
placeholders as values: `{source}` (then `{source_2}`, …) where a picture is loaded, `{instruction}`, `{seed}`, and
`{output}` as the file name's prefix of the node that saves the result. What the file says is part of the key; where it
lies is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast
from urllib.parse import urlencode
from uuid import uuid4

from pydantic import Field

from stillme.core.errors import StillmeError
from stillme.core.http.replies import CallFailed, Reply, unexpected_answer
from stillme.core.images.sending import EncodedImage
from stillme.core.json_paths import dig
from stillme.core.placeholders import fill_json, names_in, unknown_names
from stillme.core.types import Json, Portrait, Prompt, digest
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import ModelPrice
from stillme.editors.hosted.editor import Call, JobGone
from stillme.editors.hosted.queues import Queue, Queued, ResumingParameters

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

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
    price: ModelPrice | None = Field(default=ModelPrice(), exclude=True)
    """Zero by default: the server is your own."""


class ComfyUI(Queued[ComfyUIParameters]):
    """A workflow of your own on a ComfyUI server."""

    Parameters = ComfyUIParameters
    name = "comfyui"
    key_required = False
    reserved = frozenset({"prompt", "prompt_id"})
    queue = Queue(job="{prompt_id}", look="/history/{job}", waiting=(None,), done=("success",))

    def __init__(self, parameters: ComfyUIParameters) -> None:
        super().__init__(parameters)
        nodes = self._nodes = _workflow(parameters.path(parameters.workflow))
        self._names = names_in(nodes)
        self._sources = sorted(name for name in self._names if name.startswith("source"))
        self._saving = next((number for number, node in nodes.items() if "output" in names_in(node)), "")
        self.spec = replace(self.spec, parameters={**self.spec.parameters, "workflow_content": digest(nodes)})
        self.capabilities = replace(
            self.capabilities,
            inputs=parameters.inputs or max(1, len(self._sources)),
            seed="best_effort" if "seed" in self._names else "none",
            can_refuse=False,
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Also placeholders that the workflow lacks, and those that are unknown."""
        yield from super().problems(portraits, prompts)
        for name in _REQUIRED:
            if name not in self._names:
                yield f"{self._settings.workflow} has no `{{{name}}}`; write it as the value that the audit sets"
        yield from unknown_names(self._settings.workflow, self._nodes, _PLACEHOLDERS)

    def _submit(self, connection: Connection, call: Call) -> Reply:
        sources = self._sources
        if len(sources) > len(call.pictures):
            raise CallFailed(
                f"the workflow loads {len(sources)} portraits, the request has {len(call.pictures)}", retryable=False
            )
        uploads = [_uploaded(connection, picture) for picture in call.pictures]
        values = {
            **dict(zip(sources, uploads, strict=False)),
            "instruction": call.instruction,
            "seed": call.seed,
            # New for every job: ComfyUI does not run a node again whose inputs are the same.
            "output": f"stillme/{uuid4().hex}",
        }
        nodes = fill_json(self._nodes, values)
        reply = connection.send("POST", "/prompt", body={**self._settings.extra, "prompt": nodes})
        if reply.status >= 400 and (error := dig(reply.body, "error")):
            # The words of the nodes that are wrong.
            sentences = [
                f"{dig(node, 'class_type')}: {dig(entry, 'message')} ({dig(entry, 'details')})"
                for node in _values(dig(reply.body, "node_errors"))
                for entry in dig(node, "errors") or ()
            ]
            raise reply.failure("; ".join([str(dig(error, "message") or error), *sentences]))
        return reply

    def _look(self, connection: Connection, job: str) -> Reply:
        """The history, which names a job when it has ended. A job in neither history nor queue was lost."""
        reply = super()._look(connection, job)
        if _entry(reply.body) is not None or _is_queued(connection, job):
            return reply
        # It may have ended between the two looks.
        again = super()._look(connection, job)
        if _entry(again.body) is None:
            raise JobGone("ComfyUI no longer knows the work; it was restarted, or the queue was cleared")
        return again

    def _state(self, reply: Reply) -> Json:
        entry = _entry(reply.body)
        return None if entry is None else dig(entry, "status", "status_str") or "success"

    def _reason(self, body: Json) -> str:
        return _explained(dig(_entry(body), "status", "messages"))

    def _link(self, reply: Reply) -> Json:
        file = dig(_entry(reply.require_json()), "outputs", self._saving, "images", 0)
        return file and "/view?" + urlencode(
            {name: dig(file, name) or "" for name in ("filename", "subfolder", "type")}
        )

    def _image(self, connection: Connection, link: Json, renewed: Callable[[], Json]) -> bytes:
        return self._repeated(lambda: connection.send("GET", link).require_success()).content


def _workflow(file: Path) -> dict[str, Json]:
    """A workflow in API format: nodes by their number, some of whose inputs are placeholders."""
    try:
        nodes: Json = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StillmeError(f"The workflow {file} cannot be read ({error}). Correct `workflow`.") from None
    if not isinstance(nodes, dict) or not all(dig(node, "class_type") for node in _values(nodes)):
        raise StillmeError(f"{file} is not in ComfyUI's API format. Use its menu: Workflow, Export (API).")
    return cast("dict[str, Json]", nodes)


def _uploaded(connection: Connection, picture: EncodedImage) -> str:
    """The name under which the server's nodes find the picture. It tells nothing but the content."""
    kind = picture.mime.removeprefix("image/")
    name = f"stillme-{hashlib.sha256(picture.data).hexdigest()[:32]}.{kind}"
    upload = [("image", (name, picture.data, picture.mime))]
    reply = connection.send("POST", "/upload/image", files=upload, form={"type": "input", "overwrite": "true"})
    place = reply.require_json()
    if not isinstance(stored := dig(place, "name"), str):
        raise unexpected_answer("the picture was not stored", reply.text)
    folder = dig(place, "subfolder")
    return f"{folder}/{stored}" if folder else stored


def _entry(history: Json) -> Json:
    """The job's own part of its history; None while it has not ended."""
    return next(iter(_values(history)), None)


def _values(entries: Json) -> Iterable[Json]:
    return cast("dict[str, Json]", entries).values() if isinstance(entries, dict) else ()


def _is_queued(connection: Connection, job: str) -> bool:
    queue = connection.send("GET", "/queue").require_json()
    entries = [*(dig(queue, "queue_running") or ()), *(dig(queue, "queue_pending") or ())]
    return any(dig(entry, 1) == job for entry in entries)


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
