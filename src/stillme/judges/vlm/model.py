"""A model that can be asked from any thread; its images upright, downscaled, and encoded once."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from PIL import Image

from stillme.core import images
from stillme.core.errors import StillmeError, UnreadableImage
from stillme.core.http.client import on_loop
from stillme.core.images.sending import EncodedImage
from stillme.core.throttle import RateLimiter, TooEarly
from stillme.core.types import UNPRICED, Failed, ImageFile, Json
from stillme.judges.vlm.connection import ARRIVED, ModelConnection, connect, dry_run
from stillme.judges.vlm.replies import (
    Malformed,
    ModelAnswered,
    ModelDeclined,
    Question,
    Reply,
    error_text,
    fault_of,
    read,
)
from stillme.judges.vlm.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

_CACHE_BYTES = 110 * 2**20
"""Of encoded images. Each has its base64 beside it, which makes 256 MB."""
_ENCODERS = threading.BoundedSemaphore(os.cpu_count() or 1)
"""More encoders than cores would only starve the thread that talks to the provider."""


class _Key(NamedTuple):
    sha256: str
    side: int
    quality: int


class ImageEncoder:
    """Encodes each image once and caches the most recent ones, by the hash of the file."""

    def __init__(self, *, cache_bytes: int = _CACHE_BYTES) -> None:
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[_Key, Future[EncodedImage]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.misses = 0
        """How many images were encoded rather than taken from the cache."""

    def encode(self, image: ImageFile, *, side: int, quality: int) -> EncodedImage:
        """The image as it is sent; raises `UnreadableImage` if the file is none.

        Many prompts of one portrait come at the same moment, so the second caller waits for the first one's result.
        """
        key, mine = _Key(image.sha256, side, quality), Future[EncodedImage]()
        with self._lock:
            cached = self._cache.setdefault(key, mine)
            self._cache.move_to_end(key)
        if cached is not mine:
            return cached.result()
        try:
            encoded = _encoded(image, side, quality)
        except BaseException as error:
            with self._lock:
                self._cache.pop(key, None)
            mine.set_exception(error)
            raise
        mine.set_result(encoded)
        self._make_room(len(encoded.data))
        return encoded

    def _make_room(self, added: int) -> None:
        with self._lock:
            self.misses += 1
            self._bytes += added
            for key in list(self._cache)[:-1]:
                if self._bytes <= self._cache_bytes:
                    break
                if self._cache[key].done():
                    self._bytes -= len(self._cache.pop(key).result().data)


SHARED = ImageEncoder()
"""Of all models of this process: two judges look at the same portraits."""


def _encoded(image: ImageFile, side: int, quality: int) -> EncodedImage:
    with _ENCODERS:
        picture = images.read_picture(image.path)
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        # Comments and colour profiles are not part of what is judged.
        picture.info.clear()
        buffer = io.BytesIO()
        # No chroma subsampling: it would alter skin tones.
        picture.save(buffer, "JPEG", quality=quality, subsampling=0)
    return EncodedImage(data=buffer.getvalue(), mime="image/jpeg", size=picture.size)


@dataclass(frozen=True, slots=True)
class PreparedQuestion:
    """A question with its images encoded."""

    question: Question
    parts: tuple[str | EncodedImage, ...]

    @property
    def sizes(self) -> list[list[int]]:
        """Width and height of each image as sent."""
        return [list(part.size) for part in self.parts if isinstance(part, EncodedImage)]


class Model:
    """One model of one provider. Cheap to construct: it connects with the first question."""

    def __init__(self, settings: ModelSettings, encoder: ImageEncoder = SHARED) -> None:
        self.settings = settings
        self.encoder = encoder
        self._limiter = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)
        self._lock = threading.Lock()
        self._connection: ModelConnection | None = None

    def problems(self) -> list[str]:
        """Settings that this model would ignore, each as a sentence. Sends nothing."""
        return dry_run(self.settings).problems

    def ask(self, question: Question) -> Reply:
        """Ask, and once more if the answer is malformed. Failures are values, not exceptions."""
        first = self._ask_once(question)
        return _with_first_attempt(self._ask_once(question), first) if isinstance(first, Malformed) else first

    def prepare(self, question: Question) -> PreparedQuestion:
        """Encode the question's images, or take them from the cache."""
        parts = (self._encoded(part) if isinstance(part, ImageFile) else part for part in question.parts)
        return PreparedQuestion(question, tuple(parts))

    def close(self) -> None:
        """Close the connection. The next question connects again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            on_loop(connection.close())

    def connection(self) -> ModelConnection:
        """The open connection; raises `StillmeError` for a missing key or a setting that would be ignored."""
        with self._lock:
            if self._connection is None:
                self._connection = connect(self.settings, self.settings.key)
            return self._connection

    def _reply(self, response: ModelResponse, prepared: PreparedQuestion, connection: ModelConnection) -> Reply:
        """Read a response, with its cost and the settings that really applied."""
        cost = _dollars(self.settings, response)
        effective = _effective(response, prepared, connection)
        if cost is None:
            effective["cost"] = "unknown"
        reply = read(response, prepared.question.answer, effective, cost or 0.0)
        return replace(reply, error=f"{self.settings.model}: {reply.error}") if isinstance(reply, Failed) else reply

    def _unread(self, body: Json, error: Exception, prepared: PreparedQuestion, connection: ModelConnection) -> Reply:
        """An answer that the official client cannot read: what the envelope says of it, with its cost."""
        text, asked, answered = connection.envelope.read(body)
        cost = self.settings.dollars(asked, answered) if asked and answered else None
        effective: dict[str, Json] = {
            "server": _server(self.settings),
            "sent": dict(connection.sent),
            "images": prepared.sizes,
            "tokens": {"input": asked, "output": answered},
            **(UNPRICED if cost is None else {}),
        }
        problem = f"the answer cannot be read ({error_text(error, self.settings)})"
        if not text:
            return Failed(error=problem, retryable=True, effective=effective, cost=cost or 0.0)
        return Malformed(text=text, problem=problem, effective=effective, cost=cost or 0.0)

    def _encoded(self, image: ImageFile) -> EncodedImage:
        return self.encoder.encode(image, side=self.settings.image_side, quality=self.settings.image_quality)

    def _ask_once(self, question: Question) -> Reply:
        try:
            connection = self.connection()
            prepared = self.prepare(question)
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=False)
        except StillmeError as error:
            # A missing key, or a setting that would be ignored: the same for every question.
            return Failed(error=str(error), retryable=True, fatal=True)
        return on_loop(self._attempt(connection, prepared))

    async def _attempt(self, connection: ModelConnection, prepared: PreparedQuestion) -> Reply:
        turn = await self._limiter.wait_async()
        if isinstance(turn, TooEarly):
            return turn.failed(self.settings.model)
        arrived: list[Json] = []
        ARRIVED.set(arrived)
        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await connection.send(prepared.question, prepared.parts)
        except Exception as error:
            if arrived and arrived[-1] is not None:
                return self._unread(arrived[-1], error, prepared, connection)
            fault = fault_of(error, self.settings)
            # Something was answered, and perhaps charged, that is no answer.
            return replace(fault, effective=UNPRICED) if arrived and isinstance(fault, Failed) else fault
        self._limiter.settle(turn, response.usage.total_tokens)
        return self._reply(response, prepared, connection)


def _with_first_attempt(second: Reply, first: Malformed) -> Reply:
    """The second attempt's reply, with the first one's text and cost."""
    cost = first.cost + second.cost
    match second:
        case Failed():
            return replace(second, error=f"{second.error} (before that: {first.problem})", cost=cost)
        case ModelAnswered() | ModelDeclined() | Malformed():
            # A sum with an unknown part is unknown.
            unknown = {"cost": "unknown"} if "cost" in first.effective else {}
            effective = {**second.effective, **unknown, "asked": 2}
            return replace(second, earlier=first.text, effective=effective, cost=cost)


def _effective(response: ModelResponse, prepared: PreparedQuestion, connection: ModelConnection) -> dict[str, Json]:
    details: dict[str, Any] = response.provider_details or {}
    used = response.usage
    effective: dict[str, Json] = {
        "model": response.model_name,
        "server": _server(connection.settings),
        "sent": dict(connection.sent),
        "images": prepared.sizes,
        "tokens": {"input": used.input_tokens, "output": used.output_tokens, **_reasoning_tokens(used.details)},
        "finish": str(details.get("finish_reason") or response.finish_reason or ""),
    }
    if tier := details.get("service_tier"):
        effective["service_tier"] = tier
    if response.provider_response_id:
        effective["response"] = response.provider_response_id
    return effective


def _dollars(settings: ModelSettings, response: ModelResponse) -> float | None:
    """What the call cost; None if unknown."""
    used = response.usage
    if not used.input_tokens or (response.text and not used.output_tokens):
        # Nothing is asked or answered without tokens, so the server did not count them.
        return None
    if settings.price is not None or settings.provider == "openai-chat":
        return settings.dollars(used.input_tokens, used.output_tokens)
    try:
        return float(response.cost().total_price)  # knows also cached and reasoning tokens
    except (LookupError, ValueError, AssertionError):
        return None


def _server(settings: ModelSettings) -> str:
    """Host and port, without a password that an address may contain."""
    return urlsplit(settings.address).netloc.rpartition("@")[2]


def _reasoning_tokens(details: dict[str, int]) -> dict[str, int]:
    names = ("reasoning_tokens", "thoughts_tokens", "thinking_tokens")
    counts = [details[name] for name in names if details.get(name)]
    return {"thoughts": counts[0]} if counts else {}
