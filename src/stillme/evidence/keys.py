"""Keys are hashes of what they name, so a row that says something else than its key is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stillme.design import Design, assessment_key, configuration_hash
from stillme.evidence.bundle import DESIGN, EDITS, JUDGEMENTS, REQUESTS, Unreadable, read_rows
from stillme.evidence.differences import Difference
from stillme.results import Run
from stillme.types import Json, Request, Spec, digest


def wrong_keys(folder: Path, run: Run, audit_hash: str) -> Iterator[Difference]:
    """Compute every key again: of the configuration, the requests, the edits and the answers."""
    design = run.design
    for what, named in (("evidence.json", audit_hash), (DESIGN, design.hash)):
        computed = configuration_hash(design.resolved)
        if named != computed:
            yield Difference(
                file=DESIGN, what=f"is another configuration than {what} names", expected=named, found=computed
            )
    yield from _inputs(design)
    requests: dict[str, Request] = {}
    editors = {editor.name for editor in design.editors}
    for number, recorded in enumerate(run.requests(), start=1):
        if recorded.editor not in editors:
            raise Unreadable(f"{REQUESTS} row {number} names the editor {recorded.editor!r}, which {DESIGN} does not")
        request = recorded.request(design)
        requests[recorded.key] = request
        yield from _unless_equal(REQUESTS, number, "key", request.key, recorded.key)
    images: dict[str, str] = {}
    for number, row in enumerate(read_rows(folder, EDITS), start=1):
        if row["final"] and row["image"]:
            images[row["edit"]] = row["image"]
        yield from _edit(number, row, requests.get(row["edit"]))
    for number, row in enumerate(read_rows(folder, JUDGEMENTS), start=1):
        yield from _judgement(number, row, images)


def _inputs(design: Design) -> Iterator[Difference]:
    """Portraits, prompts, editors and judges as the configuration names them by hash and in full."""
    said = design.resolved
    people = digest([[p.id, p.image.sha256, dict(p.attributes)] for p in design.portraits])
    prompts = digest([[prompt.id, prompt.text] for prompt in design.prompts])
    for part, computed in (("portraits", people), ("prompts", prompts)):
        if said[part]["hash"] != computed:
            yield Difference(
                file=DESIGN, what=f"other {part} than were resolved", expected=said[part]["hash"], found=computed
            )
    records = [(record.name, record.spec) for record in (*design.editors, *design.judges)]
    for (name, spec), entry in zip(records, (*said["editors"], *said["judges"]), strict=True):
        resolved = [entry["name"], entry["version"], entry["parameters"]]
        recorded = [name, spec.version, spec.parameters]
        if resolved != recorded:
            yield Difference(file=DESIGN, what="not as it was resolved", expected=str(resolved), found=str(recorded))


def _edit(number: int, row: dict[str, Json], request: Request | None) -> Iterator[Difference]:
    spec = Spec(use=row["editor"], version=row["editor_version"], parameters=row["editor_parameters"])
    yield from _unless_equal(EDITS, number, "editor_key", spec.key, row["editor_key"])
    if request is None:
        # Of an earlier configuration: it is kept, and no number uses it.
        return
    said = {
        "portrait": request.portraits[0].id,
        "portrait_sha256": request.portraits[0].image.sha256,
        "prompt": request.prompt.id,
        "arm": str(request.arm),
        "instruction": request.instruction,
        "seed": request.seed,
        "editor_key": request.editor.key,
    }
    for column, value in said.items():
        yield from _unless_equal(EDITS, number, column, value, row[column])


def _judgement(number: int, row: dict[str, Json], images: dict[str, str]) -> Iterator[Difference]:
    spec = Spec(use=row["judge"], version=row["judge_version"], parameters=row["judge_parameters"])
    yield from _unless_equal(JUDGEMENTS, number, "judge_key", spec.key, row["judge_key"])
    image = images.get(row["edit"])
    if image is None:
        yield Difference(file=JUDGEMENTS, row=number, column="edit", what="no edit with a picture", found=row["edit"])
        return
    key = assessment_key(row["edit"], image, row["judge_key"], row["epoch"])
    yield from _unless_equal(JUDGEMENTS, number, "assessment", key, row["assessment"])


def _unless_equal(file: str, row: int, column: str, expected: Json, found: Json) -> Iterator[Difference]:
    if expected != found:
        yield Difference(
            file=file,
            row=row,
            column=column,
            what="does not fit the rest of its row",
            expected=str(expected),
            found=str(found),
        )
