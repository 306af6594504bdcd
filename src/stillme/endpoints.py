"""A web address that answers JSON to JSON: fill in a template, send it, and say what the answer means."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from stillme import images
from stillme.addresses import is_loopback, problems_of
from stillme.http_calls.replies import Reply, retry_after
from stillme.json_paths import follow
from stillme.placeholders import fill, fill_json, names_in, unknown_names
from stillme.protocols import Parameters
from stillme.redaction import redacted, shortened
from stillme.throttle import RateLimiter, TooEarly
from stillme.types import Failed, Json

if TYPE_CHECKING:
    import httpx2

_FATAL = frozenset({401, 402, 403, 404, 405})
"""No key, no money, no permission, no such address: the same for every call until the user acts."""
_TEMPORARY = frozenset({408, 409, 425, 429})
_VARIABLE = "env:"
_SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "x-auth-token"})
_FETCHES = 3
"""Tries to fetch a picture that is already paid for."""


class EndpointParameters(Parameters):
    """Where to ask, with which words, and what a refusal looks like. How calls are made is not part of the key."""

    url: str = Field(pattern=r"^https?://")
    method: Literal["POST", "PUT"] = "POST"
    template: dict[str, Json] = Field(min_length=1)
    """The JSON that is sent, with placeholders in its texts."""
    headers: dict[str, str] = {}
    """Further headers. `{env:NAME}` is the environment variable NAME, such as a key; its value is never stored."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """The server declined."""

    message: str
    signal: str
    """The field and the value that mark it."""
    charged: bool


class Endpoint:
    """One web address. Threads share its connections; they are opened with the first call."""

    def __init__(self, parameters: EndpointParameters) -> None:
        self._settings = parameters
        self._limiter = RateLimiter(parameters.requests_per_minute)
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        address = urlsplit(parameters.url)
        self.server, host = address.netloc, address.hostname or ""
        self.is_local = is_loopback(host)
        self.price = 0.0 if parameters.price is None and self.is_local else parameters.price
        """Of one answered call; None if unknown."""
        self.placeholders = names_in(parameters.template)

    def problems(self, known: Sequence[str], needed: Sequence[str]) -> Iterator[str]:
        """Placeholders that are unknown or missing, and keys that are missing or would be sent in the open."""
        yield from unknown_names("template", self._settings.template, frozenset(known))
        for name in needed:
            if not {name, f"{name}_data_uri"} & self.placeholders:
                yield f"`template` has no {{{name}}}; add it where the server expects it"
        yield from self._key_problems()

    def ask(self, values: Mapping[str, object]) -> Reply | Refusing | Failed:
        """One call: an answer with a good status, a refusal, or what went wrong."""
        if problem := next(self._key_problems(), None):
            return Failed(error=problem, retryable=False, fatal=True)
        turn = self._limiter.wait()
        if isinstance(turn, TooEarly):
            return turn.failed(self.server)
        body = fill_json(self._settings.template, values)
        reply = self._exchange(self._settings.method, self._settings.url, json=body, headers=self._headers())
        if isinstance(reply, Failed):
            return reply
        return self._refusal(reply) or (reply if reply.status < 300 else self._from_status(reply))

    def fetch(self, url: str) -> Reply | Failed:
        """The file behind a link in an answer, without our headers: its host must not see a key.

        A `Failed` may pass, and the link is worth another look; a `Reply` with an error status will not.
        """
        error = ""
        for tried in range(_FETCHES):
            time.sleep(0.5 * tried)
            outcome = self._exchange("GET", url, follow_redirects=True)
            if isinstance(outcome, Reply) and outcome.status not in _TEMPORARY and outcome.status < 500:
                return outcome
            error = outcome.error if isinstance(outcome, Failed) else f"{outcome.status}: {self.shown(outcome.text)}"
        return Failed(error=f"the picture cannot be fetched for now ({error})", retryable=True)

    def failed(self, error: str) -> Failed:
        """An answer that is charged and of no use."""
        return Failed(error=error, retryable=True, effective=self.unknown_cost, cost=self.price or 0.0)

    @property
    def unknown_cost(self) -> Mapping[str, Json]:
        """What the effective parameters say of a call without a known price."""
        return {"cost": "unknown"} if self.price is None else {}

    def shown(self, text: str) -> str:
        """A server's words as they may be stored: one line of limited length, without keys."""
        return shortened(self.redacted(text))

    def redacted(self, text: str) -> str:
        """The text without the values of our headers' variables."""
        return redacted(text, *(_variable(name) for name in self._variables()))

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _variables(self) -> list[str]:
        names = sorted(names_in(self._settings.headers))
        return [name.removeprefix(_VARIABLE) for name in names if name.startswith(_VARIABLE)]

    def _headers(self) -> dict[str, str]:
        values = {f"{_VARIABLE}{name}": _variable(name) for name in self._variables()}
        return {name: fill(text, values) for name, text in self._settings.headers.items()}

    def _key_problems(self) -> Iterator[str]:
        variables = self._variables()
        for name in sorted(names_in(self._settings.headers)):
            if not name.startswith(_VARIABLE):
                yield f"`headers` has the unknown placeholder {{{name}}}; only {{env:NAME}} is known there"
        for name in variables:
            value = _variable(name)
            if not value or not value.isascii():
                what = "contains characters that no key has" if value else "is not set"
                yield f"{name} {what}: run `export {name}=…` with your key"
        for name, text in self._settings.headers.items():
            if name.lower() in _SECRET_HEADERS and not names_in(text):
                yield f"`headers.{name}` would be stored as it is; put its value into a variable and write {{env:NAME}}"
        key = variables[0] if variables else ""
        yield from problems_of(self._settings.url, key=key, insecure_http=self._settings.insecure_http)

    def _refusal(self, reply: Reply) -> Refusing | None:
        path, values = self._settings.refusal, self._settings.refusal_values
        mark = follow(reply.body, path) if path else None
        if not (str(mark) in values if values else mark):
            return None
        words = follow(reply.body, self._settings.refusal_message) if self._settings.refusal_message else mark
        text = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
        return Refusing(
            message=self.redacted(text) or "no reason given",
            signal=self.shown(f"{path} = {mark}"),
            charged=reply.status < 300,
        )

    def _from_status(self, reply: Reply) -> Failed:
        status = reply.status
        words = self.shown(reply.text) or "no explanation"
        if status < 400:
            words = f"it redirects to {self.shown(reply.headers.get('location', 'nowhere'))}; write that as `url`"
        return Failed(
            error=f"{status}: {words}",
            status=str(status),
            retryable=status in _TEMPORARY or status >= 500,
            fatal=status in _FATAL or status < 400,
            throttled=status == 429,
            retry_after=retry_after(reply.headers),
        )

    def _exchange(self, method: str, url: str, **options: Any) -> Reply | Failed:
        import httpx2

        try:
            response = self._connected().request(method, url, **options)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            # A header that is no header is a ValueError.
            words = self.shown(f"{type(error).__name__}: {error}")
            return Failed(error=f"no complete answer ({words})", retryable=True)
        return Reply(response.status_code, dict(response.headers), response.content)

    def _connected(self) -> httpx2.Client:
        from stillme.http_calls.client import open_client

        with self._lock:
            if self._client is None:
                # No redirects: they would carry headers with keys to another host.
                self._client = open_client(self._settings.timeout, follow_redirects=False)
            return self._client


def encoded(name: str, picture: Path) -> Mapping[str, str]:
    """A picture as two placeholders, `{name}` in base64 and `{name_data_uri}`: PNG, upright, sRGB."""
    text = base64.b64encode(images.encode_png(images.read_rgb(picture))).decode()
    return {name: text, f"{name}_data_uri": f"data:image/png;base64,{text}"}


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()
