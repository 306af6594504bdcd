"""A tiny Flux2 under `stillme run --only edit`, compared with a bare loop that makes the same calls.

Processor seconds, medians over rounds. The overhead is measured inside the run itself, as the time spent
neither in the pipeline nor on image files: two runs of the same loop differ by 10 % on a busy machine. A tiny pipeline
is the worst case: an edit takes 0.1 s instead of 10 s or more.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image

from bench._figures import note
from stillme.api.pipeline import RunOptions, run_stages
from stillme.audit import load
from stillme.core import images
from stillme.core.protocols import Editor
from stillme.core.types import Request
from stillme.runs.store.pictures import Pictures

OVERHEAD = 0.03
SPEED_UP = 2.0
PORTRAITS = 6
SIDE = 64
STEPS = 28
"""The fewest of the paper's presets."""
TOKENS = 256
BATCH = 4
ROUNDS = 3


def main() -> None:
    missing = [name for name in ("torch", "diffusers", "transformers") if find_spec(name) is None]
    if missing:
        print(f"not run: {', '.join(missing)} not installed (`pip install 'stillme[diffusers]'`)")
        return
    # `torch.set_num_threads` applies to the calling thread only, and the edits run in another.
    os.environ["OMP_NUM_THREADS"] = "1"
    from tests.editors.diffusion import tiny

    tiny.allow_torchvision()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        weights = tiny.flux2(folder / "weights")
        _overhead(folder, weights)
        _batching(folder, weights)


def _overhead(folder: Path, weights: Path) -> None:
    audit = _write_audit(folder / "audit", weights, batch=BATCH)
    requests = _requests(audit)
    runs = (folder / f"run{number}" for number in itertools.count())
    _bare(weights, requests)  # warm-up
    bare = _timed(lambda: _bare(weights, requests))
    overheads: list[float] = []
    for _ in range(ROUNDS):
        with _measured_spending() as spent:
            whole = _timed(lambda: run_stages(audit, ("edit",), RunOptions(out=next(runs))))
        overheads.append((whole - spent["pipeline"] - spent["writing"]) / spent["pipeline"])
    overhead = median(overheads)
    print(f"bare loop           {bare:>8.2f} s for {len(requests)} edits")
    print(
        f"run --only edit     {whole:>8.2f} s, of which {spent['pipeline']:.2f} s in the pipeline "
        f"and {spent['writing']:.2f} s for encoding and storing images"
    )
    milliseconds = 1000 * overhead * spent["pipeline"] / len(requests)
    print(f"overhead            {overhead:>8.1%}, {milliseconds:.1f} ms per edit, target at most {OVERHEAD:.0%}")
    took = (1 + overhead) * spent["pipeline"]
    note(__name__, "edit, pictures aside", took, "s", peer="the pipeline alone", of=spent["pipeline"])
    note(__name__, "edit, all of it", whole, "s", peer="a bare diffusers loop", of=bare)
    assert overhead <= OVERHEAD, "stillme run --only edit costs more than the target"


def _batching(folder: Path, weights: Path) -> None:
    editors: dict[int, tuple[Editor, list[Request]]] = {}
    for batch in (1, 8):
        audit = load(_write_audit(folder / f"batch{batch}", weights, batch=batch))
        [named] = audit.editors
        editors[batch] = named.editor, list(audit.requests(named))[:40]
        list(named.editor.edit(editors[batch][1][:batch]))  # loads
    rounds = [[_timed(lambda e=e, r=r: list(e.edit(r))) for e, r in editors.values()] for _ in range(ROUNDS)]
    for editor, _ in editors.values():
        editor.close()
    alone, together = (median(times) for times in zip(*rounds, strict=True))
    gain = median(left / right for left, right in rounds)
    print(f"one prompt at a time{40 / alone:>8.1f} edits/s")
    print(f"eight at a time     {40 / together:>8.1f} edits/s, ×{gain:.1f}, target ×{SPEED_UP:g}")
    note(__name__, "eight prompts at a time", 40 / together, "edits/s", peer="one at a time", of=40 / alone)
    assert gain >= SPEED_UP, "batching gains less than the target"


def _timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


@contextmanager
def _measured_spending() -> Iterator[Counter[str]]:
    """Measure the seconds spent in the pipeline, by any caller, and on image files."""
    from diffusers import DiffusionPipeline, Flux2Pipeline

    spent: Counter[str] = Counter()

    def measured(real: Callable[..., Any], what: str) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return real(*args, **kwargs)
            finally:
                spent[what] += time.thread_time() - started

        return call

    with ExitStack() as stack:
        for owner, name, what in (
            (DiffusionPipeline, "from_pretrained", "pipeline"),
            (Flux2Pipeline, "__call__", "pipeline"),
            (images, "encode_png", "writing"),
            (Pictures, "add", "writing"),
        ):
            stack.enter_context(patch.object(owner, name, measured(getattr(owner, name), what)))
        yield spent


def _bare(weights: Path, requests: Sequence[Request]) -> None:
    import torch
    from diffusers import DiffusionPipeline

    pipe: Any = DiffusionPipeline.from_pretrained(str(weights), dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    for batch in _batches(requests):
        picture = Image.open(batch[0].portraits[0].image.path).convert("RGB")
        pipe(
            image=picture,
            prompt=[request.instruction for request in batch],
            generator=[torch.Generator("cpu").manual_seed(request.seed) for request in batch],
            num_inference_steps=STEPS,
            guidance_scale=4.0,
            width=SIDE,
            height=SIDE,
            max_sequence_length=TOKENS,
            text_encoder_out_layers=(1, 2, 3),
        )


def _batches(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """Twenty prompts per portrait are a multiple of the batch, so no batch crosses portraits."""
    for start in range(0, len(requests), BATCH):
        yield requests[start : start + BATCH]


def _requests(audit: Path) -> list[Request]:
    loaded = load(audit)
    return list(loaded.requests(loaded.editors[0]))


def _write_audit(folder: Path, weights: Path, *, batch: int) -> Path:
    pictures = folder / "portraits"
    pictures.mkdir(parents=True)
    noise = np.random.default_rng(0)
    rows = ["file,group"]
    for index in range(PORTRAITS):
        Image.fromarray(noise.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)).save(pictures / f"p{index}.png")
        rows.append(f"p{index}.png,{'ab'[index % 2]}")
    (pictures / "portraits.csv").write_text("\n".join(rows))
    (folder / "audit.toml").write_text(
        f"""
[portraits]
source = "./portraits"
[[editors]]
use = "flux2-dev"
seeds = [42]
[editors.parameters]
repo = "{weights}"
steps = {STEPS}
size = [{SIDE}, {SIDE}]
max_sequence_length = {TOKENS}
dtype = "float32"
batch = {batch}
extra = {{ text_encoder_out_layers = [1, 2, 3] }}
[[judges]]
use = "scripted"
[estimates]
factors = ["group"]
"""
    )
    return folder
