"""A function as an editor, compared with a bare durable loop: decode, call, encode, sync, and one SQLite row each.

Processor seconds. Pictures have the detail of a portrait; the function does as little as one can.
"""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image, ImageOps

from bench._figures import cpu_seconds, note
from bench.judges import photo
from stillme.api.pipeline import run_stages
from stillme.audit import load

LIMIT = 1.8
PEOPLE = 10
SIDE = 512
ROUNDS = 3
EDIT = "from PIL import ImageOps\n\ndef edit(image, seed):\n    return ImageOps.autocontrast(image, cutoff=seed)\n"


def main() -> None:
    for isolated in (True, False):
        where = "in a process of its own" if isolated else "in threads"
        ratios: list[float] = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as scratch:
                audit = write_audit(Path(scratch), isolated=isolated)
                requests = _requests(audit)
                bare = cpu_seconds(partial(_bare, audit, requests)) / len(requests)
                ours = cpu_seconds(partial(run_stages, audit, ("edit",))) / len(requests)
            ratios.append(ours / bare)
        ratio = median(ratios)
        note(
            __name__, f"function editor {where}", ratio * bare * 1000, "ms", peer="a bare durable loop", of=bare * 1000
        )
        assert ratio <= LIMIT


def write_audit(folder: Path, *, isolated: bool) -> Path:
    pictures = folder / "portraits"
    pictures.mkdir()
    stream = np.random.default_rng(0)
    rows = ["file,group"]
    for number in range(PEOPLE):
        photo(stream, pictures / f"p{number}.jpg", SIDE)
        rows.append(f"p{number}.jpg,{'ab'[number % 2]}")
    (pictures / "portraits.csv").write_text("\n".join(rows))
    (folder / "edit.py").write_text(EDIT)
    (folder / "audit.toml").write_text(
        '[portraits]\nsource = "./portraits"\n[[editors]]\nuse = "python:./edit.py:edit"\nseeds = [1, 2]\n'
        '[[judges]]\nuse = "scripted"\n[estimates]\nfactors = ["group"]\n'
        f"[executor]\nisolate = {str(isolated).lower()}\n"
    )
    return folder


def _requests(audit: Path) -> list[tuple[Path, int]]:
    loaded = load(audit)
    return [(request.portraits[0].image.path, request.seed) for request in loaded.requests(loaded.editors[0])]


def _bare(folder: Path, requests: list[tuple[Path, int]]) -> None:
    rows = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    rows.execute("PRAGMA journal_mode = WAL")
    rows.execute("PRAGMA synchronous = FULL")
    rows.execute("CREATE TABLE edit (id INTEGER PRIMARY KEY, portrait, seed, sha256)")
    for path, seed in requests:
        with Image.open(path) as opened:
            made = ImageOps.autocontrast(opened.convert("RGB"), cutoff=seed)
        buffer = io.BytesIO()
        made.save(buffer, "PNG", compress_level=1)
        sha256 = hashlib.sha256(buffer.getvalue()).hexdigest()
        draft = folder / f".{sha256}"
        with draft.open("wb") as stream:
            stream.write(buffer.getvalue())
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(folder / f"{sha256}.png")
        rows.execute("INSERT INTO edit (portrait, seed, sha256) VALUES (?, ?, ?)", (str(path), seed, sha256))
