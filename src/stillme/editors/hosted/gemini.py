"""Google's Gemini image models. A refusal has status 200, too: marked in one of two fields, or said in words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import CallFailed, Declined, fatal, from_connection, from_status, unexpected_answer
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import IN_WORDS, Json

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import HttpOptions

_KNOWN = catalogue.service("gemini")

_REFUSALS = frozenset({"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "PROHIBITED_CONTENT", "SAFETY", "BLOCKLIST", "SPII"})
"""Finish reasons that name a policy; NO_IMAGE, IMAGE_OTHER, OTHER and recitation do not."""

DECLINES = re.compile(
    r"\b(can ?not|can['’]t|won['’]t|unable to|not able to|not allowed to|decline to)\s+"
    r"(directly |currently |fully )?(help|assist|edit|alter|modify|change|create|generate|make|produce|transform|"
    r"fulfil|complete|comply|process|do (that|this)|perform|depict)"
    r"|\b(against|violates?|violating|goes against|due to) (my|our|the|google['’]s)?\s*(\w+ ){0,3}(polic|guideline)",
    re.IGNORECASE,
)
"""A clear no in words. Anything else without a picture, such as a question back, is no refusal."""
_FATAL = {
    "400": re.compile(r"API_KEY_INVALID|API key (not valid|expired)|location is not supported|enable billing"),
    "429": re.compile(r"limit: 0\b"),
}
"""What Google says, by status, of keys, places and accounts that get no picture at all."""

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
        self._http: httpx2.Client | None = None
        super().__init__(parameters)

    def _connect(self, key: str) -> Client:
        from google.genai import Client

        return Client(api_key=key, vertexai=False, http_options=self._http_options(self._gemini.base_url))

    def _http_options(self, base_url: str | None) -> HttpOptions:
        from google.genai.types import HttpOptions, HttpRetryOptions

        from stillme.editors.hosted.http_client import open_client

        # The SDK's own client would wait for ever for an answer that trickles in; this one is ours to close.
        self._http = open_client(self._gemini.timeout)
        return HttpOptions(
            base_url=base_url,
            timeout=int(self._gemini.timeout * 1000),
            # The edit stage retries; the SDK must not.
            retry_options=HttpRetryOptions(attempts=1),
            extra_body=self._gemini.extra or None,
            httpx_client=self._http,
        )

    def close(self) -> None:
        """Close the connection. The next edit opens it again."""
        super().close()
        if self._http:
            self._http.close()

    def _expected_usage(self) -> Usage:
        tokens = self.facts.image_tokens.get(self._gemini.image_size or "1K", 0)
        return replace(super()._expected_usage(), input_image=self.facts.portrait_tokens, output_image=tokens)

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
    if not usage.output_image:
        # Without details, all tokens of the answer are the picture's: the dearer ones.
        usage = replace(usage, output_image=usage.output_text, output_text=0)
    return Answer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})


def _no_image(candidate: Json, prose: str, text: str, usage: Usage) -> Declined | CallFailed:
    """Why there is no picture: a policy, a clear no in words, other words, or something else."""
    reason, message = dig(candidate, "finishReason"), dig(candidate, "finishMessage")
    signal = f"finishReason = {reason}"
    if reason in _REFUSALS:
        return Declined(str(message or prose or signal), signal=signal, usage=usage)
    if reason in ("STOP", None) and prose:
        if DECLINES.search(prose):
            return Declined(prose, signal="a no in words instead of a picture", usage=usage)
        return CallFailed(f"answered in words: {prose}", retryable=True, status=IN_WORDS, usage=usage)
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
    failure = from_status(error.code or 0, error.message or str(error), headers, wait=_retry_delay(untyped.details))
    told = f"{error.message} {json.dumps(untyped.details, default=str)}"
    hopeless = _FATAL.get(failure.failed.status)
    return fatal(failure) if hopeless and hopeless.search(told) else failure


def _retry_delay(details: Json) -> float | None:
    """Google gives the delay in the body, as `{"@type": …RetryInfo, "retryDelay": "34s"}`."""
    entries = dig(details, "error", "details") or ()
    delays = (re.fullmatch(r"([\d.]+)s", str(dig(entry, "retryDelay"))) for entry in entries)
    return next((float(delay[1]) for delay in delays if delay), None)
