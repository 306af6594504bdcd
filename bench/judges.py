"""500 pairs of real-size JPEGs judged against a loopback server that takes 50 ms, 50 questions at a time.

The server runs in a process of its own. Beside ours, in turns within the same run: a plain thread-pool script with the
official client, which downscales and encodes per call as such scripts do, and Inspect AI if it is installed.

The limit is what the latency allows, or what a core allows at the processor time that our calls take, whichever is
lower. How much of a core there is to have on a machine that others use, too, is measured just before each turn. Medians
over turns.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

from stillme.stages.loop import Budget, Limits, Stage, Stop, Tally, Terms, run
from stillme.types import Assessment, ImageFile, Pair, Prompt

PAIRS = 500
SOURCES = 25
SIDE = 1024
LATENCY = 0.05
CONCURRENCY = 50
SHARE = 0.85
TURNS = 5
SPIN = 0.3
PROMPT = Prompt(id="x", text="Dress the person in a dark suit.", category="own", subcategory="own")


Way = Callable[[Sequence[Pair]], int]
"""Asks about all pairs and returns how many were answered."""


def main() -> None:
    missing = [name for name in ("pydantic_ai", "openai") if find_spec(name) is None]
    if missing:
        print(f"not run: {', '.join(missing)} not installed (`pip install 'stillme[judges]'`)")
        return
    with tempfile.TemporaryDirectory() as scratch, _server() as url:
        pairs = _pairs(Path(scratch))
        turns = [pairs[start::TURNS] for start in range(TURNS)]
        ways: dict[str, Way] = {"stillme": partial(_stillme, url), "plain thread pool": partial(_plain, url)}
        if find_spec("inspect_ai"):
            ways["Inspect AI"] = partial(_inspect, url)
        else:
            print(f"{'Inspect AI':<28}{'–':>8} not installed (`pip install inspect-ai`)")
        for way in ways.values():
            way(pairs[:4])  # imports, connections
        found: dict[str, list[Measured]] = {name: [] for name in ways}
        for some in turns:
            for name, way in ways.items():
                found[name].append(_measured(name, some, way))
        ideal = CONCURRENCY / LATENCY
        print(f"{'latency allows':<28}{ideal:>8,.0f} pairs/s")
        for name, each in found.items():
            rate, cpu = median(one.rate for one in each), median(one.cpu for one in each)
            print(f"{name:<28}{rate:>8,.1f} pairs/s, {1000 * cpu:.1f} ms of the client's processor a pair")
        ours = found["stillme"]
        for name in ways.keys() - {"stillme"}:
            times = median(one.rate / other.rate for one, other in zip(ours, found[name], strict=True))
            print(f"{f'against {name}':<28}{f'×{times:.2f}':>8}")
        core = median(one.core for one in ours)
        share = median(one.rate / min(ideal, one.core / one.cpu) for one in ours)
        print(f"{'of a core was to be had':<28}{core:>8.0%}")
        # Encoding pictures leaves the interpreter's lock, so two cores can give more than one core's worth.
        print(f"{'share of one core’s limit':<28}{share:>8.0%}, target {SHARE:.0%}")
        assert share >= SHARE, "slower than the target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One turn of one way to ask."""

    rate: float
    """Pairs per second."""
    cpu: float
    """Seconds of the client's processor per pair."""
    core: float
    """The share of a core that one busy thread got just before."""


def _measured(name: str, pairs: Sequence[Pair], way: Way) -> Measured:
    core = _core()
    begun, cpu = time.perf_counter(), time.process_time()
    answered = way(pairs)
    seconds, cpu = time.perf_counter() - begun, (time.process_time() - cpu) / len(pairs)
    assert answered == len(pairs), f"{name}: {answered} answers to {len(pairs)} questions"
    return Measured(rate=len(pairs) / seconds, cpu=cpu, core=core)


def _core() -> float:
    begun, cpu = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begun < SPIN:
        pass
    return (time.thread_time() - cpu) / (time.perf_counter() - begun)


def _stillme(url: str, pairs: Sequence[Pair]) -> int:
    """The judge inside the loop that `stillme judge` runs it in."""
    from stillme.judges.model import Vlm

    given = {"provider": "openai-chat", "model": "m", "base_url": f"{url}/v1", "concurrency": CONCURRENCY}
    judge = Vlm(Vlm.Parameters.model_validate(given))
    kept: list[Assessment] = []
    stage: Stage[Pair, Assessment] = Stage(
        perform=lambda tasks: list(judge.judge(tasks)),
        failure=lambda said: said.failure,
        label=lambda said: "failed" if said.failure else "judged",
        cost=lambda said: said.cost,
        save=lambda done: kept.extend(each.result for each in done),
    )
    terms = Terms(budget=Budget(), stop=Stop(), watch=lambda _: None)
    batches = ([pair] for pair in pairs)
    run(stage, batches, limits=Limits(concurrency=CONCURRENCY), terms=terms, tally=Tally("judge", len(pairs)))
    judge.close()
    return sum(said.failure is None for said in kept)


