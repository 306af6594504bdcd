"""The NVIDIA GPUs of this machine, as the driver's own tool lists them: no torch is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

_TOOL = "nvidia-smi"
_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card."""

    name: str
    total_gb: float
    free_gb: float


def gpus() -> list[Gpu]:
    """The cards that a process started here may use, in the order of CUDA's numbers."""
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
