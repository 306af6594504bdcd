"""Settings of a diffusers editor. Those that cannot change a pixel are not part of the key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, field_serializer

from stillme.core.protocols import Parameters
from stillme.core.types import Json
from stillme.editors.diffusion.traits import Preset, Traits

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
