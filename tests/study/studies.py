"""Small studies that any test can open."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stillme.runs import RecordedRun
from stillme.study import keys
from stillme.study.drawing import CheckMaker, NewStudy, StudyDesign, new_study, study_toml
from stillme.study.items import EXAMPLE, BlindedPictures, Drawn, Item, Output
from stillme.study.opening import Study, open_study

QUESTIONS = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
GROUPS = ("zyxgroupone", "zyxgrouptwo")
EDITORS = ("zyxeditorone", "zyxeditortwo")
ARMS = ("zyxarmbase", "zyxarmfeature")
PROMPT_IDS = ("ZYX-01", "ZYX-02")
SECRET_WORDS = (*GROUPS, *EDITORS, *ARMS, *PROMPT_IDS, "zyxportrait")
"""What no byte that reaches a browser may hold."""

PROLIFIC = """
[recruiting]
study_id = "study1"
[recruiting.codes]
completed = "DONE1"
failed_attention = "ATTN1"
no_consent = "NOCON1"
returned = "DEVICE1"
other = "OTHER1"
"""


def write_study(
    folder: Path,
    *,
    tasks: int = 2,
    per_task: int = 3,
    raters: int = 3,
    checks: bool = True,
    prolific: bool = True,
    extra: str = "",
    consent: str = "",
    sides: int = 2,
    side: int = 64,
) -> str:
    """Write a study of plain pictures; returns the admin's password."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = BlindedPictures(folder, side)
    stream = np.random.default_rng(3)

    def picture() -> str:
        colour = stream.integers(0, 255, 3, dtype=np.uint8)
        return pictures.add(np.broadcast_to(colour, (16, 16, 3)).copy())

    items: list[Item] = []
    for n in range(tasks * per_task):
        items.append(
            Item(
                id=f"i{n:05d}",
                kind="real",
                prompt=f"Show the person as a doctor, please ({n % 2}).",
                questions=QUESTIONS,
                source=picture(),
                outputs=tuple(
                    Output(
                        file=picture(),
                        edit=f"zyxedit{n}-{m}",
                        sha256=f"zyxsha{n}-{m}",
                        strata={"editor": EDITORS[m], "arm": ARMS[m]},
                    )
                    for m in range(sides)
                ),
                strata={"portrait": f"zyxportrait{n}", "prompt": PROMPT_IDS[n % 2], "race": GROUPS[n % 2]},
                batch=n // per_task,
            )
        )
    for n in range(2):
        items.append(_known(f"t{n}", "training", pictures, stream, sides))
    if checks:
        maker = CheckMaker(pictures=pictures, questions=QUESTIONS, sides=sides)
        for task in range(tasks):
            like = items[task * per_task]
            items.append(_known(f"g{task}", "gold", pictures, stream, sides, task))
            items += [maker.attention(f"a{task}-{n}", like) for n in range(2)]
            items.append(replace(like, id=f"r{task}", kind="repeat", repeats=like.id))
    pictures.pad()
    drawn = Drawn(study=secrets.token_hex(8), run="nowhere", audit="none", design={}, items=tuple(items))
    drawn.write(folder)
    text = study_toml(drawn).replace("raters = 3", f"raters = {raters}")
    text = text.replace('contact = ""', 'contact = "ask@study.example"')
    text = text.replace("[consent]", f"[consent]\n{consent}")
    (folder / "study.toml").write_text(text + (PROLIFIC if prolific else "") + extra)
    text, password = _secrets()
    (folder / keys.FILE).write_text(text)
    return password


@cache
def _secrets() -> tuple[str, str]:
    """Made once: hashing the admin's password is slow on purpose."""
    with tempfile.TemporaryDirectory() as scratch:
        password = keys.create(Path(scratch))
        return (Path(scratch) / keys.FILE).read_text(), password


def _known(
    name: str, kind: str, pictures: BlindedPictures, stream: np.random.Generator, sides: int, batch: int = -1
) -> Item:
    source = pictures.add(np.full((16, 16, 3), int(stream.integers(0, 255)), dtype=np.uint8))
    right = {"edit_success": (1, 1), "skin_tone": (3, 3), "race_change": (1, 2), "gender_change": (1, 2)}
    right["age_change"] = (3, 3)
    outputs = tuple(Output(file=source, expected=right) for _ in range(sides))
    return Item(
        id=name,
        kind=kind,
        prompt="Dress the person in a dark suit.",
        questions=QUESTIONS,
        source=source,
        outputs=outputs,
        batch=batch,
    )


RIGHT = (1, 3, 1, 1, 3)
"""Right answers to the checks with known answers, by question."""


@contextmanager
def small_study(folder: Path, **options: object) -> Iterator[Study]:
    """Write and open a study."""
    write_study(folder, **options)  # type: ignore[arg-type]
    with open_study(folder) as study:
        yield study


def change(folder: Path, old: str, new: str) -> None:
    """Write something else into the study.toml of a folder."""
    file = folder / "study.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def draw_study(run: Path, folder: Path | None = None, **design: Any) -> NewStudy:
    """A study of small pictures from the run in a folder."""
    with RecordedRun.open(run) as opened:
        return new_study(opened, folder, StudyDesign(**{"side": 64, **design}), lambda _: None)


def practised(study: Study) -> list[Any]:
    """The right answers to the practice of a study that was drawn from a run."""
    # The guide shows the example with its answers; it is not asked.
    items = [item for item in study.drawn.items if item.kind == "training" and item.id != EXAMPLE]
    return [[[output.expected[q][0] for q in item.questions] for output in item.outputs] for item in items]
