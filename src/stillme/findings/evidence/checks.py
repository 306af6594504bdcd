"""Whether a bundle's design, rows and tables agree with one another: computed alike when sealed and verified."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from stillme import estimates
from stillme.audit.audit import without_none
from stillme.audit.config import EstimatesSection, RolesSection
from stillme.audit.design import Design, RecordedRequest, assessment_key, configuration_hash, reading_key
from stillme.audit.grid import Sample, expected_place, grid_of
from stillme.core import rubric
from stillme.core.rubric import AXES
from stillme.core.types import Arm, Json, Request, Spec, digest
from stillme.findings.calibration import standing_of
from stillme.findings.evidence.bundle import IMAGES, Difference
from stillme.findings.tables.estimates import write_tables
from stillme.mitigation.arms import NEEDS_FEATURES
from stillme.runs import RecordedRun
from stillme.runs.store.exported import EDITS, JUDGEMENTS, Table, rows_of
from stillme.runs.store.merging import row_count

REQUESTS = "requests"

Cell = tuple[tuple[str, ...], str, str, int]
"""Portraits, arm, prompt and seed."""


def row_differences(run: RecordedRun) -> Iterator[Difference]:
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


def _rows(run: RecordedRun, table: Table) -> Iterator[dict[str, Json]]:
    packed = {column.name for column in table.columns if column.kind == "json"}
    for row in rows_of(run.store, table):
        yield {column: json.loads(value) if column in packed and value else value for column, value in row.items()}


def _request(number: int, recorded: RecordedRequest, run: RecordedRun) -> Iterator[Difference]:
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


def _grid(run: RecordedRun) -> Iterator[Difference]:
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


def _chosen(run: RecordedRun) -> Sample:
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


def _judgements(run: RecordedRun, images: Mapping[str, Sequence[str]]) -> Iterator[Difference]:
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


def _unless_equal(
    file: str, row: int | None, column: str, expected: Json, found: Json, what: str = "does not fit the rest of its row"
) -> Iterator[Difference]:
    if expected != found:
        yield Difference(file=file, row=row, column=column, what=what, expected=str(expected), found=str(found))


_CLOSE = 1e-6
"""Relative: other processors and libraries add up in another order."""

Rows = list[list[str]]


def write_tables_of(run: RecordedRun, into: Path) -> list[Path]:
    """Compute every table from the rows, and write `tables/*.csv` into `into`."""
    estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
    return write_tables(estimated, into, run.settings, standing_of(run))


def table_differences(given: Path, computed: Path) -> tuple[int, list[Difference]]:
    """How many cells were compared, and those that differ."""
    cells = 0
    differences: list[Difference] = []
    names = sorted({path.name for folder in (given, computed) for path in folder.glob("*")})
    for name in names:
        file = f"tables/{name}"
        if not (given / name).is_file() or not (computed / name).is_file():
            differences.append(
                Difference(
                    file=file, what="is missing" if (computed / name).is_file() else "is not a table of this run"
                )
            )
            continue
        actual, expected = _read(given / name), _read(computed / name)
        cells += sum(map(len, expected))
        differences += _cells(file, actual, expected)
    return cells, differences


def _read(file: Path) -> Rows:
    if file.suffix == ".json":
        return _records(file)
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def _records(file: Path) -> Rows:
    """A list of records as a table; what is none has other columns than one."""
    try:
        given: Any = json.loads(file.read_text("utf-8"))
    except ValueError:
        return [["unreadable"]]
    if not isinstance(given, list) or not all(isinstance(record, dict) for record in cast("list[Any]", given)):
        return [["unreadable"]]
    records = cast("list[dict[str, Any]]", given)
    heads = sorted({name for record in records for name in record})
    return [heads, *([str(record.get(name)) for name in heads] for record in records)]


def _cells(file: str, actual: Rows, expected: Rows) -> Iterator[Difference]:
    heads = expected[0]
    if not actual or actual[0] != heads:
        columns = ", ".join(actual[0] if actual else [])
        yield Difference(file=file, what="has other columns", expected=", ".join(heads), found=columns)
        return
    for number, (row, should) in enumerate(zip(actual[1:], expected[1:], strict=False), start=1):
        if len(row) != len(heads):
            yield Difference(file=file, row=number, what="has another number of cells")
            continue
        for head, cell, wanted in zip(heads, row, should, strict=True):
            if not _same(cell, wanted):
                yield Difference(
                    file=file, row=number, column=head, what=_named(heads, should), expected=wanted, found=cell
                )
    if len(actual) != len(expected):
        rows = str(len(actual) - 1)
        yield Difference(file=file, what="has another number of rows", expected=str(len(expected) - 1), found=rows)


def _named(heads: list[str], row: list[str]) -> str:
    """Whose number it is, from the row itself."""
    known = dict(zip(heads, row, strict=True))
    parts = (known.get(name, "") for name in ("editor", "arm", "judge", "quantity", "factor", "group", "scope"))
    return " ".join(part for part in parts if part)


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=_CLOSE, abs_tol=1e-9)
    except ValueError:
        return False


def row_stage(run: RecordedRun, names: frozenset[str]) -> Iterator[Difference]:
    """Everything but the tables: the design, the rows and the pictures' names."""
    recorded = run.store.designs.latest()
    assert recorded is not None
    yield from design_differences(run.design, recorded.document)
    yield from row_differences(run)
    pictures = sorted(name for name in names if name.startswith(f"{IMAGES}/"))
    if pictures:
        known = {portrait.image.sha256 for portrait in run.design.portraits} | {row.image for row in run.rows()}
        for name in pictures:
            if Path(name).stem not in known:
                yield Difference(file=name, what="is a picture that no row names")


