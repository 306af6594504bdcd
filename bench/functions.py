"""A function as an editor, compared with a bare durable loop: decode, call, encode, sync, and one SQLite row each.

Processor seconds. Pictures have the detail of a portrait; the function does as little as one can.
"""

from __future__ import annotations

import hashlib
import io
import os
import resource
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image, ImageOps

from bench._figures import note
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
                bare = _seconds(partial(_bare, audit, requests)) / len(requests)
                ours = _seconds(partial(run_stages, audit, ("edit",))) / len(requests)
            ratios.append(ours / bare)
        ratio = median(ratios)
        print(f"{where:<24} {1000 * ours:.1f} CPU ms an edit, ×{ratio:.2f} of a bare durable loop, limit ×{LIMIT}")
        note(
            __name__, f"function editor {where}", ratio * bare * 1000, "ms", peer="a bare durable loop", of=bare * 1000
        )
        assert ratio <= LIMIT, f"a function editor {where} costs more than its limit"


def write_audit(folder: Path, *, isolated: bool) -> Path:
    pictures = folder / "portraits"
    pictures.mkdir()
    stream = np.random.default_rng(0)
    rows = ["file,group"]
    for number in range(PEOPLE):
        rough, fine = (
            Image.fromarray(stream.integers(0, 255, (side, side, 3), dtype=np.uint8)).resize((SIDE, SIDE))
            for side in (16, SIDE // 4)
        )
        Image.blend(rough, fine, 0.2).save(pictures / f"p{number}.jpg", quality=90)
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


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds of this process and its children."""
    before = _used()
    work()
    return _used() - before


def _used() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
