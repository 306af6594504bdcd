"""From settings to the arguments of a call, and what of the settings would not act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import Image

from stillme.editors.diffusion.parameters import DiffusionParameters
from stillme.editors.diffusion.traits import ARGUMENTS, Traits
from stillme.types import Json, Portrait

OURS = frozenset(
    {
        "image", "prompt", "generator", "output_type", "return_dict", "num_images_per_prompt", "latents", "width",
        "height", *ARGUMENTS.values(),
    }
)  # fmt: skip
"""Arguments that `extra` must not set, because a request or a setting of its own gives them."""


def arguments(settings: DiffusionParameters, traits: Traits) -> dict[str, Any]:
    """What every call of this editor passes: only what the pipeline takes and heeds."""
    passed: dict[str, Any] = {}
    for setting, argument in ARGUMENTS.items():
        value = getattr(settings, setting)
        if value is not None and argument in traits.arguments and setting not in traits.ignored:
            passed[argument] = value
    if traits.cfg is not None and not cfg_is_on(settings, traits):
        # Passing it would only make the pipeline log that it does nothing.
        passed.pop("negative_prompt", None)
    if settings.size != "source" and traits.size == "any":
        passed["width"], passed["height"] = settings.size
        if traits.area_argument:
            passed[traits.area_argument] = settings.size[0] * settings.size[1]
    return passed | settings.extra


def cfg_is_on(settings: DiffusionParameters, traits: Traits) -> bool:
    """Whether a second, unconditional prediction really steers the edit."""
    cfg = traits.cfg
    if cfg is None or cfg.scale in traits.ignored:
        return False
    scale = getattr(settings, cfg.scale)
    enough = all((getattr(settings, name) or 0.0) >= least for name, least in cfg.at_least.items())
    has_prompt = settings.negative_prompt is not None or not cfg.negative_prompt
    return scale is not None and scale > 1 and enough and has_prompt


def guidance(settings: DiffusionParameters, traits: Traits) -> dict[str, Json]:
    """The guidance that acted, for the record."""
    acting = {name: getattr(settings, name) for name in traits.guidance if getattr(settings, name) is not None}
    return {"cfg": cfg_is_on(settings, traits), **acting}


def unheeded(settings: DiffusionParameters, traits: Traits, pipeline: str) -> Iterator[str]:
    """Settings that the pipeline ignores or rejects."""
    takes = ", ".join(name for name, argument in ARGUMENTS.items() if argument in traits.arguments)
    for setting, argument in ARGUMENTS.items():
        value = getattr(settings, setting)
        if value is None:
            continue
        if setting in traits.ignored:
            ignored = traits.ignored[setting]
            if value != ignored.harmless:
                instead = f"write {ignored.harmless} or remove it" if ignored.harmless is not None else "remove it"
                yield f"`{setting} = {value!r}` would be ignored: {ignored.reason}; {instead}"
        elif argument not in traits.arguments:
            yield f"`{setting}` is no setting of {pipeline}, which takes {takes}; remove it"
    yield from _without_guidance(settings, traits)
    yield from _sizes(settings, traits, pipeline)
    for name in settings.extra:
        if name in OURS:
            yield f"`extra.{name}` is not yours to set: the request or a setting of its own gives it"


def unfit(portraits: Sequence[Portrait], traits: Traits, pipeline: str) -> Iterator[str]:
    """Portraits that the pipeline rejects."""
    if traits.min_side == 1 and traits.max_aspect is None:
        return
    for portrait in portraits:
        try:
            with Image.open(portrait.image.path) as picture:
                width, height = picture.size
        except (OSError, Image.DecompressionBombError, Image.DecompressionBombWarning):
            continue  # the audit says itself which pictures it cannot read
        if min(width, height) < traits.min_side:
            yield (
                f"the portrait {portrait.id!r} has {width}×{height} pixels and {pipeline} rejects sides under "
                f"{traits.min_side}; leave it out or enlarge it"
            )
        elif traits.max_aspect and max(width, height) > traits.max_aspect * min(width, height):
            yield f"the portrait {portrait.id!r} ({width}×{height}) is longer than {pipeline} accepts; crop it"


def unknown_arguments(extra: Mapping[str, Json], traits: Traits, signature: Sequence[str], name: str) -> Iterator[str]:
    """Arguments that the installed class does not have."""
    for argument in extra:
        if argument not in signature:
            yield f"`extra.{argument}` is no argument of {name}; it has {', '.join(signature)}"
    for argument in traits.arguments:
        if argument not in signature:
            yield f"`capabilities.arguments` names {argument!r}, which {name} does not have; remove it"


def _without_guidance(settings: DiffusionParameters, traits: Traits) -> Iterator[str]:
    cfg = traits.cfg
    if cfg is None or cfg.scale in traits.ignored:
        return
    scale = getattr(settings, cfg.scale)
    asked = scale is not None and scale > 1
    if asked and cfg.negative_prompt and settings.negative_prompt is None:
        yield f'`{cfg.scale} = {scale}` would be ignored without a negative prompt; add `negative_prompt = " "`'
    for name, least in cfg.at_least.items():
        value = getattr(settings, name)
        if asked and value is not None and value < least:
            yield f"`{name} = {value}` turns `{cfg.scale}` off; write {least} or more"
    if not asked and "negative_prompt" in settings.model_fields_set and settings.negative_prompt is not None:
        yield f"`negative_prompt` would be ignored while `{cfg.scale}` is not above 1; raise that or remove it"


def _sizes(settings: DiffusionParameters, traits: Traits, pipeline: str) -> Iterator[str]:
    if settings.size == "source":
        return
    if traits.size != "any":
        yield f'`size` cannot be chosen: {pipeline} follows the source; write "source"'
        return
    width, height = settings.size
    if width % traits.multiple or height % traits.multiple:
        near = [side // traits.multiple * traits.multiple for side in (width, height)]
        yield f"`size = [{width}, {height}]` would become {near}: {pipeline} needs multiples of {traits.multiple}"
