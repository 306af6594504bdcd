"""Stands in for the environment that Step1X needs: a `diffusers` and a `torch` with the same interface, no weights.

The prompt says what goes wrong.
"""

from __future__ import annotations

from pathlib import Path

TORCH = """
bfloat16 = "bfloat16"

class OutOfMemoryError(RuntimeError):
    pass

class Generator:
    def __init__(self, device):
        assert device == "cpu"

    def manual_seed(self, seed):
        self.seed = seed
        return self
"""

DIFFUSERS = """
import os
import sys
import time
import types

import torch

class Step1XEditPipelineV1P2:
    @classmethod
    def download(cls, repo, revision):
        moved = os.environ.get("BRANCH_MOVED", "")
        commit = revision if revision.startswith("commit-of-") else f"commit-of-{revision}{moved}"
        return f"/cache/snapshots/{commit}"

    @classmethod
    def from_pretrained(cls, folder, torch_dtype):
        assert torch_dtype == "bfloat16"
        if "broken" in folder:
            raise OSError(f"{folder} has no weights")
        print("Loading, says a library that does not know what stdout is for")
        return cls()

    def set_progress_bar_config(self, disable):
        assert disable

    def to(self, device):
        assert device == "cuda"

    def __call__(self, *, image, prompt, num_inference_steps, true_cfg_scale, size_level, generator,
                 enable_thinking_mode=True, enable_reflection_mode=True):
        assert not enable_reflection_mode
        if "crash" in prompt:
            sys.stderr.write("Segmentation fault in a kernel")
            sys.stderr.flush()
            os.kill(os.getpid(), 9)
        if "hang" in prompt:
            time.sleep(600)
        if "memory" in prompt:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if "reject" in prompt:
            raise ValueError("the prompt is empty")
        if "print" in prompt:
            print("a progress bar")
        edited = image.point(lambda value: (value + generator.seed) % 256)
        return types.SimpleNamespace(final_images=[edited], images=[[edited]], reformat_prompt="Put a hat on them.")
"""


def install(folder: Path) -> Path:
    """Write the modules, with versions, into a folder for PYTHONPATH."""
    for name, version, source in (
        ("torch", "2.6.0", TORCH),
        ("diffusers", "0.35.0.dev0", DIFFUSERS),
        ("transformers", "4.55.0", ""),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)
        (folder / f"{name}-{version}.dist-info").mkdir()
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return folder
