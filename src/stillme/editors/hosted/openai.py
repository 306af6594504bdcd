"""OpenAI's image models, and every server with the same `/v1/images/edits`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import CallFailed, Declined, from_connection, from_status, unexpected_answer
from stillme.editors.hosted.json_client import download
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_KNOWN = catalogue.service("openai")

_REFUSALS = frozenset({"moderation_blocked", "content_policy_violation"})
"""Error codes of a policy block; every other code is a failure."""
_ACCOUNT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Account faults that the status does not show."""


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
    """A self-hosted server. `extra` takes its model's settings: steps, guidance, negative prompt."""

    key_variable: str = Field(default="OPENAI_API_KEY", exclude=True)
    """The environment variable with the server's key, if it needs one."""


class _Images(Hosted["OpenAI"]):
    """The Images API."""

    needs: ClassVar[Needs] = Needs(modules=("openai",), extra="openai")

    def _connect(self, key: str) -> OpenAI:
        from openai import OpenAI

        # The edit stage retries: an SDK that does so silently pays twice and hides rate limits.
        return OpenAI(api_key=key, base_url=self._settings.base_url, timeout=self._settings.timeout, max_retries=0)

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
            raise from_connection(error.__cause__ if isinstance(error.__cause__, Exception) else error) from error
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
        image = download(link, timeout=self._settings.timeout) if link else from_base64(dig(first, "b64_json"))
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

    def _fields(self, call: Call) -> Mapping[str, Any]:
        names = {"size", "quality", "input_fidelity", "background"}
        return {**self._settings.model_dump(include=names, exclude_none=True), "output_format": "png"}


class ImageServer(_Images):
    """A server with OpenAI's Images API, such as vLLM-Omni or SGLang-diffusion, by `base_url`."""

    Parameters: ClassVar[type[BaseModel]] = ServerParameters
    service: ClassVar[str] = "openai-server"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    key_required: ClassVar[bool] = False

    def __init__(self, parameters: ServerParameters) -> None:
        super().__init__(parameters)
        self._key_variable = parameters.key_variable

    def _fields(self, call: Call) -> Mapping[str, Any]:
        size = self._settings.model_dump(include={"size"})
        return {**size, "seed": call.seed, "n": 1, "response_format": "b64_json"}


def _from_api_error(error: APIStatusError) -> Declined | CallFailed:
    # The SDK returns the content of "error"; other servers may have it at the top level.
    code = str(dig(error.body, "code") or dig(error.body, "error", "code") or "")
    message = str(dig(error.body, "message") or dig(error.body, "error", "message") or error.message)
    if code in _REFUSALS:
        return Declined(message, signal=f"error.code = {code}")
    failure = from_status(error.status_code, f"{message} ({code})" if code else message, error.response.headers)
    if code in _ACCOUNT:
        return CallFailed(failure.failed.error, retryable=True, account=True)
    return failure


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
