"""One call of a pipeline: its arguments, the tokens it reads, its pixels, and settings that would have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stillme.core.types import Json, Portrait, Prompt
from stillme.editors.diffusion.traits import ARGUMENTS, DiffusionParameters, Ignored, Tokens, Traits
from stillme.editors.diffusion.weights import Weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESERVED = frozenset(
    {
        "image", "prompt", "generator", "output_type", "return_dict", "num_images_per_prompt", "latents", "width",
        "height", *ARGUMENTS.values(),
    }
)  # fmt: skip
"""Arguments that `extra` must not set: the request or another setting gives them."""


def arguments(settings: DiffusionParameters, traits: Traits) -> dict[str, Any]:
    """The arguments of every call of this editor: only those that the pipeline takes and uses."""
    passed: dict[str, Any] = {}
    for setting, argument in ARGUMENTS.items():
        value = getattr(settings, setting)
        if value is not None and argument in traits.arguments and setting not in traits.ignored:
            passed[argument] = value
    if traits.cfg is not None and not cfg_is_on(settings, traits):
        # Passed, it has no effect but a log line.
        passed.pop("negative_prompt", None)
    if settings.size != "source" and traits.size == "any":
        passed["width"], passed["height"] = settings.size
        if traits.area_argument:
            passed[traits.area_argument] = settings.size[0] * settings.size[1]
    return passed | settings.extra


def cfg_is_on(settings: DiffusionParameters, traits: Traits) -> bool:
    """Whether classifier-free guidance really applies: a second, unconditional prediction."""
    cfg = traits.cfg
    if cfg is None or cfg.scale in traits.ignored:
        return False
    scale = getattr(settings, cfg.scale)
    enough = all((getattr(settings, name) or 0.0) >= least for name, least in cfg.at_least.items())
    has_prompt = settings.negative_prompt is not None or not cfg.negative_prompt
    return scale is not None and scale > 1 and enough and has_prompt


def guidance(settings: DiffusionParameters, traits: Traits) -> dict[str, Json]:
    """The guidance that applied, for the record."""
    applied = {name: getattr(settings, name) for name in traits.guidance if getattr(settings, name) is not None}
    return {"cfg": cfg_is_on(settings, traits), **applied}


def setting_problems(settings: DiffusionParameters, traits: Traits, pipeline: str) -> Iterator[str]:
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
            yield f"`{setting}` is not a setting of {pipeline}, which takes {takes}; remove it"
    yield from _guidance_problems(settings, traits)
    yield from _size_problems(settings, traits, pipeline)
    for name in settings.extra:
        if name in RESERVED:
            yield f"`extra.{name}` cannot be set: the request or another setting gives it; remove it"


def portrait_problems(portraits: Sequence[Portrait], traits: Traits, pipeline: str) -> Iterator[str]:
    """Portraits that the pipeline rejects."""
    if traits.min_side == 1 and traits.max_aspect is None:
        return
    from PIL import Image

    for portrait in portraits:
        try:
            # Not through `images`: only the header counts.
            with Image.open(portrait.image.path) as picture:
                width, height = picture.size
        except (OSError, Image.DecompressionBombError, Image.DecompressionBombWarning):
            continue  # the audit reports unreadable pictures itself
        if min(width, height) < traits.min_side:
            yield (
                f"the portrait {portrait.id!r} has {width}×{height} pixels and {pipeline} rejects sides under "
                f"{traits.min_side}; exclude or enlarge it"
            )
        elif traits.max_aspect and max(width, height) > traits.max_aspect * min(width, height):
            yield f"the portrait {portrait.id!r} ({width}×{height}) is more elongated than {pipeline} accepts; crop it"


def argument_problems(extra: Mapping[str, Json], traits: Traits, signature: Sequence[str], name: str) -> Iterator[str]:
    """Arguments that the installed class does not have."""
    for argument in extra:
        if argument not in signature:
            yield f"`extra.{argument}` is not an argument of {name}, which has {', '.join(signature)}; remove it"
    for argument in traits.arguments:
        if argument not in signature:
            yield f"`capabilities.arguments` names {argument!r}, which {name} does not have; remove it"


def by_weights(traits: Traits, is_distilled: object) -> Traits:
    """The traits as the weights' own configuration has them: whether they were distilled to run without guidance."""
    if traits.cfg is None or not isinstance(is_distilled, bool):
        return traits
    scale = traits.cfg.scale
    ignored = {name: why for name, why in traits.ignored.items() if name != scale}
    guidance = tuple(dict.fromkeys((*traits.guidance, scale)))
    if is_distilled:
        ignored[scale] = Ignored(harmless=1.0, reason="these weights are step-distilled and run without guidance")
        guidance = tuple(name for name in traits.guidance if name != scale)
    return traits.model_copy(update={"ignored": ignored, "guidance": guidance})


