"""Load a pipeline as its parameters say. Loading touches torch and diffusers in this module only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stillme.editors.diffusion.log_capture import captured_warnings
from stillme.editors.diffusion.parameters import DiffusionParameters
from stillme.editors.diffusion.traits import Traits
from stillme.editors.diffusion.weights import Weights
from stillme.errors import StillmeError
from stillme.types import Json

_LIBRARIES = ("torch", "diffusers", "transformers", "accelerate")
_NEEDED = {"bitsandbytes": "bitsandbytes", "torchao": "torchao"}
"""Quantisation backends and the modules that they import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pipeline, ready to edit."""

    pipe: Any
    about: dict[str, Json]
    """What all its edits have in common: weights, device, library versions."""
    on_accelerator: bool


def load(parameters: DiffusionParameters, traits: Traits, weights: Weights, pipeline: str) -> Loaded:
    """Read the weights and prepare them."""
    torch: Any = import_module("torch")
    diffusers: Any = import_module("diffusers")
    import_module("diffusers.utils.logging").disable_progress_bar()
    import_module("transformers.utils.logging").disable_progress_bar()
    dtype = getattr(torch, parameters.dtype)
    folder, commit = _download(diffusers, weights)
    options: dict[str, Any] = {"dtype": dtype}
    if quantisation := _quantisation(parameters, traits, dtype, folder):
        options["quantization_config"] = quantisation
    with captured_warnings() as warnings:
        pipe = diffusers.DiffusionPipeline.from_pretrained(str(folder), **options)
    if pipeline and type(pipe).__name__ != pipeline:
        raise StillmeError(
            f"{weights.repo} is a {type(pipe).__name__}, not a {pipeline}; use its own preset, or `diffusers`."
        )
    pipe.set_progress_bar_config(disable=True)
    device = _device(torch, parameters.device)
    _accelerate(pipe, getattr(pipe, traits.denoiser, None), parameters, torch, dtype)
    _place(pipe, parameters, torch, device)
    about: dict[str, Json] = {
        "pipeline": type(pipe).__name__,
        "weights": {"repo": weights.repo, "revision": commit},
        "device": _described(torch, device),
        "dtype": parameters.dtype,
        "libraries": {name: installed for name in _LIBRARIES if (installed := _version(name))},
        **({"loading_warnings": warnings} if warnings else {}),
    }
    return Loaded(pipe=pipe, about=about, on_accelerator=device.type != "cpu")


def option_problems(parameters: DiffusionParameters, traits: Traits) -> Iterator[str]:
    """Options of running the weights that this pipeline or this machine does not support."""
    if parameters.offload != "none" and parameters.device == "cpu":
        yield f"`offload = {parameters.offload!r}` needs an accelerator and `device` is cpu; remove one of them"
    if parameters.cache != "none" and parameters.cache not in traits.caches:
        known = ", ".join(traits.caches) or "none"
        yield f"`cache = {parameters.cache!r}` does not work with this pipeline; these do: {known}"
    if parameters.cache_options and parameters.cache == "none":
        yield "`cache_options` would be ignored without `cache`; set it, or remove them"
    if parameters.quantised and parameters.quantisation == "none":
        yield "`quantised` would be ignored without `quantisation`; set it, or remove `quantised`"
    if parameters.quantisation.startswith("bitsandbytes") and parameters.device == "cpu":
        yield f"`quantisation = {parameters.quantisation!r}` needs a GPU and `device` is cpu; use torchao"
    module = _NEEDED.get(parameters.quantisation.partition("-")[0])
    if module and find_spec(module) is None:
        yield f"`quantisation = {parameters.quantisation!r}` needs {module}: run `pip install {module}`"
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


def _download(diffusers: Any, weights: Weights) -> tuple[Path, str]:
    if weights.is_folder:
        return weights.folder, str(weights.identity()["revision"])
    # A snapshot's folder is named after its commit.
    folder = Path(diffusers.DiffusionPipeline.download(weights.repo, revision=weights.revision))
    return folder, folder.name


def _quantisation(parameters: DiffusionParameters, traits: Traits, dtype: Any, folder: Path) -> Any:
    kind = parameters.quantisation
    if kind in ("none", "layerwise-float8"):
        return None
    parts = parameters.quantised or tuple(
        name for name in (traits.denoiser, "text_encoder", "text_encoder_2") if (folder / name).is_dir()
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
    if parameters.cache != "none":
        hooks: Any = import_module("diffusers.hooks")
        kinds = {"first_block": hooks.FirstBlockCacheConfig, "taylorseer": hooks.TaylorSeerCacheConfig}
        denoiser.enable_cache(kinds[parameters.cache](**parameters.cache_options))
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
    if wanted != "auto":
        return torch.device(wanted)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _described(torch: Any, device: Any) -> str:
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device.type)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
