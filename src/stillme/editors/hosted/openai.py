"""OpenAI's image models, in an Azure resource too, and every server with the same `/v1/images/edits`.

https://platform.openai.com/docs/api-reference/images/createEdit. Azure
(https://learn.microsoft.com/azure/ai-services/openai/reference): a dated `api_version` goes to
`/openai/deployments/{deployment}/images/edits`, `v1` and `preview` go to `/openai/v1/images/edits`. Azure adds its own
filter: it marks a refusal in `error.code`, in the code of the inner error, or in both.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from stillme.core.http.replies import UNKNOWN, CallDeclined, CallFailed, Reply, Usage, unexpected_answer
from stillme.core.json_paths import count, dig
from stillme.core.types import Json
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Call, Hosted, HostedAnswer, HostedParameters, JobGone, from_base64

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

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


ImagesP = TypeVar("ImagesP", bound=ImagesParameters)
OpenAIP = TypeVar("OpenAIP", bound=OpenAIParameters)


class _Images(Hosted[ImagesP]):
    """The Images API."""

    @abstractmethod
    def _fields(self, call: Call) -> Mapping[str, Any]:
        """Request fields besides image, prompt and model."""

    def _path(self) -> str:
        return "/images/edits"

    def _ask(self, connection: Connection, call: Call) -> HostedAnswer:
        field = "image[]" if len(call.pictures) > 1 else "image"
        fields = {"prompt": call.instruction, "model": self._settings.model, **self._fields(call)}
        written = {**fields, **self._settings.extra}.items()
        form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in written}
        files = [(field, (picture.file_name, picture.data, picture.mime)) for picture in call.pictures]
        reply = connection.send("POST", self._path(), files=files, form=form)
        if reply.status >= 400:
            raise _from_error(reply)
        body, usage = reply.body, _usage(dig(reply.body, "usage"))
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
        return HostedAnswer(
            image=image, usage=usage, effective={name: value for name, value in details.items() if value}
        )


class OpenAIImages(_Images[OpenAIP]):
    """OpenAI's image models over the Images API."""

    Parameters = OpenAIParameters
    name = "openai"
    key_variable = "OPENAI_API_KEY"
    seed = "none"

    def _exact_size(self) -> tuple[int, int] | None:
        size = str(self._settings.extra.get("size") or self._settings.size)
        if size == "auto":
            return None
        width, height = size.split("x")
        return int(width), int(height)

    def _expected_usage(self) -> Usage:
        by_quality = self.facts.image_tokens
        width, height = self._exact_size() or (1024, 1024)
        # What `auto` will choose is not known: the dearest.
        quality = str(self._settings.extra.get("quality") or self._settings.quality)
        tokens = by_quality.get(quality, max(by_quality.values(), default=0))
        return replace(
            super()._expected_usage(),
            input_image=self.facts.portrait_tokens,
            output_image=round(tokens * width * height / 2**20),
        )

    def _fields(self, call: Call) -> Mapping[str, Any]:
        names = {"size", "quality", "input_fidelity", "background"}
        return {**self._settings.model_dump(include=names, exclude_none=True), "output_format": "png"}


class AzureImages(OpenAIImages[AzureParameters]):
    """OpenAI's image models in an Azure resource."""

    Parameters = AzureParameters
    name = "azure"
    key_variable = "AZURE_OPENAI_API_KEY"
    headers = {"api-key": "{key}"}

    def _path(self) -> str:
        version = self._settings.api_version
        if version == "v1":
            return "/openai/v1/images/edits"
        place = "v1" if version == "preview" else f"deployments/{self._settings.model}"
        return f"/openai/{place}/images/edits?api-version={version}"


class ImageServer(_Images[ServerParameters]):
    """A server with OpenAI's Images API, such as vLLM-Omni or SGLang-diffusion, by `base_url`."""

    Parameters = ServerParameters
    name = "openai-server"
    key_required = False

    def _fields(self, call: Call) -> Mapping[str, Any]:
        size = self._settings.model_dump(include={"size"})
        return {**size, "seed": call.seed, "n": 1, "response_format": "b64_json"}


def _from_error(reply: Reply) -> CallDeclined | CallFailed:
    # Other servers may have the error at the top level.
    error: Json = dig(reply.body, "error") or reply.body
    inner: Json = next((entry for name in _INNER if (entry := dig(error, name))), None)
    code, inner_code = str(dig(error, "code") or ""), str(dig(inner, "code") or "")
    marks = {"inner_error.code": inner_code, "error.code": code}
    mark = next((f"{name} = {value}" for name, value in marks.items() if value in _REFUSALS), None)
    if mark:
        results: Json = dig(inner, "content_filter_results") or dig(error, "content_filter_results") or ()
        # The categories that Azure's filter names.
        categories = sorted(name for name in results if dig(results, name, "filtered") is True)
        signal = f"{mark} ({', '.join(categories)})" if categories else mark
        return CallDeclined(str(dig(error, "message") or signal), signal=signal)
    return reply.failure().as_fatal() if code in _FATAL else reply.failure()


def _usage(reported: Json) -> Usage | None:
    if not isinstance(reported, dict):
        return None
    written = count(reported, "output_tokens_details", "text_tokens")
    return Usage(
        input_text=count(reported, "input_tokens_details", "text_tokens"),
        input_image=count(reported, "input_tokens_details", "image_tokens"),
        output_text=written,
        output_image=max(0, count(reported, "output_tokens") - written),
    )
