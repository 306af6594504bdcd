"""The providers as loopback servers: each edits a portrait by inverting its colours."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from stillme.core import images
from stillme.core.protocols import Editor
from stillme.editors.hosted.gemini import Gemini
from stillme.editors.hosted.openai import ImageServer, OpenAIImages
from stillme.editors.hosted.queues import Fal, Replicate
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


def prediction(server: Loopback, status: str, **more: Any) -> dict[str, Any]:
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
        return Says(body=prediction(server, "canceled"))
    if asked.method == "POST":
        return Says(body=prediction(server, "starting"), status=201)
    done = {"output": [f"{server.url}/picture.png"], "metrics": {"predict_time": 2.5, "total_time": 3.0}}
    return Says(body=prediction(server, "succeeded", **done))


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
PROVIDERS = (OPENAI, SERVER, GEMINI, FAL, REPLICATE)
