"""Google's Gemini image models. A refusal has status 200, too: marked in one of two fields, or said in words.

https://ai.google.dev/api/generate-content; on Vertex AI, a Google Cloud project and its credentials instead of a key
(https://cloud.google.com/vertex-ai/generative-ai/docs/start/quickstart). Imagen's `edit_image` is left out: it edits by
masks and references, not by an instruction alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from stillme.core.json_paths import dig
from stillme.core.protocols import Needs
from stillme.core.types import IN_WORDS, Json
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import from_base64
from stillme.editors.hosted.faults import UNKNOWN, CallFailed, Declined, from_connection, from_status, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Reply

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

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
_HOPELESS = re.compile(r"API_KEY_INVALID|API key (not valid|expired)|location is not supported|enable billing")
"""What Google says with status 400 of keys, places and accounts that get no picture at all."""

_UNSPECIFIED = "BLOCKED_REASON_UNSPECIFIED"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOG_IN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"


class GeminiParameters(HostedParameters):
    """A Gemini model that returns pictures."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    aspect_ratio: str | None = None
    """Such as `1:1`; by default the portrait's."""
    image_size: str | None = None
    """`1K`, `2K` or `4K`."""


class VertexParameters(GeminiParameters):
    """A Gemini image model in a Google Cloud project."""

    model: str = catalogue.service("vertex").default
    base_url: str = Field(default="", pattern=r"^(https://.*|http://(127\.0\.0\.1|localhost)\b.*)?$")
    """Empty: the address of the location."""
    project: str = Field(default="", exclude=True)
    """By default that of the credentials."""
    location: str = "global"


class Gemini(Hosted):
    """Google's Gemini image models."""

    Parameters: ClassVar[type[BaseModel]] = GeminiParameters
    service: ClassVar[str] = "gemini"
    key_variable: ClassVar[str] = "GEMINI_API_KEY"
    headers: ClassVar[Mapping[str, str]] = {"x-goog-api-key": "{key}"}
    reserved: ClassVar[frozenset[str]] = frozenset({"contents", "model"})

    def __init__(self, parameters: GeminiParameters) -> None:
        self._gemini = parameters
        super().__init__(parameters)

    def _place(self) -> tuple[str, Mapping[str, str]]:
        """The model's path, and headers that each request needs."""
        return f"/v1/models/{self._gemini.model}", {}

    def _expected_usage(self) -> Usage:
        tokens = self.facts.image_tokens.get(self._gemini.image_size or "1K", 0)
        return replace(super()._expected_usage(), input_image=self.facts.portrait_tokens, output_image=tokens)

    def _ask(self, connection: JsonClient, call: Call) -> Answer:
        place, headers = self._place()
        fields = {**self._fields(call), **self._gemini.extra}
        reply = connection.send("POST", f"{place}:generateContent", body=fields, headers=headers)
        if reply.status >= 400:
            raise _from_error(reply)
        return _answer(reply.require_json(), reply.text)

    def _fields(self, call: Call) -> dict[str, Json]:
        pictures = [{"inlineData": {"mimeType": picture.mime, "data": picture.base64}} for picture in call.pictures]
        asked = {"aspectRatio": self._gemini.aspect_ratio, "imageSize": self._gemini.image_size}
        size = {name: value for name, value in asked.items() if value}
        return {
            "contents": [{"role": "user", "parts": [*pictures, {"text": call.instruction}]}],
            "generationConfig": {
                # With images only, the model could not decline in text.
                "responseModalities": ["TEXT", "IMAGE"],
                "candidateCount": 1,
                "seed": call.seed,
                **({"imageConfig": size} if size else {}),
            },
        }


class Vertex(Gemini):
    """Google's Gemini image models on Vertex AI."""

    Parameters: ClassVar[type[BaseModel]] = VertexParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2", "google.auth"), extra="vertex")
    service: ClassVar[str] = "vertex"
    key_variable: ClassVar[str] = ""
    key_required: ClassVar[bool] = False

    def __init__(self, parameters: VertexParameters) -> None:
        self._vertex = parameters
        self._credentials: Credentials | None = None
        self._project = parameters.project
        self._refreshing = threading.Lock()
        super().__init__(parameters)

    @property
    def provider(self) -> str:
        """The address of the location."""
        return urlsplit(self._address).netloc

    def lacking(self, *, online: bool) -> Iterator[str]:
        """Credentials, as far as this machine knows them."""
        if find_spec("google.auth") is not None:
            try:
                _credentials()
            except CallFailed as failure:
                yield failure.failed.error

    @property
    def _address(self) -> str:
        region = "" if self._vertex.location == "global" else f"{self._vertex.location}-"
        return self._vertex.base_url or f"https://{region}aiplatform.googleapis.com"

    def _connect(self, key: str) -> JsonClient:
        self._credentials, project = _credentials()
        self._project = self._vertex.project or project or ""
        if not self._project:
            raise CallFailed("no Google Cloud project: set `project` in the audit", retryable=True, fatal=True)
        return JsonClient(self._address, {}, timeout=self._vertex.timeout)

    def _place(self) -> tuple[str, Mapping[str, str]]:
        place = f"/v1beta1/projects/{self._project}/locations/{self._vertex.location}"
        return f"{place}/publishers/google/models/{self._vertex.model}", {"Authorization": f"Bearer {self._token()}"}

    def _token(self) -> str:
        """A token that is still good."""
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        try:
            with self._refreshing:
                if not cast("Any", self._credentials).valid:
                    cast("Any", self._credentials).refresh(Request())
        except TransportError as error:
            raise from_connection(error) from error
        except GoogleAuthError as error:
            raise _no_credentials(str(error)) from error
        return self._environment()

    def _environment(self) -> str:
        """The token that is in use: error messages must not show it."""
        return str(getattr(self._credentials, "token", None) or "")


def _credentials() -> tuple[Credentials, str | None]:
    """The credentials that Google's tools find, and the project that they name."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        return cast("Any", google.auth).default(scopes=[_SCOPE])
    except DefaultCredentialsError as error:
        raise _no_credentials(str(error)) from error


def _no_credentials(reason: str) -> CallFailed:
    return CallFailed(f"no usable Google Cloud credentials ({reason}): {_LOG_IN}", retryable=True, fatal=True)


def _answer(body: Json, text: str) -> Answer:
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
    usage = usage if usage.tokens else UNKNOWN
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


def _from_error(reply: Reply) -> CallFailed:
    failure = from_status(reply.status, reply.explanation, reply.headers, body=reply.text)
    return failure.as_fatal() if reply.status == 400 and _HOPELESS.search(reply.text) else failure