def _guidance_problems(settings: DiffusionParameters, traits: Traits) -> Iterator[str]:
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


def _size_problems(settings: DiffusionParameters, traits: Traits, pipeline: str) -> Iterator[str]:
    if settings.size == "source":
        return
    if traits.size != "any":
        yield f'`size` cannot be chosen: {pipeline} follows the source; write "source"'
        return
    width, height = settings.size
    if width % traits.multiple or height % traits.multiple:
        near = [side // traits.multiple * traits.multiple for side in (width, height)]
        yield f"`size = [{width}, {height}]` would become {near}: {pipeline} needs multiples of {traits.multiple}"


class NotFinite(Exception):
    """Pixels that are NaN or infinite."""


def to_rgb(pixels: Any) -> NDArray[np.uint8]:
    """Floats between 0 and 1 as 8 bits. A plain cast would silently turn NaN into black."""
    import numpy as np

    values = np.asarray(pixels, dtype=np.float32)
    invalid = ~np.isfinite(values)
    if invalid.any():
        raise NotFinite(f"{invalid.any(axis=-1).mean():.0%} of the pixels are not numbers")
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)


def token_counter(tokens: Tokens, tokenizer: Any) -> Callable[[str], int]:
    """How many tokens of the limit a prompt takes, template included."""
    match tokens.counted:
        case "plain":
            return lambda text: len(tokenizer(text, verbose=False)["input_ids"])
        case "bare":
            return lambda text: len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        case "chat_text":
            return lambda text: len(tokenizer(_as_text(tokenizer, text), verbose=False)["input_ids"])
        case "chat":
            return lambda text: _in_chat(tokenizer, tokens, text)


def too_long_prompts(
    prompts: Sequence[Prompt], tokens: Tokens, limit: int, weights: Weights, *, editor: str
) -> Iterator[str]:
    """Prompts that would be truncated, as far as known without a download."""
    # No token is shorter than a byte, so most prompts need no tokenizer.
    long = [prompt for prompt in prompts if len(prompt.text.encode()) + tokens.overhead > limit]
    tokenizer = _tokenizer(tokens, weights) if long else None
    if tokenizer is None:
        return
    count = token_counter(tokens, tokenizer)
    for prompt in long:
        length = count(prompt.text)
        if length > limit:
            alternative = f", or raise `{tokens.argument}`" if tokens.argument else ""
            yield f"the prompt {prompt.id!r} has {length} tokens and {editor} reads {limit}; shorten it{alternative}"


def _tokenizer(tokens: Tokens, weights: Weights) -> Any:
    named = weights.index().get(tokens.component)
    folder = weights.local(tokens.component)
    if not named or folder is None:
        return None
    library, kind = named
    try:
        return getattr(import_module(library), kind).from_pretrained(folder)
    except (ImportError, RuntimeError):  # not installed or not usable: the edit itself reports it
        return None


def _as_text(tokenizer: Any, text: str) -> str:
    messages = [{"role": "user", "content": text}]
    rendered: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return rendered


def _in_chat(tokenizer: Any, tokens: Tokens, text: str) -> int:
    module, _, name = tokens.system.partition(":")
    system = [("system", getattr(import_module(module), name))] if module else []
    turns = [*system, ("user", text)]
    messages = [{"role": role, "content": [{"type": "text", "text": content}]} for role, content in turns]
    rendered = tokenizer.apply_chat_template(
        [messages], add_generation_prompt=False, tokenize=True, return_dict=True, padding=False
    )
    return len(rendered["input_ids"][0])
