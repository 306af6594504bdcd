"""Append rows of scores to the run of an audit, which has the edits, and whose audit.toml names every judge."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import tomli_w

from stillme.audit import NamedJudge, load
from stillme.audit.design import JudgeRecord, RecordedRequest
from stillme.audit.loading import FILE
from stillme.core import rubric
from stillme.core.errors import Invalid, Problem, StillmeError, did_you_mean
from stillme.core.files import whole
from stillme.core.types import Arm
from stillme.findings.exchange.columns import EDIT_COLUMNS, FileRow, InvalidJudgements, Layout, Unreadable
from stillme.findings.exchange.row_table import RatedEdit, RowsAsked, RowTable, new_assessments, provenance_of
from stillme.judges.given import Imported, ImportedParameters
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.work.changes import adopt


def append_rows(
    table: RowTable, edits: RunEdits, file: Path, store: Store, asked: RowsAsked, run: RecordedRun
) -> tuple[int, tuple[str, ...]]:
    """Append what is new; returns how many assessments were, and which judges were added to audit.toml."""
    judges: dict[str, JudgeRecord] = {}
    tables: dict[str, str] = {}
    for name in table.judges:
        judges[name], lines = _judge(run, name, table, asked)
        if lines:
            tables[name] = lines
    problems = [*_axes(run, judges, table, edits), *_epochs(judges, table)]
    new = list(new_assessments(store, table, judges, edits.edits, provenance_of(file), problems))
    if problems:
        raise InvalidJudgements(str(file), problems)
    for lines in tables.values():
        append_table(run.folder / FILE, lines)
    store.add(new)
    if tables and (reason := adopt(run.folder, store)):
        raise StillmeError(f"The scores are kept, but {', '.join(tables)} is not part of the run yet: {reason}")
    return len(new), tuple(tables)


def _judge(run: RecordedRun, name: str, table: RowTable, asked: RowsAsked) -> tuple[JudgeRecord, str]:
    """The run's judge of that name; or a new one, with the lines that audit.toml needs for it."""
    file, kind = run.folder / FILE, asked.kind(name)
    if known := run.design.judge(name):
        if not known.capabilities.given:
            raise StillmeError(
                f"The judge {name!r} of {file} is asked by stillme itself, so its scores cannot be imported. "
                "Import them under another name, with --set judge=NAME."
            )
        return known, ""
    parameters = ImportedParameters(source=name, kind=kind or "model", axes=tuple(table.judges[name]))
    epochs = table.epochs[name]
    lines = judge_table(name, parameters, epochs)
    if kind is None:
        raise StillmeError(
            f"{file} has no judge {name!r}. Say what it is with --model, --people or --instrument {name!r}, and it is "
            f"added; or add it by hand:\n\n{lines}"
        )
    return NamedJudge(name=name, judge=Imported(parameters), epochs=epochs).record(), lines


def _axes(run: RecordedRun, judges: Mapping[str, JudgeRecord], table: RowTable, edits: RunEdits) -> Iterator[Problem]:
    """Axes that a judge declares and the file does not score, or the other way. Rows are never changed."""
    rated = {edits.requests[edit].prompt for edit in table.edits}
    subcategories = {run.design.prompt_by_id[prompt].subcategory for prompt in rated}
    for name, judge in judges.items():
        declared, scored = judge.capabilities.axes, table.judges[name]
        if undeclared := sorted(scored - set(declared)):
            what = f"{name!r} is declared for {', '.join(declared)}, not for {', '.join(undeclared)}"
            yield Problem(place="", message=f"{what}; import under another name, with --set judge=NAME")
        for axis in declared:
            only = rubric.load().axes[axis].only
            if axis not in scored and judge.spec.use == "imported" and (not only or only in subcategories):
                how = f"name its column with --map {axis}=COLUMN, or remove {axis} from `axes` in audit.toml"
                yield Problem(place="", message=f"{name!r} is declared for {axis}, and no row has a score on it; {how}")


def _epochs(judges: Mapping[str, JudgeRecord], table: RowTable) -> Iterator[Problem]:
    for name, judge in judges.items():
        if (epochs := table.epochs[name]) > judge.epochs:
            what = f"an edit has {epochs} answers; {name!r} has epochs = {judge.epochs} in audit.toml, raise it"
            yield Problem(place="", message=what)


