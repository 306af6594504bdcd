"""The presets as editor classes, for the entry points."""

from __future__ import annotations

from typing import ClassVar

from stillme.core.protocols import Needs
from stillme.editors.diffusion.editor import NEEDED, DiffusersEditor
from stillme.editors.diffusion.parameters import DiffusionParameters, parameters_of
from stillme.editors.diffusion.traits import presets


def _named(title: str, name: str) -> type[DiffusersEditor]:
    """The editor class of a preset. `title` is its name in this module, where other processes find it."""
    preset = presets()[name]

    class Named(DiffusersEditor):
        Parameters = parameters_of(name, preset)
        needs: ClassVar[Needs] = Needs(
            modules=NEEDED,
            extra="diffusers",
            memory_gb=preset.memory_gb,
            disk_gb=preset.disk_gb or preset.memory_gb,
            imports=(f"diffusers:{preset.pipeline}",),
        )
        default_seed = preset.seed

        def __init__(self, parameters: DiffusionParameters) -> None:
            super().__init__(name, parameters, preset.pipeline, preset.traits, preset=preset)

    Named.__doc__ = preset.summary
    Named.__name__ = Named.__qualname__ = title
    Named.__module__ = __name__
    return Named


Flux2Dev = _named("Flux2Dev", "flux2-dev")
Flux2Dev80 = _named("Flux2Dev80", "flux2-dev-80gb")
Flux2Dev48 = _named("Flux2Dev48", "flux2-dev-48gb")
Flux2Dev24 = _named("Flux2Dev24", "flux2-dev-24gb")
Flux2Klein = _named("Flux2Klein", "flux2-klein")
Flux1Kontext = _named("Flux1Kontext", "flux1-kontext")
QwenImageEdit2511 = _named("QwenImageEdit2511", "qwen-image-edit-2511")
QwenImageEdit2509 = _named("QwenImageEdit2509", "qwen-image-edit-2509")
InstructPix2Pix = _named("InstructPix2Pix", "instruct-pix2pix")
