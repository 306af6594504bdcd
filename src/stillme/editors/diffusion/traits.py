"""How to call a pipeline class, what a preset sets (`pipelines.toml`, `presets.toml`), and an editor's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, field_serializer

from stillme.core.files import packaged_toml
from stillme.core.protocols import Capabilities, Parameters
from stillme.core.types import Json

ARGUMENTS: Mapping[str, str] = {
    "steps": "num_inference_steps",
    "guidance_scale": "guidance_scale",
    "true_cfg_scale": "true_cfg_scale",
    "image_guidance_scale": "image_guidance_scale",
    "negative_prompt": "negative_prompt",
    "max_sequence_length": "max_sequence_length",
}
"""Settings and the call arguments that they become; `size` becomes `width` and `height`."""


class Cfg(Parameters):
    """When classifier-free guidance is on. Distilled guidance does not count."""

    scale: str
    """The argument that enables it when above 1."""
    negative_prompt: bool = False
    """Whether it stays off, with only a log line, without a negative prompt."""
    at_least: dict[str, float] = {}
    """Other arguments and their required minimum."""


class Tokens(Parameters):
    """Where a prompt is truncated."""

    limit: int = Field(ge=1)
    argument: str | None = None
    """The call argument that changes the limit."""
    component: str = "tokenizer"
    counted: Literal["plain", "bare", "chat", "chat_text"] = "plain"
    """With special tokens, without them, inside a chat, or inside a chat rendered to text first."""
    system: str = ""
    """`module:name` of the system message that takes part of the limit."""
    overhead: int = 0
    """The most tokens that the template adds: shorter prompts, in bytes, need no tokenizer."""


class Ignored(Parameters):
    """A setting that is accepted but has no effect."""

    reason: str
    harmless: float | None = None
    """The value that describes what happens without it."""


class Traits(Parameters):
    """How to call a pipeline class. An audit can declare these for a class that stillme does not know."""

    inputs: int = Field(default=1, ge=1)
    images: Literal["one", "list", "repeated"] = "one"
    """One picture, a list of references, or the picture once per prompt."""
    batching: Literal["none", "shared_image"] = "none"
    arguments: tuple[str, ...] = ("num_inference_steps",)
    ignored: dict[str, Ignored] = {}
    guidance: tuple[str, ...] = ()
    size: Literal["any", "source"] = "source"
    multiple: int = Field(default=1, ge=1)
    """Width and height are rounded down to multiples of this."""
    area_argument: str | None = None
    min_side: int = 1
    max_aspect: float | None = None
    cfg: Cfg | None = None
    tokens: Tokens | None = None
    denoiser: str = "transformer"
    can_refuse: bool = False

    def capabilities(self, *, batch: int, concurrency: int = 1) -> Capabilities:
        """The same as the capabilities that all editors declare."""
        return Capabilities(
            concurrency=concurrency,
            inputs=self.inputs,
            batching=self.batching if batch > 1 else "none",
            batch=batch if self.batching != "none" else 1,
            seed="exact",
            steps="free" if "num_inference_steps" in self.arguments else "fixed",
            guidance=self.guidance,
            negative_prompt=bool(self.cfg and self.cfg.negative_prompt),
            size=self.size,
            can_refuse=self.can_refuse,
            prompt_tokens=self.tokens.limit if self.tokens else None,
        )


class Preset(Parameters):
    """Weights and settings under one name."""

    summary: str
    pipeline: str
    repo: str
    memory_gb: float
    disk_gb: float = 0.0
    """The download, where it is not what is on the GPU."""
    modules: tuple[str, ...] = ()
    """Packages that these weights need besides the extra."""
    smaller: str = ""
    """The preset for cards that cannot hold this one."""
    seed: int = 0
    """The seed that its authors, or the paper, use."""
    settings: dict[str, Json] = {}
    """Values of `DiffusionParameters`."""
    ignored: dict[str, Ignored] = {}
    """What these weights ignore in addition to the pipeline."""

    @property
    def traits(self) -> Traits:
        """The pipeline's traits, restricted to these weights."""
        known = pipelines()[self.pipeline]
        return known.model_copy(
            update={
                "ignored": {**known.ignored, **self.ignored},
                "guidance": tuple(name for name in known.guidance if name not in self.ignored),
            }
        )


