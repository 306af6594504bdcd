"""fal, Replicate, Black Forest Labs and DashScope: queues described by data, over plain HTTP.

- fal: https://docs.fal.ai/model-apis/model-endpoints/queue
- Replicate: https://replicate.com/docs/reference/http
- Black Forest Labs: https://docs.bfl.ai/api_integration/integration_guidelines and …/api_integration/errors. The answer
  to a request names the address to look at, which may be another host of theirs.
- DashScope: https://www.alibabacloud.com/help/en/model-studio/qwen-image-edit-api (one call),
  …/qwen-image-generation-and-editing-api-reference (as a task) and …/error-code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field

from stillme.core.http.replies import CallFailed, Reply
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.editor import Call
from stillme.editors.hosted.queued import Mark, Queue, Queued, ResumingParameters

if TYPE_CHECKING:
    from stillme.core.http.client import Connection

_FAL, _REPLICATE = catalogue.service("fal"), catalogue.service("replicate")
_BFL, _DASHSCOPE = catalogue.service("bfl"), catalogue.service("dashscope")
_INSPECTED = ("DataInspectionFailed", "data_inspection_failed")


class NamedFieldsParameters(ResumingParameters):
    """Settings of models that differ in the names of their request fields."""

    images: str | None = Field(default=None, pattern=r"^\w+(\[\])?(,\w+(\[\])?)*$")
    """The request field that takes the portraits, with a trailing `[]` if it is a list; by default the catalogue's.
    Several, separated by commas, if it is not known which one a model reads."""
    seed_field: str = "seed"
    """Empty for a model that takes no seed."""


N = TypeVar("N", bound=NamedFieldsParameters)


class NamedFields(Queued[N]):
    """A queue whose models differ in the names of their request fields."""

    def __init__(self, parameters: N) -> None:
        super().__init__(parameters)
        self._images = (parameters.images or self.facts.images).split(",")
        if not parameters.seed_field:
            self.capabilities = replace(self.capabilities, seed="none")

    def _reserved(self) -> frozenset[str]:
        return self.reserved | {*(name.removesuffix("[]") for name in self._images), self._settings.seed_field}

    def _fields(self, call: Call) -> dict[str, Any]:
        """Prompt, images and seed under the model's field names."""
        links = [picture.data_uri for picture in call.pictures]
        pictures = {name.removesuffix("[]"): links if name.endswith("[]") else links[0] for name in self._images}
        seed = {self._settings.seed_field: call.seed} if self._settings.seed_field else {}
        return {"prompt": call.instruction, **pictures, **seed, **self._settings.extra}


class FalParameters(NamedFieldsParameters):
    """A model on fal."""

    model: str = _FAL.default
    base_url: str = _FAL.base_url


