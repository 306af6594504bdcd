"""OpenAI's image models, and every server that speaks the same `/v1/images/edits`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.faults import Broken, Declined, dig, of_answer, of_connection, of_status
from stillme.editors.hosted.pictures import from_base64
from stillme.editors.hosted.wire import download
from stillme.protocols import Needs
from stillme.types import Json

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_KNOWN = catalogue.service("openai")

_REFUSALS = frozenset({"moderation_blocked", "content_policy_violation"})
"""Error codes of a policy block; every other code is a mistake of the caller or of the moment."""
_ACCOUNT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes that come with a status of their own choice, and that only the user can end."""


class ImagesParameters(HostedParameters):
    """What `/v1/images/edits` takes on every server."""

    size: str = Field(default="1024x1024", pattern=r"^(auto|\d+x\d+)$")


class OpenAIParameters(ImagesParameters):
    """What OpenAI's own models take."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    quality: str = "auto"
    input_fidelity: str | None = None
    background: str | None = None


class ServerParameters(ImagesParameters):
    """A server of one's own. `extra` takes what its model takes: steps, guidance, negative prompt."""

    key_variable: str = Field(default="OPENAI_API_KEY", exclude=True)
    """The environment variable with the server's key, if it wants one."""


class _Images(Hosted["OpenAI"]):
    """The protocol itself."""

    needs: ClassVar[Needs] = Needs(modules=("openai",), extra="openai")

    def _connect(self, key: str) -> OpenAI:
        from openai import OpenAI

        # One retry policy, ours: an SDK that retries in silence pays twice and hides rate limits.
        return OpenAI(api_key=key, base_url=self._settings.base_url, timeout=self._settings.timeout, max_retries=0)

    @abstractmethod
    def _fields(self, call: Call) -> Mapping[str, Any]:
        """What goes along with picture, prompt and model."""

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
            raise of_connection(error.__cause__ if isinstance(error.__cause__, Exception) else error) from error
        except APIStatusError as error:
            raise _said_no(error) from error
        return self._answer(raw.text, raw.request_id)

    def _answer(self, text: str, request_id: str | None) -> Answer:
        try:
            body: Json = json.loads(text)
        except ValueError:
            raise of_answer("no JSON", text) from None
        usage = _usage(dig(body, "usage"))
        first: Json = dig(body, "data", 0)
        if first is None:
            raise of_answer("no picture in the answer", text, usage=usage)
        # Self-hosted servers may answer with a link.
        link = dig(first, "url")
        image = download(link, timeout=self._settings.timeout) if link else from_base64(dig(first, "b64_json"))
        told = {
            "request_id": request_id,
            "revised_prompt": dig(first, "revised_prompt"),
            **{name: dig(body, name) for name in ("model", "quality", "background", "output_format")},
        }
        return Answer(image=image, usage=usage, effective={name: value for name, value in told.items() if value})


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
    """A server that speaks OpenAI's Images API: vLLM-Omni, SGLang-diffusion and others, by `base_url`."""

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


def _said_no(error: APIStatusError) -> Declined | Broken:
    # The SDK hands over what stands under "error"; other servers may put it at the top.
    code = str(dig(error.body, "code") or dig(error.body, "error", "code") or "")
    words = str(dig(error.body, "message") or dig(error.body, "error", "message") or error.message)
    if code in _REFUSALS:
        return Declined(words, signal=f"error.code = {code}")
    broken = of_status(error.status_code, f"{words} ({code})" if code else words, error.response.headers)
    if code in _ACCOUNT:
        return Broken(broken.failed.error, retryable=True, account=True)
    return broken


def _usage(told: Json) -> Usage:
    def count(*path: str) -> int:
        found = dig(told, *path)
        return found if isinstance(found, int) else 0

    written = count("output_tokens_details", "text_tokens")
    return Usage(
        input_text=count("input_tokens_details", "text_tokens"),
        input_image=count("input_tokens_details", "image_tokens"),
        output_text=written,
        output_image=max(0, count("output_tokens") - written),
    )
