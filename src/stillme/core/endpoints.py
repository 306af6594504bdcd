"""A server that editors and judges ask: its address, its keys, and what an audit says of one of the user's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field

from stillme.core.addresses import is_loopback, key_in, key_problem, problems_of
from stillme.core.http.replies import CallFailed, Reply
from stillme.core.json_paths import Mark
from stillme.core.placeholders import fill, names_in, unknown_names
from stillme.core.protocols import Parameters
from stillme.core.redaction import redacted, without_secrets
from stillme.core.throttle import RateLimiter, TooEarly
from stillme.core.types import Json

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_VARIABLE = "env:"
_SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "x-auth-token"})


class CallParameters(Parameters):
    """How calls are made, which is not part of the key."""

    insecure_http: bool = Field(default=False, exclude=True)
    """Send keys also over plain http to another machine."""
    requests_per_minute: float | None = Field(default=None, gt=0, exclude=True)
    concurrency: int = Field(default=4, ge=1, le=256, exclude=True)
    """Calls at once."""
    timeout: float = Field(default=300.0, gt=0, exclude=True)
    """Seconds for one whole answer; for queued work, also the longest wait before a call ends."""


class EndpointParameters(CallParameters):
    """Where to ask, with which words, and what a refusal looks like."""

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
    price: float | None = Field(default=None, ge=0, exclude=True)
    """US dollars of one answered call; by default 0 on this machine, elsewhere unknown."""

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What marks a refusal."""
        mark = Mark(path=self.refusal, values=self.refusal_values, words=self.refusal_message, pictures=1)
        return (mark,) if self.refusal else ()

    @property
    def dollars(self) -> float | None:
        """Of one answered call; None if unknown."""
        return 0.0 if self.price is None and is_loopback(urlsplit(self.url).hostname or "") else self.price

    def template_problems(self, known: Sequence[str], needed: Sequence[str], *more: Json) -> Iterator[str]:
        """Placeholders of the template, or of `more` beside it, that are unknown or missing."""
        everything = [self.template, *more]
        yield from unknown_names("template", everything, frozenset(known))
        for name in needed:
            if not {name, f"{name}_data_uri"} & names_in(everything):
                yield f"`template` has no {{{name}}}; add it where the server expects it"


class ApiServer:
    """One server for all threads: its keys, one rate limit, connections that are opened with the first call.

    Headers may hold `{env:NAME}`. A header whose key is not set is left out where `key_required` is false.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], settings: CallParameters, *, key_required: bool = True
    ) -> None:
        self.url, self.host = url, urlsplit(url).netloc
        self.token = ""
        """A secret that was received on the way, and must not be stored either."""
        self._headers, self._settings, self._key_required = dict(headers), settings, key_required
        self._limiter = RateLimiter(settings.requests_per_minute)
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}

    @property
    def variables(self) -> list[str]:
        """The variables whose values are sent."""
        names = [name.removeprefix(_VARIABLE) for name in sorted(names_in(self._headers)) if name.startswith(_VARIABLE)]
        return [name for name in names if self._key_required or key_in(name)]

    def problems(self) -> Iterator[str]:
        """Keys that are missing, or would be stored or sent in the open."""
        for name in sorted(names_in(self._headers)):
            if not name.startswith(_VARIABLE):
                yield f"`headers` has the unknown placeholder {{{name}}}; only {{env:NAME}} is known there"
        variables = self.variables
        yield from filter(None, map(key_problem, variables))
        for name, text in self._headers.items():
            if name.lower() in _SECRET_HEADERS and not names_in(text):
                yield f"`headers.{name}` would be stored as it is; put its value into a variable and write {{env:NAME}}"
        key, insecure_http = next(iter(variables), ""), self._settings.insecure_http
        yield from problems_of(self.url, key=key, insecure_http=insecure_http)

    def connected(self) -> Connection:
        """The connection, when it is this caller's turn; raises `CallFailed` if it may not be used, or not yet."""
        turn = self._limiter.wait()
        if isinstance(turn, TooEarly):
            raise CallFailed.of(turn.failed(self.host))
        if self.url not in self._connections:
            for problem in self.problems():
                raise CallFailed(problem, fatal=True)
        return self._opened(self.url)

    def download(self, link: str) -> Reply:
        """What is behind a link, without our headers: its host must not see a key."""
        return self._opened("").send("GET", link)

    def redacted(self, text: str) -> str:
        """A server's words without keys."""
        return redacted(text, *self._secrets)

    def without_secrets(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """A server's values without keys."""
        return without_secrets(dict(values), *self._secrets)

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    @property
    def _secrets(self) -> list[str]:
        return [*map(key_in, self.variables), self.token]

    def _opened(self, url: str) -> Connection:
        """The connection to the server; without a url, one for links to anywhere."""
        from stillme.core.http.client import Connection

        with self._lock:
            if url not in self._connections:
                values = {f"{_VARIABLE}{name}": key_in(name) for name in self.variables}
                sent = {name: text for name, text in self._headers.items() if names_in(text) <= values.keys()}
                headers = {name: fill(text, values) for name, text in sent.items()} if url else {}
                self._connections[url] = Connection(
                    url, headers, timeout=self._settings.timeout, follow_redirects=not url
                )
            return self._connections[url]
