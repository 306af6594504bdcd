"""Edit with a diffusers pipeline, in this process or in one process per device; presets are classes of their own."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from stillme.core import images
from stillme.core.errors import StillmeError, UnreadableImage
from stillme.core.protocols import Editor, Needs
from stillme.core.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Refused, Request, Spec
from stillme.editors.diffusion import calls, loading, machine
from stillme.editors.diffusion.device_pool import DevicePool
from stillme.editors.diffusion.traits import DiffusionParameters, OpenParameters, Preset, Traits, pipelines
from stillme.editors.diffusion.weights import Weights, explained, record_of, resolve

if TYPE_CHECKING:
    from PIL.Image import Image


from stillme.editors.diffusion.traits import parameters_of, presets

_VERSION = "1"
NEEDED = ("torch", "diffusers", "transformers", "accelerate")


class DiffusersEditor(Editor):
    """A pipeline of diffusers behind the `Editor` protocol."""

    Parameters = DiffusionParameters
    needs: ClassVar[Needs] = Needs(modules=NEEDED, extra="diffusers", imports=("diffusers:DiffusionPipeline",))

    def __init__(
        self,
        name: str,
        parameters: DiffusionParameters,
        pipeline: str,
        traits: Traits,
        *,
        unknown: str = "",
        preset: Preset | None = None,
    ) -> None:
        self._parameters, self._traits, self._unknown, self._preset = parameters, traits, unknown, preset
        sources = [
            Weights.from_parameters(parameters, source.repo, source.revision, source.file)
            for source in parameters.sources()
        ]
        own = preset is not None and preset.repo == parameters.repo
        self._recipe = loading.Recipe(
            parameters=parameters,
            traits=traits,
            pipeline=pipeline,
            sources=sources,
            memory_gb=preset.memory_gb if preset and own else 0.0,
        )
        self.spec = Spec(use=name, version=_VERSION, parameters=_stated(parameters, pipeline, sources))
        self._devices = _devices_of(parameters)
        self.capabilities = traits.capabilities(batch=parameters.batch, concurrency=max(1, len(self._devices)))
        self._recorded: Sequence[Mapping[str, Json]] = ()
        self._starting = threading.Lock()
        self._time_limit: float | None = None
        self._forget()

    def _forget(self) -> None:
        """As before the first edit."""
        self._loaded: loading.Loaded | Failed | None = None
        self._pool: DevicePool | Failed | None = None
        self._fitting = self._parameters.batch
        """The largest batch that may fit into memory."""
        self._counts: dict[str, int] = {}

    def keep_weights(self, recorded: Sequence[Mapping[str, Json]]) -> None:
        """Go on with the weights of earlier edits under the same key, although a branch may have moved."""
        self._recorded = recorded

    def end_calls_after(self, seconds: float) -> None:
        """A process that hangs on its device is ended, and started again with the next batch."""
        self._time_limit = seconds

    @property
    def gpus(self) -> int:
        """One, or as many as `devices` names; none on a CPU."""
        if self._parameters.devices:
            return max(1, len(self._devices))
        return int(self._parameters.device.partition(":")[0] in ("auto", "cuda"))

    @property
    def devices(self) -> tuple[str, ...]:
        """Those of `devices`, or `device` with its number; empty if neither says which."""
        return self._devices or tuple(device for device in [self._parameters.device] if ":" in device)

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Settings without effect, prompts that would be truncated, portraits that would be rejected."""
        absent = list(self._missing_weights())
        if absent or self._unknown:
            yield from absent or [self._unknown]
            return
        parameters, traits, name = self._parameters, self._traits, self._recipe.pipeline
        weights = self._recipe.sources[0]
        traits = calls.by_weights(traits, weights.index().get("is_distilled"))
        if problem := loading.class_problem(weights, str(weights.index().get("_class_name", "")), name):
            yield problem
        yield from calls.setting_problems(parameters, traits, name)
        yield from calls.portrait_problems(portraits, traits, name)
        yield from loading.option_problems(parameters)
        for module in self._preset.modules if self._preset else ():
            if find_spec(module) is None:
                yield f"the weights of {self.spec.use!r} need {module}: run `pip install {module}`"
        if parameters.devices == "all" and not self._devices:
            yield '`devices = "all"`, and nvidia-smi shows no GPU here; name them, such as `devices = ["cuda:0"]`'
        if traits.tokens:
            yield from calls.too_long_prompts(prompts, traits.tokens, self._token_limit, weights, editor=self.spec.use)
        if parameters.extra or (isinstance(parameters, OpenParameters) and parameters.capabilities):
            yield from self._argument_problems()

    def lacking(self, *, online: bool) -> Iterator[str]:
        """A GPU with enough memory, space for the weights, access to them."""
        yield from machine.too_small(self._needed_gb, machine.gpus(), self._preset)
        for weights in self._recipe.sources:
            if not weights.is_folder:
                yield from machine.no_space(weights, self.needs.disk_gb)
                yield from machine.no_access(weights) if online else ()

    @property
    def _needed_gb(self) -> float:
        """On a GPU, as far as it is known: of the preset's own weights, held there whole."""
        asked = self._parameters
        offload = self._preset.settings.get("offload", "none") if self._preset else "none"
        spared = asked.offload != offload or asked.quantisation != "none" or asked.components or asked.devices
        return 0.0 if spared or not self.gpus else self._recipe.memory_gb

    def _missing_weights(self) -> Iterator[str]:
        weights, *others = self._recipe.sources
        names = [f"components.{name}" for name in sorted(self._parameters.components)]
        names += [f"lora[{number}]" for number in range(len(self._parameters.lora))]
        for source, name in zip(others, names, strict=True):
            if problem := source.missing(name):
                yield problem
        if problem := weights.missing("repo"):
            yield problem
        elif weights.is_folder and not (weights.folder / "model_index.json").is_file():
            yield f"`repo` is the folder {weights.repo}, which has no model_index.json; name a pipeline's folder"

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One outcome per request. Prompts of one portrait share a call where the pipeline allows it."""
        if self._devices:
            yield from self._shared_out(requests)
            return
        for _, group in itertools.groupby(requests, lambda request: request.portraits):
            waiting = list(group)
            while waiting:
                size = self._fitting if self._traits.batching == "shared_image" else 1
                batch, waiting = waiting[:size], waiting[size:]
                yield from self._attempt(batch)

    def close(self) -> None:
        """Free the weights, and end the workers."""
        loaded, pool = self._loaded, self._pool
        self._forget()
        if isinstance(pool, DevicePool):
            pool.close()
        on_accelerator = isinstance(loaded, loading.Loaded) and loaded.on_accelerator
        del loaded
        if on_accelerator:
            loading.free_memory()

    def _shared_out(self, requests: Sequence[Request]) -> list[EditOutcome]:
        with self._starting:
            if self._pool is None:
                self._pool = self._started()
        if isinstance(self._pool, Failed):
            return [self._pool for _ in requests]
        return self._pool.edit(requests)

    def _started(self) -> DevicePool | Failed:
        try:
            # Once for all of them: a branch could move between two.
            weights = record_of(self._recipe.sources, resolve(self._recipe.sources, self._recorded))
        except Exception as error:
            return self._unloadable(error)
        parameters = self._parameters
        given = {**parameters.model_dump(mode="json"), "offload": parameters.offload}
        base = str(parameters.path("").resolve())
        return DevicePool(
            [
                {
                    "use": self.spec.use,
                    "parameters": {**given, "device": device},
                    "base": base,
                    "weights": weights,
                }
                for device in self._devices
            ],
            self._time_limit,
        )

    @property
    def _token_limit(self) -> int:
        tokens = self._traits.tokens
        chosen = self._parameters.max_sequence_length if tokens and tokens.argument else None
        return chosen or (tokens.limit if tokens else 0)

    def _argument_problems(self) -> Iterator[str]:
        if find_spec("diffusers") is None:
            return
        try:
            pipeline_class = getattr(import_module("diffusers"), self._recipe.pipeline, None)
        except (ImportError, RuntimeError) as error:  # as with a torchvision of another build than torch
            yield f"diffusers cannot import {self._recipe.pipeline} ({str(error)[-200:]}); run `pip check`"
            return
        if pipeline_class is None:
            yield f"diffusers has no pipeline {self._recipe.pipeline!r}; name the class of a pipeline that edits images"
            return
        parameters = inspect.signature(pipeline_class.__call__).parameters
        signature = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD][1:]
        yield from calls.argument_problems(self._parameters.extra, self._traits, signature, self._recipe.pipeline)

    def _ready(self) -> loading.Loaded | Failed:
        if self._loaded is None:
            try:
                commits = resolve(self._recipe.sources, self._recorded)
                self._loaded = loading.load(self._recipe, commits, self._parameters.device)
            except Exception as error:
                # Kept, so that not every request tries to load 60 GB; a rerun tries again.
                self._loaded = self._unloadable(error)
            if isinstance(self._loaded, Failed):
                loading.free_memory()
        return self._loaded

    def _unloadable(self, error: Exception) -> Failed:
        if loading.is_out_of_memory(error):
            reason = f"they do not fit into memory; {self._advice()}"
        else:
            reason = str(error) if isinstance(error, StillmeError) else explained(error, self._recipe.sources[0])
        return Failed(error=f"the weights cannot be loaded: {reason}", retryable=False, fatal=True)

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
            does_not_fit = loading.is_out_of_memory(error)
            failed = self._failure(error)
        # Outside of the handler: its traceback would keep the batch's tensors alive.
        loading.free_memory()
        if len(batch) == 1:
            return [failed]
        size = len(batch) // 2 if does_not_fit else 1
        if does_not_fit:
            self._fitting = min(self._fitting, size)
        parts = (batch[start : start + size] for start in range(0, len(batch), size))
        return [outcome for part in parts for outcome in self._attempt(part)]

    def _failure(self, error: Exception) -> Failed:
        if loading.is_out_of_memory(error):
            # Always the same words: a run stops when its first answers fail alike.
            return Failed(error=f"out of memory: not even one edit fits; {self._advice()}", retryable=False)
        # A rejected input stays rejected; a device's fault may pass.
        described = f"{type(error).__name__}: {str(error).strip()}"[:2000]
        return Failed(error=described, retryable=not isinstance(error, (ValueError, TypeError)))

    def _advice(self) -> str:
        """What needs less memory and is not in use yet."""
        parameters = self._parameters
        steps = ['`quantisation = "bitsandbytes-4bit"`'] if parameters.quantisation == "none" else []
        steps += ['`offload = "model"`'] if parameters.offload == "none" else []
        steps += ['`offload = "sequential"`'] if parameters.offload == "model" else []
        steps += ["`vae_tiling = true`"] if not parameters.vae_tiling else []
        smaller = self._preset.smaller if self._preset else ""
        return f"write {' or '.join(steps)}" + (f", or use the preset {smaller!r}" if smaller else "")

    def _call(self, ready: loading.Loaded, batch: list[Request]) -> list[EditOutcome]:
        torch: Any = import_module("torch")
        pictures = [images.read_picture(portrait.image.path) for portrait in batch[0].portraits]
        instructions = [request.instruction for request in batch]
        # Noise is drawn on the CPU, so that a seed gives the same on every device.
        generators = [torch.Generator("cpu").manual_seed(request.seed) for request in batch]
        with loading.captured_warnings() as warnings:
            output = ready.pipe(
                image=self._as_passed(pictures, len(batch)),
                prompt=instructions if self._traits.batching == "shared_image" else instructions[0],
                generator=generators,
                output_type="np",
                **calls.arguments(self._parameters, self._traits),
            )
        traits = calls.by_weights(self._traits, getattr(ready.pipe.config, "is_distilled", None))
        blocked = getattr(output, "nsfw_content_detected", None) or [False] * len(batch)
        common: dict[str, Json] = {
            **ready.about,
            "guidance": calls.guidance(self._parameters, traits),
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

    def _as_passed(self, pictures: list[Image], prompts: int) -> Any:
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
            count = self._counts[instruction] = calls.token_counter(rules, getattr(pipe, rules.component))(instruction)
        return {"prompt_tokens": count, "prompt_limit": self._token_limit, "truncated": count > self._token_limit}


class Diffusers(DiffusersEditor):
    """Any diffusers pipeline that edits images, from a repository or a folder."""

    shorthand = "repo"
    """`diffusers:owner/weights` sets this parameter."""
    Parameters = OpenParameters

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
        super().__init__(
            "diffusers", parameters, pipeline, parameters.capabilities or known or Traits(), unknown=unknown
        )


def _outcome(pixels: Any, effective: dict[str, Json], *, is_blocked: bool) -> EditOutcome:
    if is_blocked:
        return Refused(message="the pipeline's safety checker blocked the image", effective=effective)
    try:
        rgb = calls.to_rgb(pixels)
    except calls.NotFinite as error:
        return Failed(error=f"{error}, computed as {effective['dtype']}; try another dtype", retryable=False)
    return Edited(image=images.encode_png(rgb), effective={**effective, "size": [rgb.shape[1], rgb.shape[0]]})


def _stated(parameters: DiffusionParameters, pipeline: str, sources: Sequence[Weights]) -> dict[str, Json]:
    """What is part of the key; weights by what identifies them."""
    stated: dict[str, Json] = {**parameters.model_dump(mode="json"), "pipeline": pipeline, **sources[0].identity()}
    others = iter(sources[1:])
    for name in sorted(parameters.components):
        stated["components"][name] |= next(others).identity()
    for adapter, source in zip(stated["lora"], others, strict=True):
        adapter |= source.identity()
    return stated


def _devices_of(parameters: DiffusionParameters) -> tuple[str, ...]:
    if parameters.devices == "all":
        return tuple(f"cuda:{number}" for number in range(len(machine.gpus())))
    return parameters.devices


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
