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
from stillme.editors.diffusion.log_capture import captured_warnings
from stillme.editors.diffusion.parameters import DiffusionParameters, OpenParameters, parameters_of
from stillme.editors.diffusion.pixels import NotFinite, to_rgb
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
        self._weights = Weights.from_parameters(parameters, parameters.repo, parameters.revision)
        stated = {**parameters.model_dump(mode="json"), "pipeline": pipeline, **self._weights.identity()}
        self.spec = Spec(use=name, version=_VERSION, parameters=stated)
        self.capabilities = traits.capabilities(batch=parameters.batch)
        self._loaded: loading.Loaded | Failed | None = None
        self._counts: dict[str, int] = {}

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Settings without effect, prompts that would be truncated, portraits that would be rejected."""
        if not self._weights.is_folder and self._weights.repo.count("/") > 1:
            yield f"`repo = {self._weights.repo!r}` is neither a folder nor a repository; write a path or owner/name"
            return
        if self._weights.is_folder and not (self._weights.folder / "model_index.json").is_file():
            yield f"`repo` is the folder {self._weights.repo}, which has no model_index.json; name a pipeline's folder"
            return
        if self._unknown:
            yield self._unknown
            return
        parameters, traits, name = self._parameters, self._traits, self._pipeline
        yield from calls.setting_problems(parameters, traits, name)
        yield from calls.portrait_problems(portraits, traits, name)
        yield from loading.option_problems(parameters, traits)
        if traits.tokens:
            yield from tokens.too_long(prompts, traits.tokens, self._token_limit, self._weights, editor=self.spec.use)
        if parameters.extra or (isinstance(parameters, OpenParameters) and parameters.capabilities):
            yield from self._argument_problems()

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One outcome per request. Prompts of one portrait share a call where the pipeline allows it."""
        size = self._parameters.batch if self._traits.batching == "shared_image" else 1
        for _, group in itertools.groupby(requests, lambda request: request.portraits):
            while batch := list(itertools.islice(group, size)):
                yield from self._attempt(batch)

    def close(self) -> None:
        """Free the weights."""
        loaded, self._loaded = self._loaded, None
        on_accelerator = isinstance(loaded, loading.Loaded) and loaded.on_accelerator
        del loaded
        if on_accelerator:
            loading.free_memory()

    @property
    def _token_limit(self) -> int:
        tokens = self._traits.tokens
        chosen = self._parameters.max_sequence_length if tokens and tokens.argument else None
        return chosen or (tokens.limit if tokens else 0)

    def _argument_problems(self) -> Iterator[str]:
        if find_spec("diffusers") is None:
            return
        try:
            pipeline_class = getattr(import_module("diffusers"), self._pipeline, None)
        except (ImportError, RuntimeError) as error:  # as with a torchvision of another build than torch
            yield f"diffusers cannot import {self._pipeline} ({str(error)[-200:]}); run `pip check`"
            return
        if pipeline_class is None:
            yield f"diffusers has no pipeline {self._pipeline!r}; name the class of a pipeline that edits images"
            return
        parameters = inspect.signature(pipeline_class.__call__).parameters
        signature = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD][1:]
        yield from calls.argument_problems(self._parameters.extra, self._traits, signature, self._pipeline)

    def _ready(self) -> loading.Loaded | Failed:
        if self._loaded is None:
            try:
                self._loaded = loading.load(self._parameters, self._traits, self._weights, self._pipeline)
            except Exception as error:
                # Kept, so that not every request tries to load 60 GB; a rerun tries again.
                self._loaded = Failed(error=f"the weights cannot be loaded: {_described(error)}", retryable=True)
        return self._loaded

    def _attempt(self, batch: list[Request]) -> list[EditOutcome]:
        if len(batch[0].portraits) > self.capabilities.inputs:
            error = f"{self.spec.use} takes {self.capabilities.inputs} portraits, not {len(batch[0].portraits)}"
            return [Failed(error=error, retryable=False) for _ in batch]
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
        loading.free_memory()
        if len(batch) > 1:
            return [outcome for request in batch for outcome in self._attempt([request])]
        return [failed]

    def _call(self, ready: loading.Loaded, batch: list[Request]) -> list[EditOutcome]:
        torch: Any = import_module("torch")
        pictures = [Image.fromarray(images.read_rgb(portrait.image.path)) for portrait in batch[0].portraits]
        instructions = [request.instruction for request in batch]
        # Noise is drawn on the CPU, so that a seed gives the same on every device.
        generators = [torch.Generator("cpu").manual_seed(request.seed) for request in batch]
        with captured_warnings() as warnings:
            output = ready.pipe(
                image=self._as_passed(pictures, len(batch)),
                prompt=instructions if self._traits.batching == "shared_image" else instructions[0],
                generator=generators,
                output_type="np",
                **calls.arguments(self._parameters, self._traits),
            )
        blocked = getattr(output, "nsfw_content_detected", None) or [False] * len(batch)
        common: dict[str, Json] = {
            **ready.about,
            "guidance": calls.guidance(self._parameters, self._traits),
            "steps": getattr(ready.pipe, "num_timesteps", None) or self._parameters.steps,
            "batch": len(batch),
            "source_size": list(pictures[0].size),
            **({"warnings": warnings} if warnings else {}),
        }
        outcomes: list[EditOutcome] = []
        for request, pixels, is_blocked in zip(batch, output.images, blocked, strict=True):
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
        rules = self._traits.tokens
        if rules is None or getattr(pipe, rules.component, None) is None:
            return {}
        count = self._counts.get(instruction)
        if count is None:  # cached: the same instruction is used for many portraits
            count = self._counts[instruction] = tokens.counter(rules, getattr(pipe, rules.component))(instruction)
        return {"prompt_tokens": count, "prompt_limit": self._token_limit, "truncated": count > self._token_limit}


