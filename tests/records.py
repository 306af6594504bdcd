"""Records for tests, made in one line."""

from __future__ import annotations

from pathlib import Path

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
from stillme.runs.store import AssessmentRow, EditRow

EDITOR = Spec(use="noop", version="1", parameters={})
JUDGE = Spec(use="scripted", version="1", parameters={})


def portrait(name: str = "p0", **attributes: str) -> Portrait:
    image = ImageFile(path=Path(f"{name}.png"), sha256=digest(name))
    return Portrait(id=name, image=image, attributes=attributes, label_origin="made up", licence="CC0-1.0")


def prompt(name: str = "O-01") -> Prompt:
    return Prompt(id=name, text=f"Do {name}.", category="occupational", subcategory="authority")


def request(who: str = "p0", what: str = "O-01", seed: int = 0, editor: Spec = EDITOR) -> Request:
    asked = prompt(what)
    return Request(
        portraits=(portrait(who),), prompt=asked, arm=Arm.BASELINE, instruction=asked.text, editor=editor, seed=seed
    )


def edit_row(made: Request, outcome: EditOutcome | None = None) -> EditRow:
    outcome = outcome or Edited(image=b"")
    image = digest(made.key) if isinstance(outcome, Edited) else None
    return EditRow(request=made, outcome=outcome, image=image, attempts=1, seconds=0.5, cost=outcome.cost)


def assessment_row(edit: str, assessment: Assessment | None = None, epoch: int = 0) -> AssessmentRow:
    return AssessmentRow(
        key=digest([edit, epoch]),
        edit=edit,
        epoch=epoch,
        judge=JUDGE,
        assessment=assessment or Assessment(ratings={"skin_tone": Rated(score=3)}),
        attempts=1,
        seconds=0.5,
        cost=0.25,
    )
