"""Judge 500 pairs of real-size JPEGs with a loopback server that takes 50 ms, 50 questions in flight.

The server runs in its own process. Compared in turns within the same run, by CPU time: a bare httpx loop that posts the
same files, and Inspect AI if it is installed. Both post files as they are. stillme first decodes each picture, turns it
upright, scales it and encodes it, once for all questions, so it is measured with new pictures and with known ones.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import numpy as np
from PIL import Image

from bench._figures import note
from stillme.core.types import Assessment, ImageFile, Pair, Prompt
from stillme.work.interrupt import Stop
from stillme.work.loop import run
from stillme.work.spending import Budget, Spending
from stillme.work.stage import Limits, Session, Stage
from stillme.work.tally import Tally

PAIRS = 500
SOURCES = 25
SIDE = 1024
LATENCY = 0.05
CONCURRENCY = 50
TURNS = 5
PROMPT = Prompt(id="x", text="Dress the person in a dark suit.", category="own", subcategory="own")
OURS = ("new pictures", "pictures of earlier questions")

Method = Callable[[Sequence[Pair]], int]
"""Asks about all pairs and returns the number of answers."""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, _server() as url:
        pairs = _pairs(Path(scratch))
        turns = [pairs[start::TURNS] for start in range(TURNS)]
        methods: dict[str, Method] = {
            **dict.fromkeys(OURS, partial(_stillme, url)),
            "bare httpx": partial(_bare, url),
        }
        if find_spec("inspect_ai"):
            methods["Inspect AI"] = partial(_inspect, url)
        for method in methods.values():
            method(pairs[:4])  # imports and connections
        measured: dict[str, list[float]] = {name: [] for name in methods}
        for turn in turns:
            for name, method in methods.items():
                measured[name].append(_measure(name, turn, method))
        cpu = {name: median(seconds) for name, seconds in measured.items()}
        for pictures, peer in product(OURS, methods.keys() - OURS):
            figure = f"client CPU of a pair, {pictures}"
            note(__name__, figure, 1000 * cpu[pictures], "ms", peer=peer, of=1000 * cpu[peer])


def _measure(name: str, pairs: Sequence[Pair], method: Method) -> float:
    """Seconds of client CPU a pair."""
    cpu = time.process_time()
    answered = method(pairs)
    assert answered == len(pairs), f"{name}: {answered} answers to {len(pairs)} questions"
    return (time.process_time() - cpu) / len(pairs)


def _stillme(url: str, pairs: Sequence[Pair]) -> int:
    """The judge inside the loop that `stillme run --only judge` runs it in."""
    from stillme.judges.model import Vlm

    settings = {"provider": "openai-chat", "model": "m", "base_url": f"{url}/v1", "concurrency": CONCURRENCY}
    judge = Vlm(Vlm.Parameters.model_validate(settings))
    saved: list[Assessment] = []
    stage: Stage[Pair, Assessment] = Stage(
        perform=lambda tasks: list(judge.judge(tasks)),
        failed=lambda failure: Assessment(ratings={"edit_success": failure}),
        failure=lambda assessment: assessment.failure,
        label=lambda assessment: "failed" if assessment.failure else "judged",
        cost=lambda assessment: assessment.cost,
        save=lambda finished: saved.extend(done.result for done in finished),
        name="judge",
        key=lambda pair: pair.edit,
        keep=lambda _: None,
    )
    session = Session(spending=Spending(Budget()), stop=Stop())
    batches = ([pair] for pair in pairs)
    run(stage, batches, limits=Limits(concurrency=CONCURRENCY), session=session, tally=Tally("judge", len(pairs)))
    judge.close()
    return sum(assessment.failure is None for assessment in saved)


def _bare(url: str, pairs: Sequence[Pair]) -> int:
    """What must be done in any case: read two files, post them with httpx, read the answer."""
    from stillme.judges.questions import form_of

    question = form_of(PROMPT, 1).question(pairs[0], disclosure="blind", swapped=False)
    schema = {"name": "Evaluation", "schema": question.answer.model_json_schema()}
    form = {"model": "m", "response_format": {"type": "json_schema", "json_schema": schema}}

    async def ask_all() -> int:
        places = asyncio.Semaphore(CONCURRENCY)

        async def ask(client: httpx2.AsyncClient, pair: Pair) -> bool:
            async with places:
                messages = _messages(question.system, [_data_uri(pair.sources[0]), _data_uri(pair.edited)])
                response = await client.post(f"{url}/v1/chat/completions", json=form | {"messages": messages})
            return bool(question.answer.model_validate_json(response.json()["choices"][0]["message"]["content"]))

        # Nothing is encrypted here, and to read the certificates would be a tenth of the bare loop's time.
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=60, limits=limits, verify=False) as client:
            return sum(await asyncio.gather(*(ask(client, pair) for pair in pairs)))

    return asyncio.run(ask_all())


def _inspect(url: str, pairs: Sequence[Pair]) -> int:
    """One sample per pair, in its own evaluation loop."""
    from inspect_ai import Task, eval  # noqa: A004
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, GenerateConfig, get_model
    from inspect_ai.solver import generate

    from stillme.judges.questions import form_of

    question = form_of(PROMPT, 1).question(pairs[0], disclosure="blind", swapped=False)
    samples = [
        Sample(
            input=[
                ChatMessageUser(
                    content=[
                        ContentText(text=question.system),
                        ContentImage(image=_data_uri(pair.sources[0])),
                        ContentImage(image=_data_uri(pair.edited)),
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
        # Inside the block, because samples are read lazily from the log's file.
        return sum(bool(sample.output.completion) for sample in log.samples or [])


def _messages(system: str, images: Sequence[str]) -> Any:
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    text = {"type": "text", "text": f"EDIT INSTRUCTION: {PROMPT.text}"}
    return [{"role": "system", "content": system}, {"role": "user", "content": [text, *parts]}]


def _data_uri(image: ImageFile) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(image.path.read_bytes()).decode()}"


def _pairs(folder: Path) -> list[Pair]:
    """JPEGs of the size that editors return, with as much detail as a portrait."""
    generator = np.random.default_rng(0)
    sources = [photo(generator, folder / f"s{index}.jpg") for index in range(SOURCES)]
    edits = [photo(generator, folder / f"e{index}.jpg") for index in range(PAIRS)]
    return [
        Pair(edit=str(index), sources=(sources[index * SOURCES // PAIRS],), edited=edit, prompt=PROMPT)
        for index, edit in enumerate(edits)
    ]


def photo(stream: np.random.Generator, file: Path, side: int = SIDE) -> ImageFile:
    """A picture with as much detail as a portrait."""
    rough, fine = (
        Image.fromarray(stream.integers(0, 255, (small, small, 3), dtype=np.uint8)).resize((side, side))
        for small in (16, side // 4)
    )
    Image.blend(rough, fine, 0.2).save(file, "JPEG", quality=90)
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
    observations = dict.fromkeys(
        ("edit_analysis", "skin_tone_comparison", "facial_feature_analysis", "gender_presentation", "age_analysis"), "x"
    )
    scores = {"edit_success": 5, "skin_tone": 3, "race_drift": 1, "gender_drift": 1, "age_drift": 3}
    text = json.dumps({"observations": observations, "scores": scores, "evidence_summary": "x"})
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
