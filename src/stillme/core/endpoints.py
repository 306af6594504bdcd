"""A web address that answers JSON to JSON: fill in a template, send it, and say what the answer means."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field

from stillme.core import images
from stillme.core.addresses import is_loopback, key_in, key_problem, problems_of
from stillme.core.http.replies import Reply, Unanswered, failure_of
from stillme.core.json_paths import Mark
from stillme.core.placeholders import fill, fill_json, names_in, unknown_names
from stillme.core.protocols import Parameters
from stillme.core.redaction import redacted, shortened
from stillme.core.throttle import RateLimiter, TooEarly
from stillme.core.types import Failed, Json

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_VARIABLE = "env:"
_SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "x-auth-token"})


class EndpointParameters(Parameters):
    """Where to ask, with which words, and what a refusal looks like. How calls are made is not part of the key."""

    url: str = Field(pattern=r"^https?://")
    method: Literal["POST", "PUT"] = "POST"
    template: dict[str, Json] = Field(min_length=1)
    """The JSON that is sent, with placeholders in its texts."""
    headers: dict[str, str] = {}
    """Further headers. `{env:NAME}` is the environment variable NAME, such as a key; its value is never stored."""
    revision: str = ""
    """Which checkpoint is behind the address; change it when another one is, and everything is asked again."""
    refusal: str = ""
    """Path of the field in the answer that marks a refusal, such as `error.code`; the answer may have any status."""
    refusal_values: tuple[str, ...] = ()
    """The values that mark one; without any, every value but null, false, zero and an empty one."""
    refusal_message: str = ""
    """Path of the words that are kept with a refusal; by default the marking field itself."""
    insecure_http: bool = Field(default=False, exclude=True)
    """Whether `{env:…}` may be sent over plain http to another machine."""
    price: float | None = Field(default=None, ge=0, exclude=True)
    """US dollars of one answered call; by default 0 on this machine, elsewhere unknown."""
    requests_per_minute: float | None = Field(default=None, gt=0, exclude=True)
    concurrency: int = Field(default=4, ge=1, le=256, exclude=True)
    """Calls at once."""
    timeout: float = Field(default=300.0, gt=0, exclude=True)
    """Seconds for one whole answer."""

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What marks a refusal."""
        mark = Mark(path=self.refusal, values=self.refusal_values, words=self.refusal_message, pictures=1)
        return (mark,) if self.refusal else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """The server declined."""

    message: str
    charged: bool


class Address:
    """Where an endpoint is, and the headers with its keys."""

    def __init__(self, parameters: EndpointParameters) -> None:
        self._settings = parameters
        address = urlsplit(parameters.url)
        self.server = address.netloc
        self.price = 0.0 if parameters.price is None and is_loopback(address.hostname or "") else parameters.price
        """Of one answered call; None if unknown."""
        self.variables = [name.removeprefix(_VARIABLE) for name in self._names if name.startswith(_VARIABLE)]

    @property
    def _names(self) -> list[str]:
        return sorted(names_in(self._settings.headers))

    @property
    def headers(self) -> dict[str, str]:
        """The headers with their variables filled in."""
        values = {f"{_VARIABLE}{name}": key_in(name) for name in self.variables}
        return {name: fill(text, values) for name, text in self._settings.headers.items()}

    def problems(self) -> Iterator[str]:
        """Keys that are missing, or would be stored or sent in the open."""
        for name in self._names:
            if not name.startswith(_VARIABLE):
                yield f"`headers` has the unknown placeholder {{{name}}}; only {{env:NAME}} is known there"
        for name in self.variables:
            if problem := key_problem(name):
                yield problem
        for name, text in self._settings.headers.items():
            if name.lower() in _SECRET_HEADERS and not names_in(text):
                yield f"`headers.{name}` would be stored as it is; put its value into a variable and write {{env:NAME}}"
        key = self.variables[0] if self.variables else ""
        yield from problems_of(self._settings.url, key=key, insecure_http=self._settings.insecure_http)

    def template_problems(self, known: Sequence[str], needed: Sequence[str], *more: Json) -> Iterator[str]:
        """Placeholders of the template, or of `more` beside it, that are unknown or missing."""
        everything = [self._settings.template, *more]
        yield from unknown_names("template", everything, frozenset(known))
        for name in needed:
            if not {name, f"{name}_data_uri"} & names_in(everything):
                yield f"`template` has no {{{name}}}; add it where the server expects it"


class Endpoint:
    """One web address that takes JSON. Threads share its connections; they are opened with the first call."""

    def __init__(self, parameters: EndpointParameters) -> None:
        self._settings = parameters
        self.address = Address(parameters)
        self._limiter = RateLimiter(parameters.requests_per_minute)
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def ask(self, values: Mapping[str, object]) -> Reply | Refusing | Failed:
        """One call: an answer with a good status, a refusal, or what went wrong."""
        if problem := next(self.address.problems(), None):
            return Failed(error=problem, retryable=False, fatal=True)
        turn = self._limiter.wait()
        if isinstance(turn, TooEarly):
            return turn.failed(self.address.server)
        url, body = self._settings.url, fill_json(self._settings.template, values)
        try:
            reply = self._connected().send(self._settings.method, url, json=body, headers=self.address.headers)
        except Unanswered as error:
            effective = {"cost": "unknown"} if error.sent and self.address.price != 0 else {}
            return Failed(error=self.shown(str(error)), retryable=True, effective=effective)
        if refusal := self._refusal(reply):
            return refusal
        if reply.status < 300:
            return reply
        failed = failure_of(reply.status, reply.text, reply.headers, url=url)
        return replace(failed, error=self.shown(failed.error))

    def failed(self, error: str) -> Failed:
        """An answer that is charged and of no use."""
        return Failed(error=error, retryable=True, effective=self.unknown_cost, cost=self.address.price or 0.0)

    @property
    def unknown_cost(self) -> Mapping[str, Json]:
        """What the effective parameters say of a call without a known price."""
        return {"cost": "unknown"} if self.address.price is None else {}

    def shown(self, text: str) -> str:
        """A server's words as they may be stored: one line of limited length, without keys."""
        return shortened(self.redacted(text))

    def redacted(self, text: str) -> str:
        """The text without the values of our headers' variables."""
        return redacted(text, *map(key_in, self.address.variables))

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _refusal(self, reply: Reply) -> Refusing | None:
        for mark in self._settings.marks:
            if mark.found(reply.body) is not None:
                message = self.redacted(mark.message(reply.body)) or "no reason given"
                return Refusing(message=message, charged=reply.status < 300)
        return None

    def _connected(self) -> Connection:
        from stillme.core.http.client import Connection

        with self._lock:
            if self._connection is None:
                self._connection = Connection(timeout=self._settings.timeout)
            return self._connection


def encoded(name: str, picture: Path) -> Mapping[str, str]:
    """A picture as two placeholders, `{name}` in base64 and `{name_data_uri}`: PNG, upright, sRGB."""
    text = base64.b64encode(images.encode_png(images.read_rgb(picture))).decode()
    return {name: text, f"{name}_data_uri": f"data:image/png;base64,{text}"}
