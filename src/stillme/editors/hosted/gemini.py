"""Google's Gemini image models. A refusal has status 200, too: marked in one of two fields, or as text only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import CallFailed, Declined, from_connection, from_status, unexpected_answer
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError

_KNOWN = catalogue.service("gemini")

_REFUSALS = frozenset({"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "PROHIBITED_CONTENT", "SAFETY", "BLOCKLIST", "SPII"})
"""Finish reasons that name a policy; NO_IMAGE, IMAGE_OTHER, OTHER and recitation do not."""

_UNSPECIFIED = "BLOCKED_REASON_UNSPECIFIED"


class GeminiParameters(HostedParameters):
    """A Gemini model that returns pictures."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    aspect_ratio: str | None = None
    """Such as `1:1`; by default the portrait's."""
    image_size: str | None = None
    """`1K`, `2K` or `4K`."""


class Gemini(Hosted["Client"]):
    """Google's Gemini image models."""

    Parameters: ClassVar[type[BaseModel]] = GeminiParameters
    needs: ClassVar[Needs] = Needs(modules=("google.genai",), extra="gemini", variables=("GEMINI_API_KEY",))
    service: ClassVar[str] = "gemini"
    key_variable: ClassVar[str] = "GEMINI_API_KEY"
    reserved: ClassVar[frozenset[str]] = frozenset({"contents", "model"})

    def __init__(self, parameters: GeminiParameters) -> None:
        self._gemini = parameters
        super().__init__(parameters)

    def _connect(self, key: str) -> Client:
        from google.genai import Client, types

        return Client(
            api_key=key,
            vertexai=False,
            http_options=types.HttpOptions(
                base_url=self._gemini.base_url,
                timeout=int(self._gemini.timeout * 1000),
                # The edit stage retries; the SDK must not.
                retry_options=types.HttpRetryOptions(attempts=1),
                extra_body=self._gemini.extra or None,
            ),
        )

    def _ask(self, connection: Client, call: Call) -> Answer:
        import httpx2
        from google.genai import errors, types

        parts: list[Any] = [
            *(types.Part.from_bytes(data=picture.data, mime_type=picture.mime) for picture in call.pictures),
            types.Part.from_text(text=call.instruction),
        ]
        try:
            response = connection.models.generate_content(
                model=self._gemini.model,
                contents=types.Content(role="user", parts=parts),
                config=types.GenerateContentConfig(
                    # With images only, the model could not decline in text.
                    response_modalities=["TEXT", "IMAGE"],
                    candidate_count=1,
                    seed=call.seed,
                    image_config=types.ImageConfig(
                        aspect_ratio=self._gemini.aspect_ratio, image_size=self._gemini.image_size
                    ),
                    # The SDK's own parsing drops `finishMessage`, which explains a refusal.
                    should_return_http_response=True,
                ),
            )
        except errors.APIError as error:
            raise _from_api_error(error) from error
        except httpx2.HTTPError as error:
            raise from_connection(error) from error
        raw = response.sdk_http_response
        return _answer(raw.body or "" if raw else "")


def _answer(text: str) -> Answer:
    try:
        body: Json = json.loads(text)
    except ValueError:
        raise unexpected_answer("no JSON", text) from None
    usage = _usage(dig(body, "usageMetadata"))
    if (block := dig(body, "promptFeedback", "blockReason")) and block != _UNSPECIFIED:
        signal = f"promptFeedback.blockReason = {block}"
        raise Declined(str(dig(body, "promptFeedback", "blockReasonMessage") or signal), signal=signal, usage=usage)
    candidate: Json = dig(body, "candidates", 0)
    parts = _listed(dig(candidate, "content", "parts"))
    image, prose = _image(parts), _text(parts)
    if image is None:
        raise _no_image(candidate, prose, text, usage)
    details = {
        "model_version": dig(body, "modelVersion"),
        "finish_reason": dig(candidate, "finishReason"),
        "text": prose,
    }
    return Answer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})


def _no_image(candidate: Json, prose: str, text: str, usage: Usage) -> Declined | CallFailed:
    """Why there is no picture: a policy, a refusal in text, or something else."""
    reason, message = dig(candidate, "finishReason"), dig(candidate, "finishMessage")
    signal = f"finishReason = {reason}"
    if reason in _REFUSALS:
        return Declined(str(message or prose or signal), signal=signal, usage=usage)
    if reason in ("STOP", None) and prose:
        return Declined(prose, signal="text instead of a picture", usage=usage)
    return unexpected_answer(f"no picture, {signal}", message or prose or text, usage=usage)


def _image(parts: Sequence[Json]) -> bytes | None:
    """The last image; earlier ones, and those marked as thoughts, are drafts."""
    candidates = [
        dig(part, "inlineData", "data")
        for part in parts
        if not dig(part, "thought") and str(dig(part, "inlineData", "mimeType")).startswith("image/")
    ]
    return from_base64(candidates[-1]) if candidates else None


def _text(parts: Sequence[Json]) -> str:
    return " ".join(str(dig(part, "text")) for part in parts if dig(part, "text") and not dig(part, "thought")).strip()


def _usage(metadata: Json) -> Usage:
    image_in = _image_tokens(dig(metadata, "promptTokensDetails"))
    image_out = _image_tokens(dig(metadata, "candidatesTokensDetails"))
    written = max(0, _count(dig(metadata, "candidatesTokenCount")) - image_out)
    return Usage(
        input_text=max(0, _count(dig(metadata, "promptTokenCount")) - image_in),
        input_image=image_in,
        output_text=written + _count(dig(metadata, "thoughtsTokenCount")),
        output_image=image_out,
    )


def _image_tokens(details: Json) -> int:
    entries = _listed(details)
    return sum(_count(dig(entry, "tokenCount")) for entry in entries if dig(entry, "modality") == "IMAGE")


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _listed(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def _from_api_error(error: APIError) -> CallFailed:
    untyped = cast("Any", error)
    headers: Mapping[str, str] = getattr(untyped.response, "headers", None) or {}
    return from_status(error.code or 0, error.message or str(error), headers, wait=_retry_delay(untyped.details))


def _retry_delay(details: Json) -> float | None:
    """Google gives the delay in the body, as `{"@type": …RetryInfo, "retryDelay": "34s"}`."""
    entries = dig(details, "error", "details") or ()
    delays = (re.fullmatch(r"([\d.]+)s", str(dig(entry, "retryDelay"))) for entry in entries)
    return next((float(delay[1]) for delay in delays if delay), None)
