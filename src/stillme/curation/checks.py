"""Look at every candidate once, and keep the numbers beside the pools."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from stillme.curation.measuring import Measured, measure
from stillme.curation.pictures import read_srgb
from stillme.curation.pools import Candidate, Pools
from stillme.errors import StillmeError, UnreadableImage

CHECKS = "checks.jsonl"
_METHOD = "1"
"""Changes with `measuring.py`; numbers of another method are measured anew."""


def check_missing(pools: Pools, *, watch: Callable[[int, int], None] | None = None) -> Mapping[str, Measured]:
    """Measure the candidates that have no numbers yet; each is kept as soon as it is measured."""
    known = read_checks(pools.folder)
    missing = {each.sha256: each for each in pools.candidates if each.sha256 not in known}
    found = dict(known)
    if missing:
        with (pools.folder / CHECKS).open("a", encoding="utf-8") as stream, ThreadPoolExecutor(_workers()) as workers:
            # A line that a crash cut short must not swallow the next one.
            stream.write("\n" if stream.tell() else "")
            waiting = [workers.submit(_look, each) for each in missing.values()]
            for done, future in enumerate(as_completed(waiting), start=1):
                sha256, measured = future.result()
                stream.write(_line(sha256, measured) + "\n")
                stream.flush()
                found[sha256] = measured
                if watch:
                    watch(done, len(missing))
    return found


def read_checks(folder: Path) -> dict[str, Measured]:
    """The numbers that are there, by the picture's SHA-256; lines that cannot be read are measured again."""
    found: dict[str, Measured] = {}
    try:
        lines = (folder / CHECKS).read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        try:
            row: dict[str, Any] = json.loads(line)
            if row["method"] == _METHOD:
                embedding = row["embedding"]
                found[row["sha256"]] = Measured(
                    values=row["values"],
                    embedding=None if embedding is None else np.array(embedding, dtype=np.float32),
                    hash=int(row["hash"], 16),
                )
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _look(candidate: Candidate) -> tuple[str, Measured]:
    try:
        return candidate.sha256, measure(read_srgb(candidate.path))
    except UnreadableImage as error:
        raise StillmeError(f"A candidate of the pools is gone or damaged: {error} Draw the pools again.") from None


def _line(sha256: str, measured: Measured) -> str:
    embedding = None if measured.embedding is None else [round(float(each), 5) for each in measured.embedding]
    row = {
        "sha256": sha256,
        "method": _METHOD,
        "values": dict(measured.values),
        "hash": f"{measured.hash:016x}",
        "embedding": embedding,
    }
    return json.dumps(row, separators=(",", ":"))


def _workers() -> int:
    return min(os.cpu_count() or 1, 8)
