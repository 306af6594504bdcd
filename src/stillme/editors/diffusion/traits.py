"""How to call a pipeline class, and what a preset sets: `pipelines.toml` and `presets.toml`, validated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from pydantic import Field

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
