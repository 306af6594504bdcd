"""Audits whose editor and judge misbehave as told, and processes that die as told."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from stillme.runs.store import Store
from tests import runs

EDITOR = """
import fcntl, os, time
from pathlib import Path

HERE = Path(__file__).parent

def allowed():
    try:
        return int((HERE / "allowed").read_text() or 0)
    except FileNotFoundError:
        return 10 ** 9

def edit(image, instruction, seed, portrait):
    with (HERE / "calls").open("a+") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)
        print(portrait, seed, file=calls, flush=True)
        calls.seek(0)
        number = len(calls.readlines())
    {how}
    while number > allowed():
        time.sleep(0.01)
    value = (int(portrait[1:]) * 7 + seed * 13) % 256
    return image.point(lambda _: value)
"""


def audit(
    folder: Path,
    how: str = "pass",
    *,
    people: int = 6,
    prompts: Sequence[str] = ("O-01", "O-02"),
    seeds: Sequence[int] = (1,),
    concurrency: int = 1,
    extra: str = "",
    editor: str = "",
) -> Path:
    """An audit of `people` by a function that does `how` before it edits, rated by the scripted judge."""
    portraits = runs.people(folder / "portraits", per_group=people // 2)
    (folder / "edit.py").write_text(EDITOR.replace("{how}", how))
    (folder / "audit.toml").write_text(
        f"""
title = "Faults"
[portraits]
source = "{portraits}"
[prompts]
only = {list(prompts)}
[[editors]]
use = "python:./edit.py:edit"
name = "edit"
seeds = {list(seeds)}
{editor}
[editors.parameters]
concurrency = {concurrency}
[[judges]]
use = "scripted"
[estimates]
factors = ["group"]
{extra}
"""
    )
    return folder


def hold(folder: Path, after: int) -> None:
    """Have the editor answer so many calls and no more: a run cannot end while a test looks at it."""
    (folder / "allowed").write_text(str(after))


def release(folder: Path) -> None:
    """Have it go on."""
    (folder / "allowed").unlink()


def die_after(rows: int, seconds: float = 0.0) -> None:
    """Kill -9 this process so many seconds after it has saved so many rows: no test need look at the right moment."""
    left, add = rows, Store.add

    def counted(store: Store, made: Sequence[Any]) -> None:
        nonlocal left
        add(store, made)
        left -= len(made)
        if left <= 0 < left + len(made):
            _die_in(seconds)

    Store.add = counted


def _die_in(seconds: float) -> None:
    if not seconds:
        os.kill(os.getpid(), signal.SIGKILL)
    killing = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    killing.daemon = True
    killing.start()


def calls(folder: Path) -> int:
    """How often the editor was asked."""
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def ask(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """What the ledger answers."""
    with closing(sqlite3.connect(f"{(folder / 'stillme.sqlite').as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def rows(folder: Path, query: str = "SELECT COUNT(*) FROM edit WHERE outcome = 'edited'") -> int:
    """A number from the ledger."""
    return int(ask(folder, query)[0][0])
