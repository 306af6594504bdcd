"""The presets as classes, for the entry points."""

from __future__ import annotations

from stillme.editors.diffusion.editor import named

Flux2Dev = named("Flux2Dev", "flux2-dev")
Flux2Dev80 = named("Flux2Dev80", "flux2-dev-80gb")
Flux2Dev48 = named("Flux2Dev48", "flux2-dev-48gb")
Flux2Dev24 = named("Flux2Dev24", "flux2-dev-24gb")
Flux2Klein = named("Flux2Klein", "flux2-klein")
Flux1Kontext = named("Flux1Kontext", "flux1-kontext")
QwenImageEdit2511 = named("QwenImageEdit2511", "qwen-image-edit-2511")
QwenImageEdit2509 = named("QwenImageEdit2509", "qwen-image-edit-2509")
InstructPix2Pix = named("InstructPix2Pix", "instruct-pix2pix")
