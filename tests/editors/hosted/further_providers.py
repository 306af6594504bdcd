"""More providers as loopback servers, each as its documentation describes it (named in the adapter's module)."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stillme.editors.hosted.comfyui import ComfyUI
from stillme.editors.hosted.gemini import Vertex
from stillme.editors.hosted.openai import AzureImages
from stillme.editors.hosted.queues import Bfl, DashScope
from tests.editors.hosted import providers
from tests.editors.hosted.loopback import Asked, Loopback, Says
from tests.editors.hosted.providers import POLL, Provider, from_data_uri, gemini, openai

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
        return Says(body=providers.negative(base64.b64decode(fields["input_image"])))
    if looks(server, "get_result") < 2:
        return Says(body=bfl_result("Pending"))
    sample = {"sample": f"{server.url}/picture.png", "prompt": fields["prompt"], "seed": fields["seed"]}
    return Says(body=bfl_result("Ready", sample))


# -- DashScope --------------------------------------------------------------------------------------------------------


def dashscope(server: Loopback, asked: Asked) -> Says:
    path = asked.path.removeprefix("/api/v1")
    if path.endswith("picture.png"):
        content = last_post(server, "/generation").json["input"]["messages"][0]["content"]
        return Says(body=providers.negative(from_data_uri(content[0]["image"])))
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
        return Says(body=providers.negative(uploads[jobs[name]["1"]["inputs"]["image"]]))
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
FURTHER = (AZURE, VERTEX, BFL, DASHSCOPE, DASHSCOPE_TASK, COMFYUI)


def workflow(**changed: Any) -> str:
    """The workflow with other nodes, as a file's content."""
    return json.dumps({**json.loads(WORKFLOW.read_text()), **changed})
