"""A run with readers: the red of a flat picture is the person, its blue says that the person became the reference."""

from __future__ import annotations

from pathlib import Path

from stillme.api.pipeline import RunResult, run_stages
from tests.runs import people

EDITOR = """
from PIL import Image

def edit(image, instruction, seed):
    red = image.getpixel((0, 0))[0]
    person, draw = round(red / 3), hash_of(red, instruction, seed)
    if person % {groups} in {moved} and draw < {share}:
        return Image.new("RGB", (8, 8), (red, 0, 200))
    return Image.new("RGB", (8, 8), (red, 1 + int(5 * draw), 0))

def hash_of(*parts):
    import hashlib
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16) / 2 ** 32
"""
READER = """
import hashlib
GROUPS = {names}

def read(image, epoch):
    red, green, blue = image.getpixel((0, 0))
    person = round(red / 3)
    if {unsure}:
        return {{"race": None, "gender": None, "age": None}}
    group = GROUPS[-1] if blue > 120 and red < 100 else GROUPS[person % len(GROUPS)]
    draw = int(hashlib.sha256(repr((red, green, blue, epoch)).encode()).hexdigest()[:8], 16) / 2 ** 32
    if draw < {wrong}:
        group = GROUPS[(GROUPS.index(group) + 1) % len(GROUPS)]
    return {{"race": group, "gender": "masculine", "age": 40}}
"""
AUDIT = """
title = "Into what?"
arms = {arms}
[portraits]
source = "people"
[prompts]
only = {prompts}
[[editors]]
use = "python:./editor.py:edit"
name = "ours"
[[judges]]
use = "scripted"
[readings]
judges = [{{ use = "python:./reader.py:read", name = "reader" }}]
attribute = "group"
[estimates]
factors = ["group"]
{reference}
[executor]
isolate = false
"""
PROMPTS = ("O-01", "O-02", "O-06", "V-01", "V-02", "V-03")


def write(
    folder: Path,
    *,
    names: tuple[str, ...] = ("Black", "Indian", "White"),
    moved: tuple[int, ...] = (0, 1),
    share: float = 0.0,
    wrong: float = 0.0,
    unsure: str = "False",
    reference: bool = True,
    arms: tuple[str, ...] = ("baseline",),
    prompts: tuple[str, ...] = PROMPTS,
    per_group: int = 8,
) -> Path:
    """An audit whose editor makes a share of the groups in `moved` look like the last one."""
    people(folder / "people", per_group, names)
    (folder / "editor.py").write_text(EDITOR.format(groups=len(names), moved=moved, share=share))
    (folder / "reader.py").write_text(READER.format(names=names, wrong=wrong, unsure=unsure))
    declared = f'reference = {{ group = "{names[-1]}" }}' if reference else ""
    text = AUDIT.format(arms=list(arms), prompts=list(prompts), reference=declared)
    (folder / "audit.toml").write_text(text)
    return folder


def without_readers(folder: Path, instead: str = "") -> None:
    """The same audit without its [readings], or with another table in its place."""
    text = (folder / "audit.toml").read_text()
    start, end = text.index("[readings]"), text.index("[estimates]")
    (folder / "audit.toml").write_text(text[:start] + instead + text[end:])


def run(folder: Path) -> RunResult:
    """All stages but the report."""
    return run_stages(folder, ("edit", "judge"))
