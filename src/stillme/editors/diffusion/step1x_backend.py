"""Step1X-Edit v1.2 in its own environment: a fork of diffusers, transformers 4.55. Runs inside `serve.py`."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUT_OF_MEMORY = 'one edit does not fit; write `offload = "model"` or `offload = "sequential"`'


def load(parameters: dict[str, Any]) -> Any:
    """Read the weights. Only bfloat16 works with this pipeline."""
    torch: Any = import_module("torch")
    diffusers: Any = import_module("diffusers")
    kind: Any = diffusers.Step1XEditPipelineV1P2
    folder, weights = Path(parameters["repo"]).expanduser(), parameters["identity"]
    if not folder.is_dir():
        folder = Path(kind.download(parameters["repo"], revision=parameters["revision"]))
        # A snapshot's folder is named after its commit.
        weights = {"repo": parameters["repo"], "revision": folder.name}
    pipe = kind.from_pretrained(str(folder), torch_dtype=torch.bfloat16)
    pipe.set_progress_bar_config(disable=True)
    if parameters["region_e"]:
        helper = import_module("RegionE").RegionEHelper(pipe)
        helper.set_params()
        helper.enable()
    if parameters["offload"] == "model":
        pipe.enable_model_cpu_offload(device=parameters["device"])
    elif parameters["offload"] == "sequential":
        pipe.enable_sequential_cpu_offload(device=parameters["device"])
    else:
        pipe.to(parameters["device"])
    return pipe, weights


def edit(loaded: Any, message: dict[str, Any], attached: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """One edit. The first of `final_images` is the model's choice, also with reflection."""
    pipe, weights = loaded
    settings = message["settings"]
    torch: Any = import_module("torch")
    image: Any = import_module("PIL.Image").open(io.BytesIO(attached[0])).convert("RGB")
    output = pipe(
        image=image,
        prompt=message["instruction"],
        num_inference_steps=settings["steps"],
        true_cfg_scale=settings["true_cfg_scale"],
        size_level=settings["size_level"],
        generator=torch.Generator("cpu").manual_seed(message["seed"]),
        enable_thinking_mode=settings["thinking"],
        enable_reflection_mode=settings["reflection"],
    )
    chosen = output.final_images[0]
    buffer = io.BytesIO()
    chosen.save(buffer, "PNG", compress_level=1)
    libraries = {name: version(name) for name in ("torch", "diffusers", "transformers")}
    effective: dict[str, Any] = {
        "pipeline": type(pipe).__name__,
        "weights": weights,
        "size": list(chosen.size),
        "source_size": list(image.size),
        "steps": settings["steps"],
        "guidance": {"cfg": settings["true_cfg_scale"] > 1, "true_cfg_scale": settings["true_cfg_scale"]},
        "dtype": "bfloat16",
        "libraries": libraries,
    }
    if settings["thinking"]:
        effective["rewritten_prompt"] = output.reformat_prompt
    return {"effective": effective}, [buffer.getvalue()]