@cache
def pipelines() -> Mapping[str, Traits]:
    """Traits by pipeline class."""
    shipped = packaged_toml("stillme.editors.diffusion", "pipelines.toml")
    return {name: Traits.model_validate(entry) for name, entry in shipped.items()}


@cache
def presets() -> Mapping[str, Preset]:
    """Presets by the name that an audit uses."""
    return {
        name: Preset.model_validate(entry)
        for name, entry in packaged_toml("stillme.editors.diffusion", "presets.toml").items()
    }


Side = Annotated[int, Field(ge=16, le=8192)]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|(cuda|xpu)(:\d+)?)$")]
Quantisation = Literal[
    "none", "bitsandbytes-4bit", "bitsandbytes-8bit", "torchao-int8", "torchao-float8", "layerwise-float8"
]


class WeightsSource(Parameters):
    """Weights from elsewhere than the pipeline's own repository."""

    repo: str
    """A Hugging Face repository or a folder."""
    revision: str = "main"
    file: str = ""
    """One file of it, such as a GGUF or a fused checkpoint; empty for the component's folder."""


class Lora(WeightsSource):
    """An adapter, and how much of it applies."""

    weight: float = 1.0


class DiffusionParameters(Parameters):
    """The settings of one edit, and how the weights are run."""

    repo: str
    """A Hugging Face repository, or a folder that holds one."""
    revision: str = "main"
    """A commit pins the weights. A branch is resolved before the first edit, and the run keeps to that commit."""
    components: dict[str, WeightsSource] = {}
    """Parts that come from elsewhere, such as a quantised `transformer`."""
    lora: tuple[Lora, ...] = ()

    steps: int | None = Field(default=None, ge=1, le=1000)
    guidance_scale: float | None = Field(default=None, ge=0)
    true_cfg_scale: float | None = Field(default=None, ge=0)
    image_guidance_scale: float | None = Field(default=None, ge=0)
    negative_prompt: str | None = None
    size: Literal["source"] | tuple[Side, Side] = "source"
    """Width and height, or the pipeline's own choice from the source."""
    max_sequence_length: int | None = Field(default=None, ge=1)
    """Prompt tokens, if the limit can be changed."""
    extra: dict[str, Json] = {}
    """Further arguments of the pipeline's call."""

    batch: int = Field(default=4, ge=1, le=256)
    """Prompts of one portrait per call. Part of the key: a batch sums in another order, so rounding differs."""
    device: Device = "auto"
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    quantisation: Quantisation = "none"
    quantised: tuple[str, ...] = ()
    """Components to quantise; empty for the denoiser and its text encoders."""
    attention: str = ""
    """A diffusers attention backend, such as `flash` or `sage`; empty for torch's own."""
    vae_slicing: bool = False
    vae_tiling: bool = False
    compile: bool = False

    offload: Literal["none", "model", "sequential", "group"] = Field(default="none", exclude=True)
    """Where weights are kept between uses. The same kernels run on the same device, so it is not part of the key."""
    devices: Literal["all"] | tuple[Device, ...] = Field(default=(), exclude=True)
    """Several devices of one kind: one process each, and the edits are shared out among them."""

    @field_serializer("device")
    def _without_index(self, device: str) -> str:
        return device.partition(":")[0]

    def sources(self) -> Iterator[WeightsSource]:
        """Where all weights come from: the pipeline, its replaced parts by name, then the adapters."""
        yield WeightsSource(repo=self.repo, revision=self.revision)
        yield from (self.components[name] for name in sorted(self.components))
        yield from self.lora


class OpenParameters(DiffusionParameters):
    """For any other pipeline: also its class and, unless stillme knows it, how to call it."""

    pipeline: str = ""
    """The class; empty to read it from the folder's model_index.json."""
    capabilities: Traits | None = None


def parameters_of(name: str, preset: Preset) -> type[DiffusionParameters]:
    """The parameters with a preset's values as defaults."""
    fields = DiffusionParameters.model_fields
    checked = DiffusionParameters.model_validate({"repo": preset.repo, **preset.settings})
    replaced: dict[str, Any] = {
        key: (fields[key].rebuild_annotation(), getattr(checked, key)) for key in checked.model_fields_set
    }
    title = "".join(word.capitalize() for word in name.replace("-", " ").split())
    return create_model(f"{title}Parameters", __base__=DiffusionParameters, __doc__=preset.summary, **replaced)
