"""OpenAI's image models in an Azure resource of one's own.

https://learn.microsoft.com/azure/ai-services/openai/how-to/dall-e and …/openai/reference: a dated `api_version` goes to
`/openai/deployments/{deployment}/images/edits`, `v1` and `preview` go to `/openai/v1/images/edits`. Azure adds a filter
of its own: it marks a refusal in `error.code`, in the code of the inner error, or in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from pydantic import BaseModel, Field

from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import CallFailed, Declined
from stillme.editors.hosted.openai import OpenAIImages, OpenAIParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

if TYPE_CHECKING:
    from openai import OpenAI

_REFUSALS = frozenset({"content_filter", "contentFilter", "ResponsibleAIPolicyViolation"})
"""Azure's own codes; those of the model are OpenAI's."""
_INNER = ("inner_error", "innererror")
"""The name differs between the image and the other endpoints."""


class AzureParameters(OpenAIParameters):
    """A deployment of an image model."""

    model: str = Field(min_length=1)
    """The deployment's name; Azure does not tell the model behind it, so `price` must be given."""
    base_url: str = Field(pattern=r"^https?://")
    """The resource's address, such as `https://my-resource.openai.azure.com`."""
    api_version: str = Field(default="2025-04-01-preview", pattern=r"^(v1|preview|\d{4}-\d\d-\d\d(-preview)?)$")


class AzureImages(OpenAIImages):
    """OpenAI's image models in an Azure resource."""

    Parameters: ClassVar[type[BaseModel]] = AzureParameters
    needs: ClassVar[Needs] = Needs(modules=("openai",), extra="openai", variables=("AZURE_OPENAI_API_KEY",))
    service: ClassVar[str] = "azure"
    key_variable: ClassVar[str] = "AZURE_OPENAI_API_KEY"

    def __init__(self, parameters: AzureParameters) -> None:
        self._azure = parameters
        super().__init__(parameters)

    def _connect(self, key: str) -> OpenAI:
        from openai import AzureOpenAI, OpenAI

        from stillme.editors.hosted.http_client import open_client

        resource, version, timeout = self._azure.base_url.rstrip("/"), self._azure.api_version, self._azure.timeout
        if version in ("v1", "preview"):
            return OpenAI(
                api_key=key,
                base_url=f"{resource}/openai/v1",
                default_query={"api-version": version} if version == "preview" else {},
                max_retries=0,
                http_client=open_client(timeout),
            )
        return AzureOpenAI(
            api_key=key,
            azure_endpoint=resource,
            azure_deployment=self._azure.model,
            api_version=version,
            max_retries=0,
            http_client=open_client(timeout),
        )

    def _ask(self, connection: OpenAI, call: Call) -> Answer:
        from openai import APIStatusError

        try:
            return super()._ask(connection, call)
        except (CallFailed, Declined) as failure:
            if isinstance(failure.__cause__, APIStatusError) and (declined := _declined(failure.__cause__.body)):
                raise declined from failure.__cause__
            raise


def _declined(body: Json) -> Declined | None:
    """A refusal by Azure's filter, with the categories that it names."""
    error = dig(body, "error") or body
    inner = next((entry for name in _INNER if (entry := dig(error, name))), None)
    marks = {"error.code": dig(error, "code"), "inner_error.code": dig(inner, "code")}
    mark = next((f"{name} = {code}" for name, code in marks.items() if code in _REFUSALS), None)
    if mark is None:
        return None
    categories = _filtered(dig(inner, "content_filter_results") or dig(error, "content_filter_results"))
    signal = f"{mark} ({', '.join(categories)})" if categories else mark
    return Declined(str(dig(error, "message") or signal), signal=signal)


def _filtered(results: Json) -> list[str]:
    if not isinstance(results, dict):
        return []
    return sorted(name for name, result in cast("dict[str, Json]", results).items() if dig(result, "filtered") is True)
