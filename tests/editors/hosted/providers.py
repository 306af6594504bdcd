"""The providers as loopback servers, each as its documentation describes it: they invert a portrait's colours."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image

from stillme.core import images
from stillme.core.protocols import Editor
from stillme.editors.hosted.comfyui import ComfyUI
from stillme.editors.hosted.gemini import Gemini, Vertex
from stillme.editors.hosted.openai import AzureImages, ImageServer, OpenAIImages
from stillme.editors.hosted.queues import Bfl, DashScope, Fal, Replicate
from tests.editors.hosted.loopback import Asked, Loopback, Says


def negative(picture: bytes) -> bytes:
    return images.encode_png(255 - images.read_rgb(picture))


def scaled(picture: bytes, size: str) -> bytes:
    """The picture in the size that was asked for, such as `1024x1024`; as it is for `auto`."""
    if size == "auto":
        return picture
    width, height = map(int, size.split("x"))
    return images.encode_png(np.asarray(Image.fromarray(images.read_rgb(picture)).resize((width, height))))


def base64_of(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def from_data_uri(link: str) -> bytes:
    return base64.b64decode(link.partition(";base64,")[2])


# -- OpenAI and servers like it ---------------------------------------------------------------------------------------


def openai(server: Loopback, asked: Asked) -> Says:
    form = asked.form
    size = form["size"][0].decode()
    picture = scaled(negative((form.get("image") or form["image[]"])[0]), size)
    usage = {
        "input_tokens": 300,
        "input_tokens_details": {"text_tokens": 100, "image_tokens": 200},
        "output_tokens": 1000,
        "total_tokens": 1300,
    }
    body = {
        "created": 1,
        "data": [{"b64_json": base64_of(picture)}],
        "size": size,
        "quality": "high",
        "output_format": "png",
        "usage": usage,
    }
    return Says(body=body, headers={"x-request-id": "req_1"})


# -- Gemini -----------------------------------------------------------------------------------------------------------


def gemini_says(parts: list[Any] | None = None, **candidate: Any) -> Says:
    content = {"role": "model", "parts": parts} if parts is not None else None
    entry = {"index": 0, "finishReason": "STOP", **({"content": content} if content else {}), **candidate}
    usage = {
        "promptTokenCount": 300,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 42}, {"modality": "IMAGE", "tokenCount": 258}],
        "candidatesTokenCount": 1130,
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1120}],
        "thoughtsTokenCount": 90,
        "totalTokenCount": 1520,
    }
    return Says(body={"candidates": [entry], "usageMetadata": usage, "modelVersion": "gemini-3.1-flash-image-001"})


def gemini_image(picture: bytes, **more: Any) -> dict[str, Any]:
    return {"inlineData": {"mimeType": "image/png", "data": base64_of(picture)}, **more}


def gemini(server: Loopback, asked: Asked) -> Says:
    parts = asked.json["contents"][0]["parts"]
    picture = next(part["inlineData"]["data"] for part in parts if "inlineData" in part)
    return gemini_says([{"text": "Here you are."}, gemini_image(negative(base64.b64decode(picture)))])


# -- fal --------------------------------------------------------------------------------------------------------------


def fal(server: Loopback, asked: Asked) -> Says:
    path = urlsplit(asked.path).path.removeprefix("/fal-ai/fal-ai").removeprefix("/fal-ai")
    if asked.method == "POST":
        where = "https://queue.fal.run/fal-ai/flux-2-pro/requests/764cabcf"
        body = {
            "request_id": "764cabcf",
            "response_url": where,
            "status_url": f"{where}/status",
            "cancel_url": f"{where}/cancel",
            "status": "IN_QUEUE",
            "queue_position": 0,
        }
        return Says(body=body)
    if path.endswith("/cancel"):
        return Says(body={"status": "CANCELLATION_REQUESTED"}, status=202)
    looks = sum(request.path.partition("?")[0].endswith("/status") for request in server.asked)
    if path.endswith("/status"):
        status = {"status": "COMPLETED", "logs": []} if looks > 1 else {"status": "IN_PROGRESS", "logs": []}
        return Says(body=status, status=200 if looks > 1 else 202)
    fields = next(request.json for request in reversed(server.asked) if request.method == "POST")
    picture = from_data_uri(fields["image_urls"][0] if "image_urls" in fields else fields["image_url"])
    link = f"data:image/png;base64,{base64_of(negative(picture))}"
    return Says(
        body={
            "images": [{"url": link, "width": 16, "height": 16, "content_type": "image/png"}],
            "seed": 4711,
            "prompt": fields["prompt"],
            "has_nsfw_concepts": [False],
        }
    )


# -- Replicate --------------------------------------------------------------------------------------------------------


def prediction(status: str, **more: Any) -> dict[str, Any]:
    where = "https://api.replicate.com/v1/predictions/gm3qorzd"
    return {
        "id": "gm3qorzd",
        "model": "black-forest-labs/flux-2-pro",
        "version": "hidden",
        "input": {},
        "logs": "",
        "output": None,
        "error": None,
        "status": status,
        "created_at": "2026-11-15T16:19:34.765994Z",
        "urls": {"get": where, "cancel": f"{where}/cancel"},
        **more,
    }


def replicate(server: Loopback, asked: Asked) -> Says:
    if asked.path.endswith("picture.png"):
        fields = next(request.json["input"] for request in reversed(server.asked) if request.method == "POST")
        name = next(name for name in ("input_images", "images", "input_image", "image") if name in fields)
        link = fields[name][0] if isinstance(fields[name], list) else fields[name]
        return Says(body=negative(from_data_uri(link)))
    if asked.path.endswith("/cancel"):
        return Says(body=prediction("canceled"))
    if asked.method == "POST":
        return Says(body=prediction("starting"), status=201)
    done = {"output": [f"{server.url}/picture.png"], "metrics": {"predict_time": 2.5, "total_time": 3.0}}
    return Says(body=prediction("succeeded", **done))


WORKFLOW = Path(__file__).with_name("workflow_api.json")


def last_post(server: Loopback, ending: str) -> Asked:
    posts = (asked for asked in reversed(server.asked) if asked.method == "POST")
    return next(asked for asked in posts if urlsplit(asked.path).path.endswith(ending))


def looks(server: Loopback, part: str) -> int:
    return sum(asked.method == "GET" and part in asked.path for asked in server.asked)


# -- Azure ------------------------------------------------------------------------------------------------------------


def azure(server: Loopback, asked: Asked) -> Says:
    place = urlsplit(asked.path)
    deployment = place.path == "/openai/deployments/portraits/images/edits" and "api-version=20" in place.query
    version_1 = place.path == "/openai/v1/images/edits" and place.query in ("", "api-version=preview")
    if not (deployment or version_1):
        return Says(status=404, body={"error": {"code": "404", "message": "Resource not found"}})
    return openai(server, asked)


# -- Vertex AI --------------------------------------------------------------------------------------------------------


def vertex(server: Loopback, asked: Asked) -> Says:
    model = "projects/people/locations/global/publishers/google/models/gemini-3.1-flash-image"
    if asked.path != f"/v1beta1/{model}:generateContent":
        return Says(status=404, body={"error": {"code": 404, "message": asked.path, "status": "NOT_FOUND"}})
    return gemini(server, asked)


# -- Black Forest Labs ------------------------------------------------------------------------------------------------


def bfl_result(status: str, result: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "8c2b", "status": status, "result": result, "progress": None, "details": None, **more}


def bfl(server: Loopback, asked: Asked) -> Says:
    if asked.method == "POST":
        return Says(body={"id": "8c2b", "polling_url": f"{server.url}/v1/get_result?id=8c2b"})
    fields = last_post(server, "flux-2-pro").json
    if asked.path.endswith("picture.png"):
        return Says(body=negative(base64.b64decode(fields["input_image"])))
    if looks(server, "get_result") < 2:
        return Says(body=bfl_result("Pending"))
    sample = {"sample": f"{server.url}/picture.png", "prompt": fields["prompt"], "seed": fields["seed"]}
    return Says(body=bfl_result("Ready", sample))


# -- DashScope --------------------------------------------------------------------------------------------------------


def dashscope(server: Loopback, asked: Asked) -> Says:
    path = asked.path.removeprefix("/api/v1")
    if path.endswith("picture.png"):
        content = last_post(server, "/generation").json["input"]["messages"][0]["content"]
        return Says(body=negative(from_data_uri(content[0]["image"])))
    picture = {"content": [{"image": f"{server.url}/picture.png"}], "role": "assistant"}
    choices = [{"finish_reason": "stop", "message": picture}]
    usage = {"height": 16, "image_count": 1, "width": 16}
    if path == "/services/aigc/multimodal-generation/generation":
        return Says(body={"output": {"choices": choices}, "usage": usage, "request_id": "571ae02f"})
    if path == "/services/aigc/image-generation/generation":
        if asked.headers.get("x-dashscope-async") != "enable":
            return Says(status=403, body={"code": "AccessDenied", "message": "no synchronous calls", "request_id": "1"})
        return Says(body={"output": {"task_id": "0385dc79", "task_status": "PENDING"}, "request_id": "4909100c"})
    if path == "/tasks/0385dc79":
        done = looks(server, "/tasks/") > 1
        output = {"task_id": "0385dc79", "task_status": "SUCCEEDED" if done else "RUNNING"}
        return Says(body={"output": output | ({"choices": choices} if done else {}), "request_id": "571ae02f"})
    return Says(status=404, body={"code": "NotFound", "message": path, "request_id": "1"})


# -- ComfyUI ----------------------------------------------------------------------------------------------------------


def comfy_entry(job: str, **status: Any) -> dict[str, Any]:
    images = [{"filename": f"{job}_00001_.png", "subfolder": "stillme", "type": "output"}]
    good = {"status_str": "success", "completed": True, "messages": []}
    return {"prompt": [], "outputs": {} if status else {"4": {"images": images}}, "status": {**good, **status}}


def comfyui(server: Loopback, asked: Asked) -> Says:
    place = urlsplit(asked.path)
    uploads = {_file_name(post): post.form["image"][0] for post in server.calls() if post.path == "/upload/image"}
    jobs = {_job(post): post.json["prompt"] for post in server.calls() if post.path == "/prompt"}
    if place.path == "/upload/image":
        return Says(body={"name": _file_name(asked), "subfolder": "", "type": "input"})
    if place.path == "/prompt":
        wanted = asked.json["prompt"]["1"]["inputs"]["image"]
        if wanted not in uploads:
            return comfy_rejects("LoadImage", "Invalid image file", wanted)
        return Says(body={"prompt_id": _job(asked), "number": 3, "node_errors": {}})
    if place.path.startswith("/history/"):
        job = place.path.removeprefix("/history/")
        return Says(body={job: comfy_entry(job)} if job in jobs and looks(server, place.path) > 1 else {})
    if place.path == "/queue":
        return Says(body={"queue_running": [[3, job, {}, {}, ["4"]] for job in jobs], "queue_pending": []})
    name = parse_qs(place.query).get("filename", [""])[0].partition("_")[0]
    if place.path == "/view" and name in jobs:
        return Says(body=negative(uploads[jobs[name]["1"]["inputs"]["image"]]))
    return Says(status=404, body=b"")


def comfy_rejects(node: str, message: str, details: str) -> Says:
    error = {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation", "details": ""}
    entry = {"type": "value_not_in_list", "message": message, "details": details}
    return Says(status=400, body={"error": error, "node_errors": {"1": {"errors": [entry], "class_type": node}}})


def _job(asked: Asked) -> str:
    """The server would invent one; this one is found again more easily."""
    return asked.json["prompt"]["4"]["inputs"]["filename_prefix"].rpartition("/")[2]


def _file_name(asked: Asked) -> str:
    return re.search(rb'filename="([^"]+)"', asked.content)[1].decode()


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One editor and the server that it is tried against."""

    name: str
    kind: type[Editor]
    behave: Callable[[Loopback, Asked], Says]
    parameters: Mapping[str, Any]
    base: str = ""
    submit: str = ""
    """What the path of the call that asks for an edit contains."""

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the key; empty if there is none."""
        return self.parameters.get("key_variable", self.kind.key_variable)

    def settings(self, url: str, **more: Any) -> dict[str, Any]:
        return {**self.parameters, "base_url": url + self.base, **more}

    def build(self, url: str, **more: Any) -> Editor:
        return self.kind(self.kind.Parameters.model_validate(self.settings(url, **more)))


POLL = {"poll_seconds": 0.005}

OPENAI = Provider(
    name="openai",
    kind=OpenAIImages,
    behave=openai,
    parameters={"size": "auto"},
    base="/v1",
    submit="/v1/images/edits",
)
SERVER = Provider(
    name="openai-server",
    kind=ImageServer,
    behave=openai,
    parameters={"model": "Qwen/Qwen-Image-Edit-2511", "size": "auto", "key_variable": "OPENAI_API_KEY"},
    base="/v1",
    submit="/v1/images/edits",
)
GEMINI = Provider(name="gemini", kind=Gemini, behave=gemini, parameters={}, submit=":generateContent")
FAL = Provider(name="fal", kind=Fal, behave=fal, parameters=POLL, submit="/fal-ai/flux-2-pro/edit")
REPLICATE = Provider(name="replicate", kind=Replicate, behave=replicate, parameters=POLL, submit="flux-2-pro/pred")
AZURE = Provider(
    name="azure",
    kind=AzureImages,
    behave=azure,
    parameters={"model": "portraits", "size": "auto"},
    submit="/images/edits",
)
VERTEX = Provider(
    name="vertex", kind=Vertex, behave=vertex, parameters={"project": "people"}, submit=":generateContent"
)
BFL = Provider(name="bfl", kind=Bfl, behave=bfl, parameters=POLL, submit="/v1/flux-2-pro")
DASHSCOPE = Provider(
    name="dashscope", kind=DashScope, behave=dashscope, parameters=POLL, base="/api/v1", submit="/generation"
)
DASHSCOPE_TASK = Provider(
    name="dashscope-task",
    kind=DashScope,
    behave=dashscope,
    parameters={**POLL, "as_task": True},
    base="/api/v1",
    submit="/generation",
)
COMFYUI = Provider(
    name="comfyui",
    kind=ComfyUI,
    behave=comfyui,
    parameters={**POLL, "workflow": str(WORKFLOW), "key_variable": "COMFYUI_TOKEN"},
    submit="/prompt",
)
PROVIDERS = (
    OPENAI, SERVER, GEMINI, FAL, REPLICATE, AZURE, VERTEX, BFL, DASHSCOPE, DASHSCOPE_TASK, COMFYUI
)  # fmt: skip


def workflow(**changed: Any) -> str:
    """The workflow with other nodes, as a file's content."""
    return json.dumps({**json.loads(WORKFLOW.read_text()), **changed})
