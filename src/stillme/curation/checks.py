"""Measure every candidate once, and keep the measurements beside the pools."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from stillme.curation.measuring import Measured, measure
from stillme.curation.pools import Candidate, Pools
from stillme.errors import StillmeError, UnreadableImage
from stillme.images import read_rgb

CHECKS = "checks.jsonl"
_METHOD = "2"
"""Changes with `measuring.py`; measurements of another method are repeated."""


def check_missing(pools: Pools, *, watch: Callable[[int, int], None] | None = None) -> Mapping[str, Measured]:
    """Measure the candidates that have no measurements yet; each is kept as soon as it is measured."""
    known = read_checks(pools.folder)
    missing = {candidate.sha256: candidate for candidate in pools.candidates if candidate.sha256 not in known}
    checks = dict(known)
    if missing:
        with (pools.folder / CHECKS).open("a", encoding="utf-8") as stream, ThreadPoolExecutor(_workers()) as workers:
            # A line that a crash truncated must not swallow the next one.
            stream.write("\n" if stream.tell() else "")
            waiting = [workers.submit(_measure, candidate) for candidate in missing.values()]
            for done, future in enumerate(as_completed(waiting), start=1):
                sha256, measured = future.result()
                stream.write(_line(sha256, measured) + "\n")
                stream.flush()
                checks[sha256] = measured
                if watch:
                    watch(done, len(missing))
    return checks


def read_checks(folder: Path) -> dict[str, Measured]:
    """The stored measurements by the picture's SHA-256; unreadable lines are ignored, so measured again."""
    checks: dict[str, Measured] = {}
    try:
        lines = (folder / CHECKS).read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return checks
    for line in lines:
        try:
            row: dict[str, Any] = json.loads(line)
            if row["method"] == _METHOD:
                embedding = row["embedding"]
                checks[row["sha256"]] = Measured(
                    values=row["values"],
                    embedding=None if embedding is None else np.array(embedding, dtype=np.float32),
                    hash=int(row["hash"], 16),
                )
        except (ValueError, KeyError, TypeError):
            continue
    return checks


def _measure(candidate: Candidate) -> tuple[str, Measured]:
    try:
        return candidate.sha256, measure(read_rgb(candidate.path))
    except UnreadableImage as error:
        raise StillmeError(f"A candidate's picture is missing or damaged: {error} Draw the pools again.") from None


def _line(sha256: str, measured: Measured) -> str:
    embedding = None if measured.embedding is None else [round(float(number), 5) for number in measured.embedding]
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
