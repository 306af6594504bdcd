"""OpenAI's image models, in an Azure resource too, and every server with the same `/v1/images/edits`.

https://platform.openai.com/docs/api-reference/images/createEdit. Azure
(https://learn.microsoft.com/azure/ai-services/openai/reference): a dated `api_version` goes to
`/openai/deployments/{deployment}/images/edits`, `v1` and `preview` go to `/openai/v1/images/edits`. Azure adds its own
filter: it marks a refusal in `error.code`, in the code of the inner error, or in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field

from stillme.core.json_paths import dig
from stillme.core.types import Json, Request
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import UNKNOWN, CallFailed, Declined, JobGone, from_status, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Reply
from stillme.editors.revisions import revision_note

_KNOWN = catalogue.service("openai")
_REFUSALS = frozenset(
    {
        "moderation_blocked",
        "content_policy_violation",
        "content_filter",
        "contentFilter",
        "ResponsibleAIPolicyViolation",
    }
)
"""Error codes of a policy block, OpenAI's and Azure's; every other code is a failure."""
_FATAL = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "account_deactivated",
        "invalid_api_key",
        "model_not_found",
    }
)
"""Faults of the account or the model that the status does not always show."""
_INNER = ("inner_error", "innererror")
"""The name differs between Azure's endpoints."""


class ImagesParameters(HostedParameters):
    """Parameters of `/v1/images/edits` on every server."""

    size: str = Field(default="1024x1024", pattern=r"^(auto|\d+x\d+)$")


class OpenAIParameters(ImagesParameters):
    """Parameters of OpenAI's own models."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    quality: str = "auto"
    input_fidelity: str | None = None
    background: str | None = None


class AzureParameters(OpenAIParameters):
    """A deployment of an image model."""

    model: str = Field(min_length=1)
    """The deployment's name; Azure does not tell the model behind it, so `price` must be given."""
    base_url: str = Field(pattern=r"^https?://")
    """The resource's address, such as `https://my-resource.openai.azure.com`."""
    api_version: str = Field(default="2025-04-01-preview", pattern=r"^(v1|preview|\d{4}-\d\d-\d\d(-preview)?)$")


class ServerParameters(ImagesParameters):
    """A self-hosted server. `extra` takes its model's settings: steps, guidance, negative prompt.

    No key is sent unless `key_variable` names one.
    """

    revision: str = ""
    """Which checkpoint is behind the address; change it when another one is, and edits are made again."""


class _Images(Hosted):
    """The Images API."""

    def _path(self) -> str:
        return "/images/edits"

    def _fields(self, call: Call) -> Mapping[str, Any]:
        """Request fields besides image, prompt and model."""
        return {}

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        field = "image[]" if len(call.pictures) > 1 else "image"
        fields = {"prompt": call.instruction, "model": self._settings.model, **self._fields(call)}
        form = {name: _written(value) for name, value in {**fields, **self._settings.extra}.items()}
        files = [(field, (picture.file_name, picture.data, picture.mime)) for picture in call.pictures]
        reply = connection.send("POST", self._path(), files=files, form=form)
        if reply.status >= 400:
            raise _from_error(reply)
        return self._answer(reply)

    def _answer(self, reply: Reply) -> Answer:
        body = reply.body
        usage = _usage(dig(body, "usage"))
        first: Json = dig(body, "data", 0)
        if not isinstance(first, dict):
            raise unexpected_answer("no picture in the answer", reply.text, usage=usage or UNKNOWN)
        usage = usage or Usage()
        # Self-hosted servers may return a link.
        link = dig(first, "url")
        try:
            image = self._picture(link) if link else from_base64(dig(first, "b64_json"))
        except CallFailed as failure:
            raise JobGone(failure.failed.error, usage=replace(usage, images=1)) from None
        details = {
            "request_id": reply.headers.get("x-request-id"),
            "revised_prompt": dig(first, "revised_prompt"),
            **{name: dig(body, name) for name in ("model", "quality", "background", "output_format")},
        }
        return Answer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})


