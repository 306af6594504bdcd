"""What this machine has for open weights, and what it lacks, found without loading any or importing torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stillme.editors.diffusion.traits import Preset, presets
from stillme.editors.diffusion.weights import Weights, explained

_TOOL = "nvidia-smi"
_TIMEOUT = 20.0
_SLACK = 0.97
"""A card of 24 GB reports a little less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card."""

    name: str
    total_gb: float
    free_gb: float


def gpus() -> list[Gpu]:
    """The cards that a process started here may use, as nvidia-smi lists them, in the order of CUDA's numbers."""
    if shutil.which(_TOOL) is None:
        return []
    query = [_TOOL, "--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=_TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # a driver that does not answer has no usable card
        return []
    cards: list[tuple[str, str, Gpu]] = []
    for line in shown.splitlines():
        index, uuid, name, total, free = (value.strip() for value in line.split(","))
        cards.append((index, uuid, Gpu(name=name, total_gb=_gigabytes(total), free_gb=_gigabytes(free))))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [card for _, _, card in cards]
    chosen: list[Gpu] = []
    for wanted in (part.strip() for part in visible.split(",")):
        matching = [card for index, uuid, card in cards if wanted == index or (wanted and uuid.startswith(wanted))]
        if not matching:
            break  # CUDA, too, ignores everything from the first unknown card on
        chosen.append(matching[0])
    return chosen


def _gigabytes(mebibytes: str) -> float:
    try:
        return float(mebibytes) / 1024  # as cards are named: one of 24 GB has 24,564 MiB
    except ValueError:  # some cards, such as those with unified memory, answer [N/A]
        return 0.0


def too_small(needed_gb: float, cards: Sequence[Gpu], preset: Preset | None) -> Iterator[str]:
    """No GPU, or none that holds the weights."""
    if not needed_gb:
        return
    if not cards:
        yield f"no NVIDIA GPU is seen (nvidia-smi); it needs one with about {needed_gb:.0f} GB"
        return
    largest = max(cards, key=lambda card: card.total_gb)
    if largest.total_gb >= needed_gb * _SLACK:
        if largest.free_gb < needed_gb * _SLACK:
            yield (
                f"only {largest.free_gb:.0f} of {largest.total_gb:.0f} GB are free on {largest.name}, and it needs "
                f"about {needed_gb:.0f}; end what uses the GPU"
            )
        return
    smaller = preset.smaller if preset else ""
    while smaller and presets()[smaller].memory_gb * _SLACK > largest.total_gb:
        smaller = presets()[smaller].smaller
    advice = f"use {smaller!r}" if smaller else "set `quantisation` and `offload`"
    yield f"it needs about {needed_gb:.0f} GB, and {largest.name} has {largest.total_gb:.0f} GB; {advice}"


def no_space(weights: Weights, needed_gb: float) -> Iterator[str]:
    """A disk that cannot take what is still to be downloaded."""
    if not needed_gb or find_spec("huggingface_hub") is None:
        return
    cache = Path(import_module("huggingface_hub.constants").HF_HUB_CACHE)
    name = import_module("huggingface_hub.file_download").repo_folder_name(repo_id=weights.repo, repo_type="model")
    there = sum(file.stat().st_size for file in (cache / name / "blobs").glob("*")) / 1e9
    existing = next(folder for folder in (cache, *cache.parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free / 1e9
    if free < needed_gb - there:
        yield (
            f"its weights need about {needed_gb:.0f} GB of disk, and {free:.0f} GB are free in {existing}; free space, "
            "or set HF_HOME to a larger disk"
        )


def no_access(weights: Weights) -> Iterator[str]:
    """A licence that was not accepted, or a repository that is not there. Asks the hub."""
    if find_spec("huggingface_hub") is None:
        return
    hub: Any = import_module("huggingface_hub")
    try:
        hub.auth_check(weights.repo)
    except Exception as error:
        yield explained(error, weights)