def _plain(url: str, pairs: Sequence[Pair]) -> int:
    """What one writes in an afternoon: a thread per question, pictures prepared for every call."""
    from openai import OpenAI

    from stillme.judges.questions import form_of

    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked = form_of(PROMPT, 1).question(pairs[0], disclosure="blind", swapped=False)
    schema = {"name": "Evaluation", "schema": asked.answer.model_json_schema()}

    def ask(pair: Pair) -> bool:
        said = client.chat.completions.create(
            model="m",
            messages=_messages(asked.system, [_encoded(pair.sources[0]), _encoded(pair.edited)]),
            response_format={"type": "json_schema", "json_schema": schema},
        )
        return bool(asked.answer.model_validate_json(said.choices[0].message.content or ""))

    with ThreadPoolExecutor(CONCURRENCY) as pool, client:
        return sum(pool.map(ask, pairs))


def _inspect(url: str, pairs: Sequence[Pair]) -> int:
    """One sample a pair, in its own evaluation loop."""
    from inspect_ai import Task, eval  # noqa: A004
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, GenerateConfig, get_model
    from inspect_ai.solver import generate

    from stillme.judges.questions import form_of

    asked = form_of(PROMPT, 1).question(pairs[0], disclosure="blind", swapped=False)
    samples = [
        Sample(
            input=[
                ChatMessageUser(
                    content=[
                        ContentText(text=asked.system),
                        ContentImage(image=_encoded(pair.sources[0])),
                        ContentImage(image=_encoded(pair.edited)),
                    ]
                )
            ]
        )
        for pair in pairs
    ]
    config = GenerateConfig(max_connections=CONCURRENCY, max_retries=0)
    model = get_model("openai-api/loop/m", base_url=f"{url}/v1", api_key="none", config=config)
    with tempfile.TemporaryDirectory() as logs:
        (log,) = eval(
            Task(dataset=MemoryDataset(samples), solver=generate()),
            model=model,
            max_samples=CONCURRENCY,
            log_dir=logs,
            log_images=False,
            display="none",
        )
        # Inside the block: samples are read from the log's file.
        return sum(bool(sample.output.completion) for sample in log.samples or [])


def _messages(system: str, images: Sequence[str]) -> Any:
    shown = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    text = {"type": "text", "text": f"EDIT INSTRUCTION: {PROMPT.text}"}
    return [{"role": "system", "content": system}, {"role": "user", "content": [text, *shown]}]


def _encoded(image: ImageFile) -> str:
    with Image.open(image.path) as picture:
        small = picture.convert("RGB")
        small.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=92, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _pairs(folder: Path) -> list[Pair]:
    """JPEGs of the size that editors return, with as much detail as a portrait."""
    dice = np.random.default_rng(0)
    sources = [_photo(dice, folder / f"s{index}.jpg") for index in range(SOURCES)]
    edits = [_photo(dice, folder / f"e{index}.jpg") for index in range(PAIRS)]
    size = sum(image.path.stat().st_size for image in edits) / len(edits)
    print(f"{'pictures':<28}{size / 1000:>8,.0f} kB each, {SIDE} px")
    return [
        Pair(edit=str(index), sources=(sources[index * SOURCES // PAIRS],), edited=edit, prompt=PROMPT)
        for index, edit in enumerate(edits)
    ]


def _photo(dice: np.random.Generator, file: Path) -> ImageFile:
    coarse = Image.fromarray(dice.integers(0, 255, (16, 16, 3), dtype=np.uint8)).resize((SIDE, SIDE))
    fine = Image.fromarray(dice.integers(0, 255, (SIDE // 4, SIDE // 4, 3), dtype=np.uint8)).resize((SIDE, SIDE))
    Image.blend(coarse, fine, 0.2).save(file, "JPEG", quality=90)
    return ImageFile.of(file)


@contextmanager
def _server() -> Iterator[str]:
    code = "from bench.judges import serve; serve()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def serve() -> None:
    """Answer every request after the latency, with as little work as possible."""
    seen = dict.fromkeys(
        ("edit_analysis", "skin_tone_comparison", "facial_feature_analysis", "gender_presentation", "age_analysis"), "x"
    )
    scores = {"edit_success": 5, "skin_tone": 3, "race_drift": 1, "gender_drift": 1, "age_drift": 3}
    text = json.dumps({"observations": seen, "scores": scores, "evidence_summary": "x"})
    body = json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 3000, "completion_tokens": 600, "total_tokens": 3600},
        }
    ).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                await reader.readexactly(length)
                await asyncio.sleep(LATENCY)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**22)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(listen())
