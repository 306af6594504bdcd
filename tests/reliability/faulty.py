"""Audits whose editor and judge misbehave as told."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tests import runs

EDITOR = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def edit(image, instruction, seed, portrait):
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{portrait} {seed}\\n")
    {how}
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
replicates = 200
{extra}
"""
    )
    return folder


def calls(folder: Path) -> int:
    """How often the editor was asked."""
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def rows(folder: Path, query: str = "SELECT COUNT(*) FROM edit WHERE outcome = 'edited'") -> int:
    """A number from the ledger."""
    connection = sqlite3.connect(folder / "stillme.sqlite")
    try:
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()
