"""Records for tests, made in one line."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tomli_w

from stillme.audit.design import JudgeRecord
from stillme.core.protocols import Editor
from stillme.core.types import (
    Arm,
    Assessment,
    Edited,
    EditOutcome,
    ImageFile,
    Portrait,
    Prompt,
    Rated,
    Request,
    Spec,
    digest,
)
from stillme.estimates.rows import Edits, EditState
from stillme.runs.store import AssessmentRow, EditRow

T = TypeVar("T")
EDITOR = Spec(use="noop", version="1", parameters={})
JUDGE = Spec(use="scripted", version="1", parameters={})


def portrait(name: str = "p0", block: str = "", **attributes: str) -> Portrait:
    image = ImageFile(path=Path(f"{name}.png"), sha256=digest(name))
    return Portrait(id=name, image=image, attributes=attributes, label_origin="made up", licence="CC0-1.0", block=block)


def prompt(name: str = "O-01") -> Prompt:
    return Prompt(id=name, text=f"Do {name}.", category="occupational", subcategory="authority")


def request(who: str = "p0", what: str = "O-01", seed: int = 0, editor: Spec = EDITOR) -> Request:
    asked = prompt(what)
    return Request(
        portraits=(portrait(who),), prompt=asked, arm=Arm.BASELINE, instruction=asked.text, editor=editor, seed=seed
    )


def asked(
    editor: Editor, *people: Portrait, what: Prompt | None = None, instruction: str = "", seed: int = 0
) -> Request:
    """What an editor is asked: one edit of these people."""
    what = what or prompt()
    words = instruction or what.text
    return Request(portraits=people, prompt=what, arm=Arm.BASELINE, instruction=words, editor=editor.spec, seed=seed)


def must_be(kind: type[T], outcome: object) -> T:
    """The outcome, which must be of this kind."""
    assert isinstance(outcome, kind), outcome
    return outcome


def edit_row(made: Request, outcome: EditOutcome | None = None, image: str | None = None, cost: float = 0.0) -> EditRow:
    outcome = outcome or Edited(image=b"")
    image = image or (digest(made.key) if isinstance(outcome, Edited) else None)
    return EditRow(request=made, outcome=outcome, image=image, attempts=1, seconds=0.5, cost=cost or outcome.cost)


def assessment_row(
    edit: str,
    assessment: Assessment | None = None,
    epoch: int = 0,
    *,
    key: str = "",
    judge: Spec = JUDGE,
    cost: float = 0.25,
) -> AssessmentRow:
    return AssessmentRow(
        key=key or digest([edit, epoch]),
        edit=edit,
        epoch=epoch,
        judge=judge,
        assessment=assessment or Assessment(ratings={"skin_tone": Rated(score=3)}),
        attempts=1,
        seconds=0.5,
        cost=cost,
    )


def answers(
    judges: Iterable[JudgeRecord], edit: str, image: str, say: Callable[[JudgeRecord, int], Assessment]
) -> list[AssessmentRow]:
    """What every judge says of an edit, every time it is asked."""
    return [
        assessment_row(edit, say(judge, epoch), epoch, key=key, judge=judge.spec)
        for judge in judges
        for key, epoch in judge.assessments(edit, image)
    ]


def edits_of(
    portraits: Sequence[Portrait], prompts: Sequence[Prompt], portrait: np.ndarray, prompt: np.ndarray, **columns: Any
) -> Edits:
    """Columns of edits that were all made, by one editor in one arm; `columns` say what is otherwise."""
    size, zeros = len(portrait), np.zeros(len(portrait), dtype=np.int32)
    usual: dict[str, Any] = {
        "keys": [f"{row:08d}" for row in range(size)],
        "editor": zeros,
        "arm": zeros,
        "state": zeros + EditState.EDITED,
        "image": [""] * size,
        "editors": ("editor",),
        "arms": ("baseline",),
    }
    people, asked = tuple(portraits), tuple(prompts)
    return Edits(portraits=people, prompts=asked, portrait=portrait, prompt=prompt, **usual | columns)


def rows_in(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def small_audit(folder: Path, *, prompts: Sequence[str] = (), limit: int = 0, **sections: Any) -> Path:
    """An audit of rendered people, a no-op editor and a scripted judge, but for these sections."""
    folder.mkdir(parents=True, exist_ok=True)
    audit = {
        "portraits": {"source": "synthetic"} | ({"limit": limit} if limit else {}),
        "prompts": {"only": list(prompts)},
        "editors": [{"use": "noop"}],
        "judges": [{"use": "scripted"}],
        **sections,
    }
    (folder / "audit.toml").write_text(tomli_w.dumps(audit))
    return folder


def add_judge(folder: Path, **judge: Any) -> None:
    """One more judge in the audit of a folder."""
    file = folder / "audit.toml"
    audit = tomllib.loads(file.read_text())
    audit["judges"].append(judge)
    file.write_text(tomli_w.dumps(audit))
