"""Google's Gemini image models. A refusal has status 200, too: marked in one of two fields, or given in words.

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
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import Field

from stillme.core.http.replies import UNKNOWN, CallDeclined, CallFailed, Usage, unexpected_answer
from stillme.core.json_paths import count, dig, find
from stillme.core.protocols import Needs
from stillme.core.types import IN_WORDS, Json
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Call, Hosted, HostedAnswer, HostedParameters, from_base64

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

    from stillme.core.http.client import Connection

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


G = TypeVar("G", bound=GeminiParameters)


class Gemini(Hosted[G]):
    """Google's Gemini image models."""

    Parameters = GeminiParameters
    name = "gemini"
    key_variable = "GEMINI_API_KEY"
    headers = {"x-goog-api-key": "{key}"}
    reserved = frozenset({"contents", "model"})

    def _place(self) -> tuple[str, Mapping[str, str]]:
        """The model's path, and headers that each request needs."""
        return f"/v1/models/{self._settings.model}", {}

    def _expected_usage(self) -> Usage:
        tokens = self.facts.image_tokens.get(self._settings.image_size or "1K", 0)
        return replace(super()._expected_usage(), input_image=self.facts.portrait_tokens, output_image=tokens)

    def _ask(self, connection: Connection, call: Call) -> HostedAnswer:
        place, headers = self._place()
        fields = {**self._fields(call), **self._settings.extra}
        reply = connection.send("POST", f"{place}:generateContent", body=fields, headers=headers)
        if reply.status == 400 and _HOPELESS.search(reply.text):
            raise reply.failure().as_fatal()
        return _answer(reply.require_json(), reply.text)

    def _fields(self, call: Call) -> dict[str, Json]:
        pictures = [{"inlineData": {"mimeType": picture.mime, "data": picture.base64}} for picture in call.pictures]
        asked = {"aspectRatio": self._settings.aspect_ratio, "imageSize": self._settings.image_size}
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


class Vertex(Gemini[VertexParameters]):
    """Google's Gemini image models on Vertex AI."""

    Parameters = VertexParameters
    needs = Needs(modules=("httpx2", "google.auth"), extra="vertex")
    name = "vertex"
    key_required = False

    def __init__(self, parameters: VertexParameters) -> None:
        self._credentials: Credentials | None = None
        self._refreshing = threading.Lock()
        super().__init__(parameters)
        region = "" if parameters.location == "global" else f"{parameters.location}-"
        self.server = self._server_at(parameters.base_url or f"https://{region}aiplatform.googleapis.com")

    def lacking(self, *, online: bool) -> Iterator[str]:
        """Credentials, as far as this machine knows them."""
        if find_spec("google.auth") is not None:
            try:
                _credentials()
            except CallFailed as failure:
                yield failure.failed.error

    def _place(self) -> tuple[str, Mapping[str, str]]:
        with self._refreshing:
            if self._credentials is None:
                self._credentials, self._project = _credentials()
            project = self._settings.project or self._project
            if not project:
                raise CallFailed("no Google Cloud project: set `project` in the audit", fatal=True)
            self.server.token = _token(self._credentials)
        place = f"/v1beta1/projects/{project}/locations/{self._settings.location}"
        headers = {"Authorization": f"Bearer {self.server.token}"}
        return f"{place}/publishers/google/models/{self._settings.model}", headers


def _token(credentials: Credentials) -> str:
    """A token that is still good."""
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.auth.transport.requests import Request

    try:
        if not cast("Any", credentials).valid:
            cast("Any", credentials).refresh(Request())
    except TransportError as error:
        raise CallFailed(f"no complete answer ({type(error).__name__}: {error})") from error
    except GoogleAuthError as error:
        raise _no_credentials(str(error)) from error
    return str(getattr(credentials, "token", None) or "")


def _credentials() -> tuple[Credentials, str | None]:
    """The credentials that Google's tools find, and the project that they name."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        return cast("Any", google.auth).default(scopes=[_SCOPE])
    except DefaultCredentialsError as error:
        raise _no_credentials(str(error)) from error


def _no_credentials(reason: str) -> CallFailed:
    return CallFailed(f"no usable Google Cloud credentials ({reason}): {_LOG_IN}", fatal=True)


def _answer(body: Json, text: str) -> HostedAnswer:
    usage = _usage(dig(body, "usageMetadata"))
    if (block := dig(body, "promptFeedback", "blockReason")) and block != _UNSPECIFIED:
        signal = f"promptFeedback.blockReason = {block}"
        raise CallDeclined(str(dig(body, "promptFeedback", "blockReasonMessage") or signal), signal=signal, usage=usage)
    candidate: Json = dig(body, "candidates", 0)
    parts = list(find(candidate, "content.parts.*"))
    words = [str(dig(part, "text")) for part in parts if dig(part, "text") and not dig(part, "thought")]
    image, prose = _image(parts), " ".join(words).strip()
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
    return HostedAnswer(image=image, usage=usage, effective={name: value for name, value in details.items() if value})


def _no_image(candidate: Json, prose: str, text: str, usage: Usage) -> CallDeclined | CallFailed:
    """Why there is no picture: a policy, a clear no in words, other words, or something else."""
    reason, message = dig(candidate, "finishReason"), dig(candidate, "finishMessage")
    signal = f"finishReason = {reason}"
    if reason in _REFUSALS:
        return CallDeclined(str(message or prose or signal), signal=signal, usage=usage)
    if reason in ("STOP", None) and prose:
        if DECLINES.search(prose):
            return CallDeclined(prose, signal="a no in words instead of a picture", usage=usage)
        return CallFailed(f"answered in words: {prose}", status=IN_WORDS, usage=usage)
    usage = usage if usage.tokens else UNKNOWN
    return unexpected_answer(f"no picture, {signal}", message or prose or text, usage=usage)


def _image(parts: Sequence[Json]) -> bytes | None:
    """The last image; earlier ones, and those marked as thoughts, are drafts."""
    pictures = [dig(part, "inlineData") for part in parts if not dig(part, "thought")]
    data = [dig(picture, "data") for picture in pictures if str(dig(picture, "mimeType")).startswith("image/")]
    return from_base64(data[-1]) if data else None


def _usage(metadata: Json) -> Usage:
    image_in, image_out = (
        sum(count(entry, "tokenCount") for entry in find(metadata, path) if dig(entry, "modality") == "IMAGE")
        for path in ("promptTokensDetails.*", "candidatesTokensDetails.*")
    )
    written = max(0, count(metadata, "candidatesTokenCount") - image_out)
    return Usage(
        input_text=max(0, count(metadata, "promptTokenCount") - image_in),
        input_image=image_in,
        output_text=written + count(metadata, "thoughtsTokenCount"),
        output_image=image_out,
    )
