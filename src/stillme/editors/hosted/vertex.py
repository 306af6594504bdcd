"""Google's Gemini image models on Vertex AI: a Google Cloud project and its credentials instead of a key.

https://cloud.google.com/vertex-ai/generative-ai/docs/start/quickstart. Answers and refusals are Gemini's. Imagen's
`edit_image` is left out: it edits by masks and references, not by an instruction alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel, Field

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, from_connection
from stillme.editors.hosted.gemini import Gemini, GeminiParameters
from stillme.protocols import Needs

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.genai import Client

_KNOWN = catalogue.service("vertex")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOG_IN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"


class VertexParameters(GeminiParameters):
    """A Gemini image model in a Google Cloud project."""

    model: str = _KNOWN.default
    base_url: str = Field(default="", pattern=r"^(https://.*|http://(127\.0\.0\.1|localhost)\b.*)?$")
    """Empty: the address of the location."""
    project: str = Field(default="", exclude=True)
    """By default that of the credentials."""
    location: str = "global"


class Vertex(Gemini):
    """Google's Gemini image models on Vertex AI."""

    Parameters: ClassVar[type[BaseModel]] = VertexParameters
    needs: ClassVar[Needs] = Needs(modules=("google.genai", "google.auth"), extra="gemini")
    service: ClassVar[str] = "vertex"
    key_variable: ClassVar[str] = ""
    key_required: ClassVar[bool] = False

    def __init__(self, parameters: VertexParameters) -> None:
        self._vertex = parameters
        self._credentials: Credentials | None = None
        super().__init__(parameters)

    def lacking(self, *, online: bool) -> Iterator[str]:
        """Credentials, as far as this machine knows them."""
        if find_spec("google.auth") is not None:
            try:
                _credentials()
            except CallFailed as failure:
                yield failure.failed.error

    def _connect(self, key: str) -> Client:
        from google.genai import Client

        credentials, project = _credentials()
        self._credentials = credentials
        if not (self._vertex.project or project):
            raise CallFailed("no Google Cloud project: set `project` in the audit", retryable=True, fatal=True)
        return Client(
            vertexai=True,
            credentials=credentials,
            project=self._vertex.project or project,
            location=self._vertex.location,
            http_options=self._http_options(self._vertex.base_url or None),
        )

    def _ask(self, connection: Client, call: Call) -> Answer:
        from google.auth.exceptions import GoogleAuthError, TransportError

        try:
            return super()._ask(connection, call)
        except TransportError as error:
            raise from_connection(error) from error
        except GoogleAuthError as error:
            raise _no_credentials(str(error)) from error

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