DESIGN = "the design"


def design_differences(design: Design, document: Mapping[str, Json]) -> Iterator[Difference]:
    """What the design says twice and not alike. Everything that changes a row is part of the resolved configuration.

    `document` is the design as it is stored.
    """
    resolved = design.resolved
    computed = configuration_hash(resolved)
    yield from _unless_equal(DESIGN, None, "hash", computed, design.hash, "is the hash of another configuration")
    said = resolved.get("title")
    yield from _unless_equal(DESIGN, None, "title", design.title, said, "is another title than the design's")
    rebuilt = design.as_json()
    for part in sorted({*document, *rebuilt}):
        if part not in rebuilt or _canonical(document.get(part)) != _canonical(rebuilt[part]):
            yield Difference(file=DESIGN, column=part, what="holds what stillme does not write")
    # Raises where a setting is beyond what audit.toml allows, such as a confidence of 2.
    EstimatesSection.model_validate(resolved["estimates"])
    for column, recorded, expected in _twice(design, resolved):
        yield from _unless_equal(DESIGN, None, column, expected, recorded, "is not what was resolved")
    for judge in design.judges:
        if judge.calibration is not None:
            key = judge.calibration.get("key")
            what = "calibration of another judge"
            yield from _unless_equal(DESIGN, None, f"judges.{judge.name}", judge.spec.key, key, what)


def _twice(design: Design, resolved: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    """Column, what is recorded, and what it was resolved to."""
    people = digest([[p.id, p.image.sha256, dict(p.attributes)] for p in design.portraits])
    yield "portraits", people, resolved["portraits"]["hash"]
    yield "prompts", digest([[p.id, p.text] for p in design.prompts]), resolved["prompts"]["hash"]
    noop = [prompt.id for arm, prompt in design.treatments if arm is Arm.NOOP]
    asked = [prompt.id for prompt in design.prompts]
    yield (
        "treatments",
        [[str(arm), prompt.id] for arm, prompt in design.treatments],
        [[arm, name] for arm in resolved["arms"] for name in (noop[:1] if arm == Arm.NOOP else asked)],
    )
    yield (
        "editors",
        [[e.name, e.spec.version, without_none(e.spec.stated), list(e.seeds)] for e in design.editors],
        [[e["name"], e["version"], e["parameters"], e["seeds"]] for e in resolved["editors"]],
    )
    yield (
        "judges",
        [[j.name, j.spec.version, without_none(j.spec.stated), j.epochs] for j in design.judges],
        [[j["name"], j["version"], j["parameters"], j["epochs"]] for j in resolved["judges"]],
    )
    extractors = resolved.get("mitigation", {}).get("extractors", [])
    yield (
        "extractors",
        [[e.name, e.spec.use, e.spec.version, without_none(e.spec.stated)] for e in design.extractors],
        [[e["name"], e["use"], e["version"], e["parameters"]] for e in extractors],
    )
    ensemble = resolved["ensemble"]
    expected = resolved["estimates"] | {"rule": ensemble["rule"], "combined": ensemble["combined"], "matched_on": ()}
    analysis = asdict(design.analysis)
    analysis |= {"factors": list(design.analysis.factors), "combined": list(design.analysis.combined)}
    for name, value in analysis.items():
        yield f"analysis.{name}", value, expected.get(name)
    if design.roles or "roles" in resolved:
        roles = asdict(design.roles) | {"layouts": list(design.roles.layouts)} if design.roles else None
        said = resolved.get("roles")
        yield "roles", roles, {name: said[name] for name in roles} if said and roles else said


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
