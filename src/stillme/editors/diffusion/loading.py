"""Load a pipeline as its parameters say. What cannot work is refused before gigabytes are read."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stillme.core.types import Json
from stillme.editors.diffusion.traits import DiffusionParameters, Traits
from stillme.editors.diffusion.weights import (
    UnusableWeights,
    Weights,
    explained,
    fetched,
    fetched_folder,
    record_of,
    size_gb,
)

_LIBRARIES = ("torch", "diffusers", "transformers", "accelerate")
_NEEDED = {"bitsandbytes": "bitsandbytes", "torchao": "torchao"}
"""Quantisation backends and the modules that they import."""
_CPU_GB = 8.0
"""Weights up to which an edit on a CPU takes minutes, not hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pipeline, ready to edit."""

    pipe: Any
    about: dict[str, Json]
    """What all its edits have in common: weights, device, library versions."""
    on_accelerator: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to load, and from where."""

    parameters: DiffusionParameters
    traits: Traits
    pipeline: str
    """The expected class; empty for any."""
    sources: Sequence[Weights]
    """In the order of `DiffusionParameters.sources`."""
    memory_gb: float = 0.0
    """What the preset says of its own weights; 0 if unknown."""


def load(recipe: Recipe, commits: Sequence[str], device: str) -> Loaded:
    """Read the weights and prepare them."""
    parameters, traits = recipe.parameters, recipe.traits
    torch: Any = import_module("torch")
    target = _device(torch, device)
    index = _checked_index(recipe, commits[0])
    _refuse_silent_cpu(recipe, commits[0], device, target)
    diffusers: Any = import_module("diffusers")
    import_module("diffusers.utils.logging").disable_progress_bar()
    import_module("transformers.utils.logging").disable_progress_bar()
    dtype = getattr(torch, parameters.dtype)
    with captured_warnings() as warnings:
        pipe = _assembled(diffusers, recipe, commits, index, dtype)
        _add_adapters(pipe, recipe, commits)
    pipe.set_progress_bar_config(disable=True)
    _accelerate(pipe, getattr(pipe, traits.denoiser, None), parameters, torch, dtype)
    _place(pipe, parameters, torch, target)
    about: dict[str, Json] = {
        "pipeline": type(pipe).__name__,
        "weights": record_of(recipe.sources, commits),
        "device": _described(torch, target),
        "dtype": parameters.dtype,
        "libraries": {name: installed for name in _LIBRARIES if (installed := _version(name))},
        **({"loading_warnings": warnings} if warnings else {}),
    }
    return Loaded(pipe=pipe, about=about, on_accelerator=target.type != "cpu")


def class_problem(weights: Weights, actual: str, pipeline: str) -> str:
    """A pipeline of another class than the one that will be called; empty if it is the one."""
    if not pipeline or not actual or actual == pipeline:
        return ""
    return f"{weights.repo} is a {actual}, not a {pipeline}; use its own preset, or `diffusers`"