class Fal(NamedFields[FalParameters]):
    """Image editing models hosted by fal."""

    Parameters = FalParameters
    name = "fal"
    key_variable = "FAL_KEY"
    headers = {"Authorization": "Key {key}"}
    queue = Queue(
        link="response_url",
        look="{job}/status",
        result="{job}",
        waiting=("IN_QUEUE", "IN_PROGRESS"),
        done=("COMPLETED",),
        pictures=("images.0.url", "image.url"),
        refusals=(
            Mark(path="detail.*.type", values=("content_policy_violation",), words="detail.*.msg"),
            # The picture was made before it was withheld.
            Mark(path="has_nsfw_concepts.*", values=(True,), pictures=1),
        ),
        effective={"seed": "seed", "revised_prompt": "prompt"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        return connection.send("POST", f"/{self._settings.model}", body=self._fields(call))


class ReplicateParameters(NamedFieldsParameters):
    """A model on Replicate: `owner/name`, or `owner/name:version` to pin a version."""

    model: str = _REPLICATE.default
    base_url: str = _REPLICATE.base_url


class Replicate(NamedFields[ReplicateParameters]):
    """Image editing models hosted by Replicate."""

    Parameters = ReplicateParameters
    name = "replicate"
    key_variable = "REPLICATE_API_TOKEN"
    queue = Queue(
        job="/v1/predictions/{id}",
        waiting=("starting", "processing", "queued"),
        done=("succeeded",),
        pictures=("output.0", "output"),
        # Replicate's own code, or what its models say. Other errors are faults of the model.
        refusals=(Mark(path="error", pattern=r"\(E005\)|(?i:NSFW content|flagged as sensitive)"),),
        hopeless=(Mark(path="detail", pattern=r"(?i)version does not exist|invalid version"),),
        seconds="metrics.predict_time",
        effective={"id": "id", "model": "model", "version": "version"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        name, _, version = self._settings.model.partition(":")
        fields = {"input": self._fields(call)}
        if version:
            return connection.send("POST", "/v1/predictions", body={**fields, "version": version})
        return connection.send("POST", f"/v1/models/{name}/predictions", body=fields)


class BflParameters(ResumingParameters):
    """A FLUX model: the name is the last part of its address, such as `flux-kontext-pro`."""

    model: str = _BFL.default
    base_url: str = _BFL.base_url
    """Also `https://api.eu.bfl.ai` or `https://api.us.bfl.ai`, to stay in a region."""
    output_format: Literal["png", "jpeg"] = "png"
    prompt_upsampling: bool = False
    """Let the service rewrite the instruction."""


class Bfl(Queued[BflParameters]):
    """FLUX models by Black Forest Labs."""

    Parameters = BflParameters
    name = "bfl"
    key_variable = "BFL_API_KEY"
    rewriting = "prompt_upsampling"
    headers = {"x-key": "{key}"}
    reserved = frozenset({"input_image", "prompt", "prompt_upsampling", "seed"})
    queue = Queue(
        link="polling_url",
        job="/v1/get_result?id={id}",
        hosts=".bfl.ai",
        waiting=("Pending", "Processing"),
        done=("Ready",),
        reason="details",
        pictures=("result.sample",),
        refusals=(
            Mark(path="status", values=("Request Moderated",), words="details.Moderation Reasons"),
            # Moderated after it was made; whether it is charged is not documented.
            Mark(path="status", values=("Content Moderated",), words="details.Moderation Reasons", pictures=1),
        ),
        effective={"seed": "result.seed", "revised_prompt": "result.prompt"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        names = ["input_image", *(f"input_image_{number}" for number in range(2, len(call.pictures) + 1))]
        fields = {
            "prompt": call.instruction,
            **dict(zip(names, (picture.base64 for picture in call.pictures), strict=True)),
            "seed": call.seed,
            "output_format": self._settings.output_format,
            "prompt_upsampling": self._settings.prompt_upsampling,
            **self._settings.extra,
        }
        return connection.send("POST", f"/v1/{self._settings.model}", body=fields)


class DashScopeParameters(ResumingParameters):
    """A Qwen image model that edits."""

    model: str = _DASHSCOPE.default
    base_url: str = _DASHSCOPE.base_url
    """Singapore's; Beijing's is `https://dashscope.aliyuncs.com/api/v1`."""
    size: str | None = Field(default=None, pattern=r"^\d+\*\d+$")
    """Such as `1024*1024`; by default about a megapixel in the portrait's proportions."""
    prompt_extend: bool | None = None
    """Let the service rewrite the instruction. Off unless it is asked for."""
    as_task: bool = Field(default=False, exclude=True)
    """Queue the work and look for it, where a model offers that."""
    max_characters: int = Field(default=800, gt=0, exclude=True)
    """The service cuts longer instructions off silently, so they fail instead."""


class DashScope(Queued[DashScopeParameters]):
    """Qwen image models by Alibaba Cloud Model Studio."""

    Parameters = DashScopeParameters
    name = "dashscope"
    key_variable = "DASHSCOPE_API_KEY"
    rewriting = "prompt_extend"
    reserved = frozenset({"n", "prompt_extend", "seed", "size"})
    queue = Queue(
        job="/tasks/{output.task_id}",
        state="output.task_status",
        waiting=("PENDING", "RUNNING"),
        done=("SUCCEEDED",),
        reason="output.message",
        pictures=("output.choices.0.message.content.0.image",),
        refusals=(
            Mark(path="code", values=_INSPECTED, words="message"),
            Mark(path="output.code", values=_INSPECTED, words="output.message"),
        ),
        # Has status 400, like a mistake in one request.
        hopeless=(Mark(path="code", values=("Arrearage",)),),
        effective={"request_id": "request_id"},
    )

    def _submit(self, connection: Connection, call: Call) -> Reply:
        settings, length = self._settings, len(call.instruction)
        if length > (limit := settings.max_characters):
            error = f"the instruction has {length} characters; {settings.model!r} reads {limit}"
            raise CallFailed(error, retryable=False)
        content = [*({"image": picture.data_uri} for picture in call.pictures), {"text": call.instruction}]
        rewriting = (
            {} if "prompt_extend" in self.facts.rejects else {"prompt_extend": bool(self._settings.prompt_extend)}
        )
        size = {"size": self._settings.size} if self._settings.size else {}
        more = {"n": 1, "seed": call.seed, "watermark": False, **rewriting, **size, **self._settings.extra}
        messages = [{"role": "user", "content": content}]
        return connection.send(
            "POST",
            f"/services/aigc/{'image' if self._settings.as_task else 'multimodal'}-generation/generation",
            body={"model": self._settings.model, "input": {"messages": messages}, "parameters": more},
            headers={"X-DashScope-Async": "enable"} if self._settings.as_task else None,
        )
