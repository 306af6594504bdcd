"""Edit with a diffusers pipeline in this process."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from PIL import Image
from pydantic import BaseModel

from stillme import images
from stillme.editors.diffusion import calls, loading, tokens
from stillme.editors.diffusion.overhearing import overheard
from stillme.editors.diffusion.parameters import DiffusionParameters, OpenParameters, parameters_of
from stillme.editors.diffusion.pictures import NotANumber, to_rgb
from stillme.editors.diffusion.traits import Traits, pipelines, presets
from stillme.editors.diffusion.weights import Weights
from stillme.errors import UnreadableImage
from stillme.protocols import Needs
from stillme.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Refused, Request, Spec

_VERSION = "1"
_NEEDED = ("torch", "diffusers", "transformers", "accelerate")


class DiffusersEditor:
    """A pipeline of diffusers behind the `Editor` protocol."""

    Parameters: ClassVar[type[BaseModel]] = DiffusionParameters
    needs: ClassVar[Needs] = Needs(modules=_NEEDED, extra="diffusers")

    def __init__(
        self, name: str, parameters: DiffusionParameters, pipeline: str, traits: Traits, unknown: str = ""
    ) -> None:
        self._parameters, self._pipeline, self._traits, self._unknown = parameters, pipeline, traits, unknown
        self._weights = Weights.meant_by(parameters, parameters.repo, parameters.revision)
        stated = {**parameters.model_dump(mode="json"), "pipeline": pipeline, **self._weights.keyed()}
        self.spec = Spec(use=name, version=_VERSION, parameters=stated)
        self.capabilities = traits.capabilities(batch=parameters.batch)
        self._loaded: loading.Loaded | Failed | None = None
        self._counts: dict[str, int] = {}

    def objections(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Settings that would not act, prompts that would be cut off, portraits that would be rejected."""
        if not self._weights.is_folder and self._weights.repo.count("/") > 1:
            yield f"`repo = {self._weights.repo!r}` is neither a folder here nor a repository's owner/name"
            return
        if self._weights.is_folder and not (self._weights.folder / "model_index.json").is_file():
            yield f"`repo` names the folder {self._weights.repo}, which holds no model_index.json; name a pipeline's"
            return
        if self._unknown:
            yield self._unknown
            return
        parameters, traits, name = self._parameters, self._traits, self._pipeline
        yield from calls.unheeded(parameters, traits, name)
        yield from calls.unfit(portraits, traits, name)
        yield from loading.unavailable(parameters, traits)
        if traits.tokens:
            yield from tokens.too_long(prompts, traits.tokens, self._token_limit, self._weights, editor=self.spec.use)
        if parameters.extra or (isinstance(parameters, OpenParameters) and parameters.capabilities):
            yield from self._unknown_arguments()

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One outcome per request. Prompts of one portrait share a call where the pipeline allows it."""
        size = self._parameters.batch if self._traits.batching == "shared_image" else 1
        for _, group in itertools.groupby(requests, lambda request: request.portraits):
            while batch := list(itertools.islice(group, size)):
                yield from self._attempt(batch)

    def close(self) -> None:
        """Free the weights."""
        held, self._loaded = self._loaded, None
        scarce = isinstance(held, loading.Loaded) and held.on_accelerator
        del held
        if scarce:
            loading.forget()

    @property
    def _token_limit(self) -> int:
        limits = self._traits.tokens
        moved = self._parameters.max_sequence_length if limits and limits.argument else None
        return moved or (limits.limit if limits else 0)

    def _unknown_arguments(self) -> Iterator[str]:
        if find_spec("diffusers") is None:
            return
        try:
            found = getattr(import_module("diffusers"), self._pipeline, None)
        except (ImportError, RuntimeError) as error:  # as with a torchvision of another build than torch
            yield f"diffusers cannot import {self._pipeline} ({str(error)[-200:]}); `pip check` may tell why"
            return
        if found is None:
            yield f"diffusers has no pipeline {self._pipeline!r}; name the class of a pipeline that edits images"
            return
        named = inspect.signature(found.__call__).parameters.values()
        signature = [one.name for one in named if one.kind is not one.VAR_KEYWORD and one.name != "self"]
        yield from calls.unknown_arguments(self._parameters.extra, self._traits, signature, self._pipeline)

    def _ready(self) -> loading.Loaded | Failed:
        if self._loaded is None:
            try:
                self._loaded = loading.load(self._parameters, self._traits, self._weights, self._pipeline)
            except Exception as error:
                # Kept, so that a thousand requests do not each try to load 60 GB; a rerun tries again.
                self._loaded = Failed(error=f"the weights cannot be loaded: {_described(error)}", retryable=True)
        return self._loaded

    def _attempt(self, batch: list[Request]) -> list[EditOutcome]:
        if len(batch[0].portraits) > self.capabilities.inputs:
            many = f"{len(batch[0].portraits)} portraits in one request, and {self.spec.use} takes "
            return [Failed(error=f"{many}{self.capabilities.inputs}", retryable=False) for _ in batch]
        ready = self._ready()
        if isinstance(ready, Failed):
            return [ready for _ in batch]
        try:
            return self._call(ready, batch)
        except UnreadableImage as error:
            return [Failed(error=str(error), retryable=False) for _ in batch]
        except Exception as error:
            failed = _failure(error, self._parameters)
        # Outside of the handler: its traceback would keep the batch's tensors alive.
        loading.forget()
        if len(batch) > 1:
            return [outcome for request in batch for outcome in self._attempt([request])]
        return [failed]

    def _call(self, ready: loading.Loaded, batch: list[Request]) -> list[EditOutcome]:
        torch: Any = import_module("torch")
        pictures = [Image.fromarray(images.read_rgb(portrait.image.path)) for portrait in batch[0].portraits]
        words = [request.instruction for request in batch]
        # The noise comes from the CPU, so that a seed means the same on every device.
        generators = [torch.Generator("cpu").manual_seed(request.seed) for request in batch]
        with overheard() as warnings:
            made = ready.pipe(
                image=self._as_passed(pictures, len(batch)),
                prompt=words if self._traits.batching == "shared_image" else words[0],
                generator=generators,
                output_type="np",
                **calls.arguments(self._parameters, self._traits),
            )
        blocked = getattr(made, "nsfw_content_detected", None) or [False] * len(batch)
        common: dict[str, Json] = {
            **ready.about,
            "guidance": calls.guidance(self._parameters, self._traits),
            "steps": getattr(ready.pipe, "num_timesteps", None) or self._parameters.steps,
            "batch": len(batch),
            "source_size": list(pictures[0].size),
            **({"warnings": warnings} if warnings else {}),
        }
        outcomes: list[EditOutcome] = []
        for request, pixels, is_blocked in zip(batch, made.images, blocked, strict=True):
            effective = {**common, **self._counted(ready.pipe, request.instruction)}
            outcomes.append(_outcome(pixels, effective, is_blocked=bool(is_blocked)))
        return outcomes

    def _as_passed(self, pictures: list[Image.Image], prompts: int) -> Any:
        match self._traits.images:
            case "list":
                return pictures
            case "one":
                return pictures[0]
            case "repeated":
                return pictures * prompts

    def _counted(self, pipe: Any, instruction: str) -> dict[str, Json]:
        limits = self._traits.tokens
        if limits is None or getattr(pipe, limits.component, None) is None:
            return {}
        found = self._counts.get(instruction)
        if found is None:  # the same words meet every portrait
            found = tokens.counter(limits, getattr(pipe, limits.component))(instruction)
            self._counts[instruction] = found
        return {"prompt_tokens": found, "prompt_limit": self._token_limit, "truncated": found > self._token_limit}


class Diffusers(DiffusersEditor):
    """Any diffusers pipeline that edits images, from a repository or a folder."""

    shorthand: ClassVar[str] = "repo"
    """`diffusers:somebody/weights` sets this parameter."""
    Parameters: ClassVar[type[BaseModel]] = OpenParameters

    def __init__(self, parameters: OpenParameters) -> None:
        weights = Weights.meant_by(parameters, parameters.repo, parameters.revision)
        pipeline = parameters.pipeline or str(weights.index().get("_class_name", ""))
        known = pipelines().get(pipeline)
        unknown = ""
        if not pipeline:
            unknown = f"`pipeline` is missing: name the pipeline class of {parameters.repo}, such as Flux2Pipeline"
        elif known is None and parameters.capabilities is None:
            unknown = (
                f"stillme does not know how {pipeline} is called; declare it in `capabilities`, "
                f"or use one of {', '.join(pipelines())}"
            )
        super().__init__("diffusers", parameters, pipeline, parameters.capabilities or known or Traits(), unknown)


def named(title: str, name: str) -> type[DiffusersEditor]:
    """The editor class of a preset. `title` is the name that it is bound to in `named.py`."""
    preset = presets()[name]

    class Named(DiffusersEditor):
        Parameters: ClassVar[type[BaseModel]] = parameters_of(name, preset)
        needs: ClassVar[Needs] = Needs(modules=_NEEDED, extra="diffusers", memory_gb=preset.memory_gb)
        default_seed: ClassVar[int] = preset.seed

        def __init__(self, parameters: DiffusionParameters) -> None:
            super().__init__(name, parameters, preset.pipeline, preset.traits)

    Named.__doc__ = preset.summary
    Named.__name__ = Named.__qualname__ = title
    Named.__module__ = "stillme.editors.diffusion.named"
    return Named


def _outcome(pixels: Any, effective: dict[str, Json], *, is_blocked: bool) -> EditOutcome:
    if is_blocked:
        return Refused(message="the pipeline's safety checker blocked the image", effective=effective)
    try:
        rgb = to_rgb(pixels)
    except NotANumber as error:
        return Failed(error=f"{error}, computed as {effective['dtype']}; try another dtype", retryable=False)
    return Edited(image=images.encode_png(rgb), effective={**effective, "size": [rgb.shape[1], rgb.shape[0]]})


def _failure(error: Exception, parameters: DiffusionParameters) -> Failed:
    if loading.is_out_of_memory(error):
        advice = f"`offload` (now {parameters.offload}) and a smaller `batch` need less"
        return Failed(error=f"out of memory: {_described(error)} ({advice})", retryable=True)
    # What a pipeline rejects today it rejects tomorrow; a device's fault may pass.
    return Failed(error=_described(error), retryable=not isinstance(error, (ValueError, TypeError)))


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}"[:2000]
