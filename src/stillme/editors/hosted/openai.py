"""OpenAI's image models, and every server with the same `/v1/images/edits`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import (
    CallFailed,
    Declined,
    JobGone,
    fatal,
    from_connection,
    from_status,
    unexpected_answer,
)
from stillme.editors.hosted.json_client import download
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_KNOWN = catalogue.service("openai")

_REFUSALS = frozenset(
    {"moderation_blocked", "content_policy_violation", "content_filter", "ResponsibleAIPolicyViolation"}
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


class ServerParameters(ImagesParameters):
    """A self-hosted server. `extra` takes its model's settings: steps, guidance, negative prompt.

    No key is sent unless `key_variable` names one.
    """


class _Images(Hosted["OpenAI"]):
    """The Images API."""

    needs: ClassVar[Needs] = Needs(modules=("openai",), extra="openai")

    def _connect(self, key: str) -> OpenAI:
        from openai import OpenAI

        from stillme.editors.hosted.http_client import open_client

        timeout = self._settings.timeout
        return OpenAI(
            api_key=key,
            base_url=self._settings.base_url,
            timeout=timeout,
            # The edit stage retries: an SDK that does so silently pays twice and hides rate limits.
            max_retries=0,
            # The SDK's own client would wait for ever for an answer that trickles in.
            http_client=open_client(timeout),
        )

    @abstractmethod
    def _fields(self, call: Call) -> Mapping[str, Any]:
        """Request fields besides image, prompt and model."""

    def _ask(self, connection: OpenAI, call: Call) -> Answer:
        from openai import APIConnectionError, APIStatusError

        files = [(picture.file_name, picture.data, picture.mime) for picture in call.pictures]
        try:
            raw = connection.images.with_raw_response.edit(
                image=files if len(files) > 1 else files[0],
                prompt=call.instruction,
                model=self._settings.model,
                extra_body={**self._fields(call), **self._settings.extra},
            )
        except APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, CallFailed):
                raise cause from None
            raise from_connection(cause if isinstance(cause, Exception) else error) from error
        except APIStatusError as error:
            raise _from_api_error(error) from error
        return self._answer(raw.text, raw.request_id)

    def _answer(self, text: str, request_id: str | None) -> Answer:
        try:
            body: Json = json.loads(text)
        except ValueError:
            raise unexpected_answer("no JSON", text) from None
        usage = _usage(dig(body, "usage"))
        first: Json = dig(body, "data", 0)
        if first is None:
            raise unexpected_answer("no picture in the answer", text, usage=usage)
        # Self-hosted servers may return a link.
        link = dig(first, "url")
        try:
            image = download(link, timeout=self._settings.timeout) if link else from_base64(dig(first, "b64_json"))
        except CallFailed as failure:
            raise JobGone(failure.failed.error, usage=replace(usage, images=1)) from None
        details = {
            "request_id": request_id,
            "revised_prompt": dig(first, "revised_prompt"),
            **{name: dig(body, name) for name in ("model", "quality", "background", "output_format")},
        }
        return Answer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})


class OpenAIImages(_Images):
    """OpenAI's image models over the Images API."""

    Parameters: ClassVar[type[BaseModel]] = OpenAIParameters
    needs: ClassVar[Needs] = Needs(modules=("openai",), extra="openai", variables=("OPENAI_API_KEY",))
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


class ImageServer(_Images):
    """A server with OpenAI's Images API, such as vLLM-Omni or SGLang-diffusion, by `base_url`."""

    Parameters: ClassVar[type[BaseModel]] = ServerParameters
    service: ClassVar[str] = "openai-server"
    key_variable: ClassVar[str] = ""
    key_required: ClassVar[bool] = False

    def _fields(self, call: Call) -> Mapping[str, Any]:
        size = self._settings.model_dump(include={"size"})
        return {**size, "seed": call.seed, "n": 1, "response_format": "b64_json"}


def _from_api_error(error: APIStatusError) -> Declined | CallFailed:
    # The SDK returns the content of "error"; other servers may have it at the top level.
    body: Json = dig(error.body, "error") or error.body
    code, inner = str(dig(body, "code") or ""), str(dig(body, "innererror", "code") or "")
    message = str(dig(body, "message") or error.message)
    if code in _REFUSALS:
        return Declined(message, signal=f"error.code = {code}")
    if inner in _REFUSALS:
        return Declined(message, signal=f"error.innererror.code = {inner}")
    failure = from_status(error.status_code, f"{message} ({code})" if code else message, error.response.headers)
    return fatal(failure) if code in _FATAL else failure


def _usage(reported: Json) -> Usage:
    def count(*path: str) -> int:
        tokens = dig(reported, *path)
        return tokens if isinstance(tokens, int) else 0

    written = count("output_tokens_details", "text_tokens")
    return Usage(
        input_text=count("input_tokens_details", "text_tokens"),
        input_image=count("input_tokens_details", "image_tokens"),
        output_text=written,
        output_image=max(0, count("output_tokens") - written),
    )
