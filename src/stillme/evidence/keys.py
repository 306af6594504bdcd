"""Keys are hashes of what they name, so a row that says something else than its key is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stillme.evidence.design import SealedAudit, Unreadable
from stillme.evidence.differences import Difference
from stillme.evidence.recomputing import DESIGN, EDITS, JUDGEMENTS, REQUESTS, read_rows
from stillme.types import Json, Request, Spec, digest


def wrong_keys(folder: Path, audit: SealedAudit, audit_hash: str) -> Iterator[Difference]:
    """Compute every key again: of the configuration, the requests, the edits and the answers."""
    if audit.hash != audit_hash:
        yield Difference(
            file=DESIGN, what="is another configuration than evidence.json names", expected=audit_hash, found=audit.hash
        )
    yield from _inputs(audit)
    requests: dict[str, Request] = {}
    editors = {named.name: named for named in audit.editors}
    for number, row in enumerate(read_rows(folder, REQUESTS), start=1):
        if row["editor"] not in editors:
            raise Unreadable(f"{REQUESTS} row {number} names the editor {row['editor']!r}, which {DESIGN} does not")
        request = audit.request(editors[row["editor"]], row)
        requests[row["key"]] = request
        yield from _unless_equal(REQUESTS, number, "key", request.key, row["key"])
    images: dict[str, str] = {}
    for number, row in enumerate(read_rows(folder, EDITS), start=1):
        if row["final"] and row["image"]:
            images[row["edit"]] = row["image"]
        yield from _edit(number, row, requests.get(row["edit"]))
    for number, row in enumerate(read_rows(folder, JUDGEMENTS), start=1):
        yield from _judgement(number, row, images)


def _inputs(audit: SealedAudit) -> Iterator[Difference]:
    """Portraits, prompts, editors and judges as the configuration names them by hash and in full."""
    said = audit.recorded
    people = digest([[each.id, each.image.sha256, dict(each.attributes)] for each in audit.portraits])
    prompts = digest([[each.id, each.text] for each in audit.prompts])
    for part, found in (("portraits", people), ("prompts", prompts)):
        if said[part]["hash"] != found:
            yield Difference(
                file=DESIGN, what=f"other {part} than were resolved", expected=said[part]["hash"], found=found
            )
    named = [(each.name, each.editor.spec) for each in audit.editors]
    named += [(each.name, each.judge.spec) for each in audit.judges]
    for (name, spec), entry in zip(named, (*said["editors"], *said["judges"]), strict=True):
        expected, found = (
            [entry["name"], entry["version"], entry["parameters"]],
            [name, spec.version, spec.parameters],
        )
        if expected != found:
            yield Difference(file=DESIGN, what="not as it was resolved", expected=str(expected), found=str(found))


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
    key = digest([row["edit"], image, row["judge_key"], row["epoch"]])
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
