"""Whether the rows of a ledger agree with the design, with their keys and with each other."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from stillme.audit.config import RolesSection
from stillme.audit.design import RecordedRequest, assessment_key, reading_key
from stillme.audit.grid import Sample, expected_place, grid_of
from stillme.core import rubric
from stillme.core.rubric.readings import AXES
from stillme.core.types import Json, Request, Spec
from stillme.findings.evidence.bundle import Difference
from stillme.mitigation.arms import NEEDS_FEATURES
from stillme.runs import Run
from stillme.runs.store.exported import EDITS, JUDGEMENTS, Table, rows_of
from stillme.runs.store.ledger_copy import row_count

REQUESTS = "requests"
_MISMATCH = "does not fit the rest of its row"

Cell = tuple[tuple[str, ...], str, str, int]
"""Portraits, arm, prompt and seed."""


def row_differences(run: Run) -> Iterator[Difference]:
    """Compare every row with what it must be. Rows of earlier configurations, which no number uses, have a key too."""
    for number, recorded in enumerate(run.requests(), start=1):
        yield from _request(number, recorded, run)
    yield from _grid(run)
    places = {asked.key: place for place, asked in enumerate(run.asked())}
    images: dict[str, list[str]] = defaultdict(list)
    """By edit: its pictures in their order. There is a second where the first was lost and made again, differently."""
    for number, row in enumerate(_rows(run, EDITS), start=1):
        if row["final"] and row["image"]:
            images[row["edit"]].append(row["image"])
        yield from _outcome(number, row)
        if row["edit"] in places:
            recorded = run.request_at(places[row["edit"]])
            yield from _edit(number, row, recorded.request(run.design))
            if recorded.withheld:
                yield Difference(file=EDITS.name, row=number, what="an edit of a request that was withheld")
    yield from _judgements(run, images)
    for table in (EDITS, JUDGEMENTS):
        found = sum(1 for _ in rows_of(run.store, table))
        if found != (expected := row_count(run.store, table)):
            yield Difference(
                file=table.name, what="has rows that name what is not there", expected=str(expected), found=str(found)
            )


def _rows(run: Run, table: Table) -> Iterator[dict[str, Json]]:
    packed = {column.name for column in table.columns if column.kind == "json"}
    for row in rows_of(run.store, table):
        yield {column: json.loads(value) if column in packed and value else value for column, value in row.items()}


def _request(number: int, recorded: RecordedRequest, run: Run) -> Iterator[Difference]:
    design = run.design
    editor = next((editor for editor in design.editors if editor.name == recorded.editor), None)
    if editor is None:
        yield Difference(file=REQUESTS, row=number, what="names an editor that is not there", found=recorded.editor)
        return
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
    """The requests are those that the design asks for; those that cannot be made come after the others of an editor."""
    order = [key for key, _ in itertools.groupby(run.requests(), key=lambda recorded: recorded.editor)]
    if order != [editor.name for editor in run.design.editors if editor.name in order]:
        yield Difference(file=REQUESTS, what="is in another order than the design's editors")
        return
    grid = grid_of(run.design, _chosen(run))
    number = 0
    for editor in run.design.editors:
        made: list[Cell] = []
        withheld: list[Cell] = []
        for recorded in run.requests(editor.name):
            cell = (recorded.portraits, str(recorded.arm), recorded.prompt, recorded.seed)
            (withheld if recorded.withheld else made).append(cell)
        aside = set(withheld)
        cells: list[Cell] = [
            (tuple(portrait.id for portrait in portraits), str(arm), prompt.id, seed)
            for portraits, arm, prompt in grid.cells(editor.name)
            for seed in editor.seeds
        ]
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


def _chosen(run: Run) -> Sample:
    """The cells that the run asks, of prompts for one person."""
    alone = {prompt.id for prompt in run.design.prompts if not (run.design.roles and prompt.target)}
    cells = ((each.editor, each.portraits[0], each.prompt) for each in run.requests() if each.prompt in alone)
    return Sample.of(cells, [editor.name for editor in run.design.editors])


def _shown(cell: Cell | None) -> str:
    return f"{'+'.join(cell[0])} {cell[1]} {cell[2]} seed {cell[3]}" if cell else "no request"


def _outcome(number: int, row: Mapping[str, Json]) -> Iterator[Difference]:
    spec = Spec(use=row["editor"], version=row["editor_version"], parameters=row["editor_parameters"])
    yield from _unless_equal(EDITS.name, number, "editor_key", spec.key, row["editor_key"])
    if (row["outcome"] == "edited") != bool(row["image"]):
        what = f"{row['outcome']}, but with or without a picture"
        yield Difference(file=EDITS.name, row=number, column="image", what=what)
    yield from _unless_equal(EDITS.name, number, "final", int(row["outcome"] != "failed"), row["final"])


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
        yield from _unless_equal(EDITS.name, number, column, value, row[column])


def _judgements(run: Run, images: Mapping[str, Sequence[str]]) -> Iterator[Difference]:
    judges = (*run.judges, *run.design.readers)
    axes = {judge.spec.key: (*judge.capabilities.axes, *judge.capabilities.partial) for judge in judges}
    readable = {image for pictures in images.values() for image in pictures}
    for number, row in enumerate(_rows(run, JUDGEMENTS), start=1):
        yield from _reading(number, row, readable) if row["axis"] in AXES else _judgement(number, row, images)
        known = axes.get(row["judge_key"])
        if known is not None and row["axis"] not in known:
            yield Difference(
                file=JUDGEMENTS.name, row=number, column="axis", what="not an axis of its judge", found=row["axis"]
            )


def _answer(number: int, row: Mapping[str, Json]) -> Iterator[Difference]:
    file = JUDGEMENTS.name
    spec = Spec(use=row["judge"], version=row["judge_version"], parameters=row["judge_parameters"])
    yield from _unless_equal(file, number, "judge_key", spec.key, row["judge_key"])
    if (row["outcome"] == "rated") != (row["score"] is not None):
        what = f"{row['outcome']}, but with or without a score"
        yield Difference(file=file, row=number, column="score", what=what)


def _reading(number: int, row: Mapping[str, Json], readable: AbstractSet[str]) -> Iterator[Difference]:
    """What a reader said of one picture, which is named by its hash instead of an edit's key."""
    yield from _answer(number, row)
    key = reading_key(row["edit"], row["judge_key"], row["epoch"])
    yield from _unless_equal(JUDGEMENTS.name, number, "assessment", key, row["assessment"])
    if row["edit"] not in readable:
        what = "not a picture of this run"
        yield Difference(file=JUDGEMENTS.name, row=number, column="edit", what=what, found=row["edit"])


def _judgement(number: int, row: Mapping[str, Json], images: Mapping[str, Sequence[str]]) -> Iterator[Difference]:
    file = JUDGEMENTS.name
    yield from _answer(number, row)
    axis = rubric.load().axes.get(row["axis"])
    if axis and axis.is_scale and row["score"] is not None and not 1 <= row["score"] <= len(axis.scale):
        yield Difference(file=file, row=number, column="score", what="off its scale", found=str(row["score"]))
    pictures = images.get(row["edit"])
    if not pictures:
        yield Difference(file=file, row=number, column="edit", what="no edit with a picture", found=row["edit"])
        return
    keys = [assessment_key(row["edit"], image, row["judge_key"], row["epoch"]) for image in pictures]
    if row["assessment"] not in keys:
        yield from _unless_equal(file, number, "assessment", keys[-1], row["assessment"])


def _unless_equal(file: str, row: int, column: str, expected: Json, found: Json) -> Iterator[Difference]:
    if expected != found:
        yield Difference(file=file, row=row, column=column, what=_MISMATCH, expected=str(expected), found=str(found))