def judge_table(name: str, parameters: ImportedParameters, epochs: int) -> str:
    """A `[[judges]]` table for these scores."""
    head = {"use": "imported", "name": name} | ({"epochs": epochs} if epochs > 1 else {})
    return tomli_w.dumps({"judges": [head | {"parameters": parameters.model_dump(mode="json")}]})


def append_table(file: Path, table: str) -> None:
    """Append the table to audit.toml, if the file is then still a valid audit."""
    extended = file.read_text("utf-8-sig").rstrip("\n") + "\n\n" + table
    try:
        with whole(file) as draft:
            draft.write_text(extended, "utf-8")
            tomllib.loads(extended)
            load(draft, ready=False)
    except (tomllib.TOMLDecodeError, Invalid) as error:
        raise StillmeError(f"{file} is not valid with these lines; add them by hand:\n\n{table}\n{error}") from None


class RunEdits:
    """The edits of a run; rows add none."""

    def __init__(self, layout: Layout, run: RecordedRun) -> None:
        self._layout, self._design = layout, run.design
        self.edits: list[RatedEdit] = []
        self.requests: list[RecordedRequest] = []
        self._outcomes: list[str] = []
        self._by_key: dict[str, int] = {}
        self._by_name: dict[tuple[str, str, str, str, int], int] = {}
        for row in run.rows():
            request = row.request
            if request.withheld:
                continue
            place = self._by_key[request.key] = len(self.edits)
            portraits = "+".join(request.portraits)
            self._by_name[request.editor, portraits, request.prompt, request.arm, request.seed] = place
            self.edits.append(RatedEdit(request.key, row.image))
            self.requests.append(request)
            self._outcomes.append(row.edit.outcome if row.edit else "")

    def subcategory(self, edit: int) -> str:
        """Of its prompt."""
        return self._design.prompt_by_id[self.requests[edit].prompt].subcategory

    def place(self, key: str) -> int | None:
        """The number of an edit."""
        return self._by_key.get(key)

    def find(self, row: FileRow, arm: str, *, has_scores: bool) -> int:
        """The edit of a row, by its key or by what was requested."""
        del has_scores
        which = {name: value for name in EDIT_COLUMNS if (value := self._layout.cell(row, name))}
        if arm:
            which["arm"] = arm
        if key := which.get("edit"):
            edit = self._by_key.get(key)
            if edit is None:
                raise Unreadable(f"no edit {key!r} in this audit; `stillme export` lists the keys of a run")
        else:
            edit = self._named(which)
        if not self._outcomes[edit]:
            raise Unreadable("this edit was never made; `stillme run` makes it")
        if not self.edits[edit].image:
            raise Unreadable(f"this edit was {self._outcomes[edit]}, so there is no picture to rate; remove the row")
        return edit

    def _named(self, which: Mapping[str, str]) -> int:
        design = self._design
        for name in ("portrait", "prompt"):
            if name not in which:
                raise Unreadable(f"no {name}; name its column with --map {name}=COLUMN, or give the edit's key")
        editors = {named.name: named for named in design.editors}
        editor = which.get("editor") or (next(iter(editors)) if len(editors) == 1 else "")
        if editor not in editors:
            unknown = f"no editor {editor!r} in this audit.{did_you_mean(editor, editors)}" if editor else "no editor."
            raise Unreadable(f"{unknown} Known: {', '.join(editors)}")
        arm = which.get("arm", Arm.BASELINE.value)
        if arm not in design.arms:
            raise Unreadable(f"no arm {arm!r} in this audit; it has {', '.join(design.arms)}")
        seeds = editors[editor].seeds
        seed = which.get("seed", str(seeds[0]) if len(seeds) == 1 else "")
        if seed not in map(str, seeds):
            raise Unreadable(f"{f'no seed {seed!r}' if seed else 'no seed'}; {editor} has {', '.join(map(str, seeds))}")
        edit = self._by_name.get((editor, which["portrait"], which["prompt"], arm, int(seed)))
        if edit is not None:
            return edit
        for name, known in (
            ("portrait", {portraits for _, portraits, _, _, _ in self._by_name}),
            ("prompt", {prompt for _, _, prompt, _, _ in self._by_name}),
        ):
            if which[name] not in known:
                raise Unreadable(f"no {name} {which[name]!r} in this audit.{did_you_mean(which[name], known)}")
        raise Unreadable(f"{which['portrait']} × {which['prompt']} is not a request to {editor} in the {arm} arm")