def option_problems(parameters: DiffusionParameters) -> Iterator[str]:
    """Options of running the weights that this machine does not support."""
    if parameters.offload != "none" and parameters.device == "cpu":
        yield f"`offload = {parameters.offload!r}` needs an accelerator and `device` is cpu; remove one of them"
    if parameters.quantised and parameters.quantisation == "none":
        yield "`quantised` would be ignored without `quantisation`; set it, or remove `quantised`"
    if parameters.quantisation.startswith("bitsandbytes") and parameters.device == "cpu":
        yield f"`quantisation = {parameters.quantisation!r}` needs a GPU and `device` is cpu; use torchao"
    module = _NEEDED.get(parameters.quantisation.partition("-")[0])
    if module and find_spec(module) is None:
        yield f"`quantisation = {parameters.quantisation!r}` needs {module}: run `pip install {module}`"
    if any(part.file.endswith(".gguf") for part in parameters.components.values()) and find_spec("gguf") is None:
        yield "a component's file is a GGUF, which needs gguf: run `pip install gguf`"
    if parameters.lora and find_spec("peft") is None:
        yield "`lora` needs peft: run `pip install peft`"
    if parameters.devices and parameters.devices != "all":
        kinds = {device.partition(":")[0] for device in parameters.devices}
        if "auto" in kinds or len(kinds) > 1:
            yield (
                f"`devices = {list(parameters.devices)}` must be of one kind; write for example "
                '`devices = ["cuda:0", "cuda:1"]`'
            )
        elif parameters.device != "auto" and kinds != {parameters.device.partition(":")[0]}:
            yield f"`device = {parameters.device!r}` is not the kind of `devices`; remove it, or write that kind"
    if parameters.attention and find_spec("diffusers") is not None:
        names = [entry.value for entry in import_module("diffusers.models.attention_dispatch").AttentionBackendName]
        if parameters.attention not in names:
            yield f"`attention = {parameters.attention!r}` is unknown to diffusers; write one of {', '.join(names)}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or in main memory."""
    torch: Any = import_module("torch")
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    # The CPU allocator raises a bare RuntimeError.
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def free_memory() -> None:
    """Return memory to the device now: denoisers have reference cycles, which Python would collect later."""
    import_module("gc").collect()
    torch: Any = import_module("torch")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _checked_index(recipe: Recipe, commit: str) -> dict[str, Any]:
    """model_index.json, a small file, tells what the pipeline is; a gated repository refuses it, too."""
    weights = recipe.sources[0]
    index: dict[str, Any] = json.loads(fetched(weights, "model_index.json", commit).read_text("utf-8"))
    if problem := class_problem(weights, str(index.get("_class_name", "")), recipe.pipeline):
        raise UnusableWeights(problem)
    for name in recipe.parameters.components:
        if name not in index:
            parts = ", ".join(part for part in index if not part.startswith("_"))
            raise UnusableWeights(f"`components.{name}` is not part of {weights.repo}, which has {parts}")
    return index


def _refuse_silent_cpu(recipe: Recipe, commit: str, wanted: str, target: Any) -> None:
    if wanted != "auto" or target.type != "cpu":
        return
    size = recipe.memory_gb or size_gb(recipe.sources[0], commit)
    if size > _CPU_GB:
        raise UnusableWeights(
            f"torch {_version('torch')} sees no GPU, and with {size:.0f} GB of weights ({recipe.sources[0].repo}) an "
            'edit would take hours; install a torch for your GPU, or write `device = "cpu"` to edit there all the same'
        )


def _assembled(diffusers: Any, recipe: Recipe, commits: Sequence[str], index: dict[str, Any], dtype: Any) -> Any:
    parameters, weights = recipe.parameters, recipe.sources[0]
    replaced: dict[str, Any] = {}
    names = sorted(parameters.components)
    for name, source, commit in zip(names, recipe.sources[1:], commits[1:], strict=False):
        replaced[name] = _component(name, index[name], source, commit, recipe, commits[0], dtype)
    folder = weights.folder
    if not weights.is_folder:
        try:
            folder = Path(diffusers.DiffusionPipeline.download(weights.repo, revision=commits[0], **replaced))
        except Exception as error:
            raise UnusableWeights(explained(error, weights, commits[0])) from None
    options: dict[str, Any] = {"dtype": dtype, **replaced}
    if quantisation := _quantisation(parameters, recipe.traits, dtype, folder, replaced):
        options["quantization_config"] = quantisation
    return diffusers.DiffusionPipeline.from_pretrained(str(folder), **options)


def _component(
    name: str, named: Sequence[str], source: Weights, commit: str, recipe: Recipe, base_commit: str, dtype: Any
) -> Any:
    """A part from elsewhere: a folder of its own, a fused checkpoint, or a GGUF."""
    library, kind = named
    component_class = getattr(import_module(library), kind)
    if not source.file:
        return component_class.from_pretrained(str(fetched_folder(source, name, commit)), dtype=dtype)
    if not hasattr(component_class, "from_single_file"):
        raise UnusableWeights(f"`components.{name}` cannot be a file: {kind} loads from folders only; leave `file` out")
    # The shape comes from the pipeline's own part, the numbers from the file.
    config = fetched(recipe.sources[0], f"{name}/config.json", base_commit)
    options: dict[str, Any] = {"config": str(config.parent), "dtype": dtype}
    if source.file.endswith(".gguf"):
        options["quantization_config"] = import_module("diffusers").GGUFQuantizationConfig(compute_dtype=dtype)
    return component_class.from_single_file(str(fetched(source, source.file, commit)), **options)


