"""Whether the rows agree with the design, with their keys and with each other."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stillme import rubric
from stillme.audit.config import RolesSection
from stillme.audit.roles import expected_place
from stillme.design import Design, RecordedRequest, assessment_key
from stillme.evidence.bundle import (
    DESIGN,
    EDITS,
    JUDGEMENTS,
    REQUESTS,
    Unreadable,
    ledger_rows,
    read_rows,
    request_rows,
)
from stillme.evidence.differences import Difference
from stillme.evidence.grid import Cell, Grid
from stillme.mitigation import NEEDS_FEATURES
from stillme.results import Run
from stillme.types import Json, Request, Spec, digest

_MISMATCH = "does not fit the rest of its row"
_LABELS = (
    *("portrait", "attributes", "label_origin", "licence", "block", "second_portrait", "second_attributes"),
    *("prompt", "category", "subcategory"),
)
"""Columns of an edit that are not part of its key: labels may be corrected after a row was written."""


def row_differences(folder: Path, run: Run, relabelled: frozenset[str]) -> Iterator[Difference]:
    """Compare every row with what it must be.

    `relabelled` names the labels of rows that were written before the design's were corrected.
    """
    for number, recorded in enumerate(run.requests(), start=1):
        yield from _request(number, recorded, run.design)
    places = _places(run)
    yield from _grid(run)
    images: dict[str, list[str]] = defaultdict(list)
    """By edit: its pictures in their order. There is a second where the first was lost and made again, differently."""
    seen: set[str] = set()
    used: set[str] = set()
    for number, row in enumerate(read_rows(folder, EDITS), start=1):
        if row["final"] and row["image"]:
            images[row["edit"]].append(row["image"])
        yield from _outcome(number, row)
        # A row of an earlier configuration is kept, and no number uses it.
        if row["edit"] in places:
            recorded = run.request_at(places[row["edit"]])
            request = recorded.request(run.design)
            yield from _edit(number, row, request)
            if recorded.withheld:
                yield Difference(file=EDITS, row=number, column="edit", what="an edit of a request that was withheld")
            if labels := _other_labels(row, request):
                used.add(labels)
                if labels not in relabelled:
                    yield Difference(file=EDITS, row=number, what="has other labels than the design")
        # Only a lost picture is made again: a second refusal, or the same picture twice, is no row of a run.
        same = digest([row["edit"], row["image"]] if row["final"] else row)
        if same in seen:
            yield Difference(file=EDITS, row=number, what="stands there twice")
        seen.add(same)
    for labels in sorted(relabelled - used):
        yield Difference(file=EDITS, what="has no row with the earlier labels", expected=labels)
    yield from _judgements(folder, run, images)
    yield from _rebuilt(folder, run)


def relabelled_in(folder: Path, run: Run) -> frozenset[str]:
    """Names the labels of rows whose portrait or prompt has other labels in the design."""
    places = _places(run)
    asked = (
        (row, run.request_at(places[row["edit"]]).request(run.design))
        for row in read_rows(folder, EDITS)
        if row["edit"] in places
    )
    return frozenset(filter(None, (_other_labels(row, request) for row, request in asked)))


def _places(run: Run) -> dict[str, int]:
    """Where each request stands, by its key: there may be a million, and whole ones would fill the memory."""
    return {asked.key: place for place, asked in enumerate(run.asked())}


def _rebuilt(folder: Path, run: Run) -> Iterator[Difference]:
    """The ledger made of the rows must give the same rows: no doubles, no other order, no two answers in one."""
    for name, rows in (
        (REQUESTS, request_rows(run)),
        (EDITS, ledger_rows(run, EDITS)),
        (JUDGEMENTS, ledger_rows(run, JUDGEMENTS)),
    ):
        pairs = itertools.zip_longest(read_rows(folder, name), rows)
        for number, (row, rebuilt) in enumerate(pairs, start=1):
            if row == rebuilt:
                continue
            if row is None or rebuilt is None:
                yield Difference(file=name, row=number, what="rows that no ledger has together, from here on")
                break
            column = next(column for column in row if row[column] != rebuilt[column])
            yield Difference(
                file=name,
                row=number,
                column=column,
                what="does not fit the other rows",
                expected=str(rebuilt[column]),
                found=str(row[column]),
            )


def _request(number: int, recorded: RecordedRequest, design: Design) -> Iterator[Difference]:
    editor = next((editor for editor in design.editors if editor.name == recorded.editor), None)
    if editor is None:
        raise Unreadable(f"{REQUESTS} row {number} names the editor {recorded.editor!r}, which {DESIGN} does not")
    request = recorded.request(design)
    section = design.resolved.get("roles")
    place = expected_place(request.prompt, request.portraits, RolesSection.model_validate(section)) if section else 0
    may_wait = recorded.arm in NEEDS_FEATURES and editor.capabilities.reads_instruction
    for column, expected, found in (
        ("key", request.key, recorded.key),
        ("attributes_matter", editor.capabilities.attributes_matter, recorded.attributes_matter),
        ("expected_place", place, recorded.expected_place),
        ("withheld", recorded.withheld if may_wait else "", recorded.withheld),
        ("waiting", recorded.waiting and bool(recorded.withheld), recorded.waiting),
    ):
        yield from _unless_equal(REQUESTS, number, column, expected, found)


def _grid(run: Run) -> Iterator[Difference]:
    """Requests that cannot be made stand after the others of their editor."""
    grid = Grid(run.design)
    number = 0
    order = [key for key, _ in itertools.groupby(run.requests(), key=lambda recorded: recorded.editor)]
    names = [editor.name for editor in run.design.editors]
    if order != [name for name in names if name in order]:
        yield Difference(file=REQUESTS, what="is in another order than the design's editors")
        return
    for editor in run.design.editors:
        made: list[Cell] = []
        withheld: list[Cell] = []
        for recorded in run.requests(editor.name):
            cell = (recorded.portraits, str(recorded.arm), recorded.prompt, recorded.seed)
            (withheld if recorded.withheld else made).append(cell)
        aside = set(withheld)
        cells = list(grid.cells(editor))
        expected = [cell for cell in cells if cell not in aside] + [cell for cell in cells if cell in aside]
        for one, other in itertools.zip_longest(expected, [*made, *withheld]):
            number += 1
            if one != other:
                yield Difference(
                    file=REQUESTS,
                    row=number,
                    what="is not the request that the design asks for here",
                    expected=_shown(one),
                    found=_shown(other),
                )
                return


def _shown(cell: Cell | None) -> str:
    return f"{'+'.join(cell[0])} {cell[1]} {cell[2]} seed {cell[3]}" if cell else "no request"


def _outcome(number: int, row: Mapping[str, Json]) -> Iterator[Difference]:
    spec = Spec(use=row["editor"], version=row["editor_version"], parameters=row["editor_parameters"])
    yield from _unless_equal(EDITS, number, "editor_key", spec.key, row["editor_key"])
    if (row["outcome"] == "edited") != bool(row["image"]):
        yield Difference(
            file=EDITS, row=number, column="image", what=f"{row['outcome']}, but with or without a picture"
        )
    if row["outcome"] != "failed":
        yield from _unless_equal(EDITS, number, "final", 1, row["final"])


def _edit(number: int, row: Mapping[str, Json], request: Request) -> Iterator[Difference]:
    first, second = (*request.portraits, None)[:2]
    expected = {
        "portrait": first.id if first else None,
        "portrait_sha256": first.image.sha256 if first else None,
        "second_portrait": second.id if second else None,
        "second_sha256": second.image.sha256 if second else None,
        "prompt": request.prompt.id,
        "prompt_text": request.prompt.text,
        "arm": str(request.arm),
        "instruction": request.instruction,
        "seed": request.seed,
        "editor_key": request.editor.key,
    }
    for column, value in expected.items():
        yield from _unless_equal(EDITS, number, column, value, row[column])


def _other_labels(row: Mapping[str, Json], request: Request) -> str:
    """Names the row's labels if they are not the design's; else empty."""
    first, second = (*request.portraits, None)[:2]
    expected = {
        "attributes": dict(first.attributes) if first else None,
        "label_origin": first.label_origin if first else None,
        "licence": first.licence if first else None,
        "block": first.block if first else None,
        "second_attributes": dict(second.attributes) if second else None,
        "category": request.prompt.category,
        "subcategory": request.prompt.subcategory,
    }
    if all(row[column] == value for column, value in expected.items()):
        return ""
    return digest([row[column] for column in _LABELS])


def _judgements(folder: Path, run: Run, images: Mapping[str, Sequence[str]]) -> Iterator[Difference]:
    axes = {judge.spec.key: (*judge.capabilities.axes, *judge.capabilities.partial) for judge in run.judges}
    failed: dict[int, bool] = defaultdict(bool)
    to_retry: dict[int, int] = {}
    for number, row in enumerate(read_rows(folder, JUDGEMENTS), start=1):
        yield from _judgement(number, row, images)
        known = axes.get(row["judge_key"])
        if known is not None and row["axis"] not in known:
            yield Difference(file=JUDGEMENTS, row=number, column="axis", what="no axis of its judge", found=row["axis"])
        if not row["final"]:
            failed[row["number"]] |= row["outcome"] == "failed"
            to_retry[row["number"]] = number
    for answer, number in to_retry.items():
        if not failed[answer]:
            yield Difference(file=JUDGEMENTS, row=number, column="final", what=_MISMATCH, expected="1", found="0")


def _judgement(number: int, row: Mapping[str, Json], images: Mapping[str, Sequence[str]]) -> Iterator[Difference]:
    spec = Spec(use=row["judge"], version=row["judge_version"], parameters=row["judge_parameters"])
    yield from _unless_equal(JUDGEMENTS, number, "judge_key", spec.key, row["judge_key"])
    if (row["outcome"] == "rated") != (row["score"] is not None):
        what = f"{row['outcome']}, but with or without a score"
        yield Difference(file=JUDGEMENTS, row=number, column="score", what=what)
    axis = rubric.load().axes.get(row["axis"])
    if axis and axis.is_scale and row["score"] is not None and not 1 <= row["score"] <= len(axis.scale):
        expected = f"1 to {len(axis.scale)}"
        yield Difference(
            file=JUDGEMENTS,
            row=number,
            column="score",
            what="off its scale",
            expected=expected,
            found=str(row["score"]),
        )
    pictures = images.get(row["edit"])
    if not pictures:
        yield Difference(file=JUDGEMENTS, row=number, column="edit", what="no edit with a picture", found=row["edit"])
        return
    keys = [assessment_key(row["edit"], image, row["judge_key"], row["epoch"]) for image in pictures]
    if row["assessment"] not in keys:
        yield from _unless_equal(JUDGEMENTS, number, "assessment", keys[-1], row["assessment"])


def _unless_equal(file: str, row: int, column: str, expected: Json, found: Json) -> Iterator[Difference]:
    if expected != found:
        yield Difference(file=file, row=row, column=column, what=_MISMATCH, expected=str(expected), found=str(found))