class Diffusers(DiffusersEditor):
    """Any diffusers pipeline that edits images, from a repository or a folder."""

    shorthand: ClassVar[str] = "repo"
    """`diffusers:somebody/weights` sets this parameter."""
    Parameters: ClassVar[type[BaseModel]] = OpenParameters

    def __init__(self, parameters: OpenParameters) -> None:
        weights = Weights.from_parameters(parameters, parameters.repo, parameters.revision)
        pipeline = parameters.pipeline or str(weights.index().get("_class_name", ""))
        known = pipelines().get(pipeline)
        unknown = ""
        if not pipeline:
            unknown = f"`pipeline` is missing: name the pipeline class of {parameters.repo}, such as Flux2Pipeline"
        elif known is None and parameters.capabilities is None:
            unknown = (
                f"stillme does not know how to call {pipeline}; declare it in `capabilities`, "
                f"or use one of {', '.join(pipelines())}"
            )
        super().__init__("diffusers", parameters, pipeline, parameters.capabilities or known or Traits(), unknown)


def named(title: str, name: str) -> type[DiffusersEditor]:
    """The editor class of a preset. `title` is its name in `named.py`."""
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
    except NotFinite as error:
        return Failed(error=f"{error}, computed as {effective['dtype']}; try another dtype", retryable=False)
    return Edited(image=images.encode_png(rgb), effective={**effective, "size": [rgb.shape[1], rgb.shape[0]]})


def _failure(error: Exception, parameters: DiffusionParameters) -> Failed:
    if loading.is_out_of_memory(error):
        advice = f"set `offload` (now {parameters.offload}) or a smaller `batch`"
        return Failed(error=f"out of memory: {_described(error)} ({advice})", retryable=True)
    # A rejected input stays rejected; a device's fault may pass.
    return Failed(error=_described(error), retryable=not isinstance(error, (ValueError, TypeError)))


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}"[:2000]