class OpenAIImages(_Images):
    """OpenAI's image models over the Images API."""

    Parameters: ClassVar[type[BaseModel]] = OpenAIParameters
    service: ClassVar[str] = "openai"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    seed: ClassVar[Literal["best_effort", "none"]] = "none"

    def __init__(self, parameters: OpenAIParameters) -> None:
        self._images = parameters
        super().__init__(parameters)

    def _exact_size(self) -> tuple[int, int] | None:
        size = str(self._settings.extra.get("size") or self._images.size)
        if size == "auto":
            return None
        width, height = size.split("x")
        return int(width), int(height)

    def _expected_usage(self) -> Usage:
        by_quality = self.facts.image_tokens
        width, height = self._exact_size() or (1024, 1024)
        # What `auto` will choose is not known: the dearest.
        quality = str(self._settings.extra.get("quality") or self._images.quality)
        tokens = by_quality.get(quality, max(by_quality.values(), default=0))
        return replace(
            super()._expected_usage(),
            input_image=self.facts.portrait_tokens,
            output_image=round(tokens * width * height / 2**20),
        )

    def _fields(self, call: Call) -> Mapping[str, Any]:
        names = {"size", "quality", "input_fidelity", "background"}
        return {**self._settings.model_dump(include=names, exclude_none=True), "output_format": "png"}


class AzureImages(OpenAIImages):
    """OpenAI's image models in an Azure resource."""

    Parameters: ClassVar[type[BaseModel]] = AzureParameters
    service: ClassVar[str] = "azure"
    key_variable: ClassVar[str] = "AZURE_OPENAI_API_KEY"
    headers: ClassVar[Mapping[str, str]] = {"api-key": "{key}"}

    def __init__(self, parameters: AzureParameters) -> None:
        self._version = parameters.api_version
        super().__init__(parameters)

    def _path(self) -> str:
        if self._version == "v1":
            return "/openai/v1/images/edits"
        place = "v1" if self._version == "preview" else f"deployments/{self._settings.model}"
        return f"/openai/{place}/images/edits?api-version={self._version}"


class ImageServer(_Images):
    """A server with OpenAI's Images API, such as vLLM-Omni or SGLang-diffusion, by `base_url`."""

    Parameters: ClassVar[type[BaseModel]] = ServerParameters
    service: ClassVar[str] = "openai-server"
    key_variable: ClassVar[str] = ""
    key_required: ClassVar[bool] = False

    def __init__(self, parameters: ServerParameters) -> None:
        self._revision = parameters.revision
        super().__init__(parameters)

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """That a new checkpoint would not be noticed, unless the audit names its revision."""
        yield from revision_note(self._revision, self._settings.base_url)

    def _fields(self, call: Call) -> Mapping[str, Any]:
        size = self._settings.model_dump(include={"size"})
        return {**size, "seed": call.seed, "n": 1, "response_format": "b64_json"}


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _from_error(reply: Reply) -> Declined | CallFailed:
    # Other servers may have the error at the top level.
    error: Json = dig(reply.body, "error") or reply.body
    inner: Json = next((entry for name in _INNER if (entry := dig(error, name))), None)
    code, inner_code = str(dig(error, "code") or ""), str(dig(inner, "code") or "")
    marks = {"inner_error.code": inner_code, "error.code": code}
    mark = next((f"{name} = {value}" for name, value in marks.items() if value in _REFUSALS), None)
    if mark:
        categories = _filtered(dig(inner, "content_filter_results") or dig(error, "content_filter_results"))
        signal = f"{mark} ({', '.join(categories)})" if categories else mark
        return Declined(str(dig(error, "message") or signal), signal=signal)
    failure = from_status(reply.status, reply.explanation, reply.headers)
    return failure.as_fatal() if code in _FATAL else failure


def _filtered(results: Json) -> list[str]:
    """The categories that Azure's filter names."""
    if not isinstance(results, dict):
        return []
    return sorted(name for name, result in cast("dict[str, Json]", results).items() if dig(result, "filtered") is True)


def _usage(reported: Json) -> Usage | None:
    def count(*path: str) -> int:
        tokens = dig(reported, *path)
        return tokens if isinstance(tokens, int) else 0

    if not isinstance(reported, dict):
        return None
    written = count("output_tokens_details", "text_tokens")
    return Usage(
        input_text=count("input_tokens_details", "text_tokens"),
        input_image=count("input_tokens_details", "image_tokens"),
        output_text=written,
        output_image=max(0, count("output_tokens") - written),
    )