def _add_adapters(pipe: Any, recipe: Recipe, commits: Sequence[str]) -> None:
    adapters = recipe.parameters.lora
    if not adapters:
        return
    if not hasattr(pipe, "load_lora_weights"):
        raise UnusableWeights(
            f"{type(pipe).__name__} takes no `lora`; remove it, or use fused weights as a component's file"
        )
    first = len(recipe.sources) - len(adapters)
    names = [f"lora{number}" for number in range(len(adapters))]
    for name, source, commit in zip(names, recipe.sources[first:], commits[first:], strict=True):
        options = {"weight_name": source.file} if source.file else {}
        if not source.is_folder:
            options["revision"] = commit
        try:
            pipe.load_lora_weights(source.repo, adapter_name=name, **options)
        except Exception as error:
            raise UnusableWeights(explained(error, source, commit)) from None
    pipe.set_adapters(names, adapter_weights=[adapter.weight for adapter in adapters])


def _quantisation(
    parameters: DiffusionParameters, traits: Traits, dtype: Any, folder: Path, replaced: Mapping[str, Any]
) -> Any:
    kind = parameters.quantisation
    if kind in ("none", "layerwise-float8"):
        return None
    parts = parameters.quantised or tuple(
        name
        for name in (traits.denoiser, "text_encoder", "text_encoder_2")
        if name not in replaced and (folder / name).is_dir()
    )
    configs = {"diffusers": import_module("diffusers"), "transformers": import_module("transformers")}
    mapping: dict[str, Any] = {}
    for part in parts:
        library = configs["diffusers" if part in (traits.denoiser, "vae") else "transformers"]
        match kind:
            case "bitsandbytes-4bit":
                mapping[part] = library.BitsAndBytesConfig(
                    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
                )
            case "bitsandbytes-8bit":
                mapping[part] = library.BitsAndBytesConfig(load_in_8bit=True)
            case "torchao-int8":
                mapping[part] = library.TorchAoConfig(import_module("torchao.quantization").Int8WeightOnlyConfig())
            case "torchao-float8":
                mapping[part] = library.TorchAoConfig(import_module("torchao.quantization").Float8WeightOnlyConfig())
    return configs["diffusers"].PipelineQuantizationConfig(quant_mapping=mapping)


def _accelerate(pipe: Any, denoiser: Any, parameters: DiffusionParameters, torch: Any, dtype: Any) -> None:
    if parameters.quantisation == "layerwise-float8":
        for name in parameters.quantised or ("",):
            part = getattr(pipe, name) if name else denoiser
            part.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=dtype)
    if parameters.attention:
        denoiser.set_attention_backend(parameters.attention)
    if parameters.vae_slicing:
        pipe.vae.enable_slicing()
    if parameters.vae_tiling:
        pipe.vae.enable_tiling()
    if parameters.compile:
        denoiser.compile_repeated_blocks(fullgraph=True)


def _place(pipe: Any, parameters: DiffusionParameters, torch: Any, device: Any) -> None:
    match parameters.offload:
        case "none":
            pipe.to(device)
        case "model":
            pipe.enable_model_cpu_offload(device=device)
        case "sequential":
            pipe.enable_sequential_cpu_offload(device=device)
        case "group":
            pipe.enable_group_offload(
                onload_device=device, offload_type="leaf_level", use_stream=torch.cuda.is_available()
            )


def _device(torch: Any, wanted: str) -> Any:
    kind = wanted.partition(":")[0]
    there = {
        "cuda": torch.cuda.is_available,
        "xpu": torch.xpu.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if wanted == "auto":
        return torch.device(next(name for name, is_there in there.items() if is_there()))
    if not there[kind]():
        raise UnusableWeights(
            f"`device = {wanted!r}`, and torch {_version('torch')} sees no such device; check it with `nvidia-smi`, "
            "install a torch for it, or write another `device`"
        )
    device = torch.device(wanted)
    if kind == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise UnusableWeights(
            f"`device = {wanted!r}`, and this machine has {count} GPUs; write one up to cuda:{count - 1}"
        )
    return device


def _described(torch: Any, device: Any) -> str:
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device.type)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@contextmanager
def captured_warnings() -> Generator[list[str]]:
    """The warnings that diffusers logs inside the block, without repeats."""
    handler = _Capture()
    logger = logging.getLogger("diffusers")
    logger.addHandler(handler)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)


class _Capture(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().strip()
        if message not in self.messages:
            self.messages.append(message)
