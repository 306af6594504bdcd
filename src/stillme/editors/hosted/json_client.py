"""JSON and upload forms over plain HTTP, for all providers.

Their official clients retry silently, drop `Retry-After`, or lose the field that marks a refusal; see
docs/editors-hosted.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from stillme.core.http import replies
from stillme.core.http.replies import Unanswered
from stillme.core.json_paths import find
from stillme.core.types import Json
from stillme.editors.hosted.faults import CallFailed, from_connection, from_status, unexpected_answer

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_WORDS = ("detail.*.msg", "error.message", "detail", "message", "error")
_CODES = ("error.code", "code")
File = tuple[str, tuple[str, bytes, str]]
"""A form's field, and the file's name, content and type."""


class Reply(replies.Reply):
    """A provider's answer with any status, and the failure that it means."""

    @property
    def explanation(self) -> str:
        """The server's own sentence, with its code, wherever providers write them."""
        words = next((found for path in _WORDS if (found := list(find(self.body, path)))), list[Json]())
        code = next((str(found) for path in _CODES for found in find(self.body, path) if found), "")
        sentence = "; ".join(map(str, words)) or self.text
        return f"{sentence} ({code})" if code and not code.isdigit() and code not in sentence else sentence

    def require_success(self, message: str = "") -> Reply:
        """Raise the failure that an error status means."""
        if self.status >= 400:
            raise from_status(self.status, message or self.explanation, self.headers, body=self.text)
        return self

    def require_json(self) -> Json:
        """The JSON object of a successful answer."""
        self.require_success()
        body: Json = self.body
        if not isinstance(body, dict):
            raise unexpected_answer("no JSON object", self.text)
        return cast("Json", body)


class JsonClient:
    """A connection to one provider. The key is sent to that provider only, never to the host of a picture."""

    def __init__(self, base_url: str, headers: Mapping[str, str], *, timeout: float) -> None:
        from stillme.core.http.client import Connection

        self.base_url = base_url.rstrip("/")
        self._connection: Connection = Connection(timeout=timeout, headers=headers)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
        files: Sequence[File] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send JSON, or files with a form, to a path below `base_url`; returns the answer with any status."""
        url = path if path.startswith("http") else f"{self.base_url}{path}"
        sent = {"json": body} if files is None else {"files": files, "data": form}
        try:
            reply = self._connection.send(method, url, headers=dict(headers or {}), **sent)
        except Unanswered as error:
            failure = from_connection(error)
            # To look costs nothing, whether or not the answer arrives.
            raise (CallFailed.of(failure.failed) if method == "GET" else failure) from error
        if 300 <= reply.status < 400:
            raise CallFailed.of(replies.failure_of(reply.status, "", reply.headers, url=url))
        return Reply(reply.status, reply.headers, reply.content)

    def close(self) -> None:
        """Close the sockets."""
        self._connection.close()
