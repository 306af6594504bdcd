"""A run without an audit, of edits that only rows know of; further rows add to it."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from stillme.audit.design import Design, EditorRecord, JudgeRecord, RecordedRequest, RolesRecord
from stillme.audit.grid import expected_place, genders_of
from stillme.core import prompts, rubric
from stillme.core.errors import Problem, StillmeError
from stillme.core.paper import setting
from stillme.core.protocols import JudgeCapabilities
from stillme.core.types import (
    Arm,
    Edited,
    EditOutcome,
    Failed,
    ImageFile,
    Json,
    Portrait,
    Prompt,
    Refused,
    Request,
    Settings,
    Spec,
    digest,
)
from stillme.findings.exchange.columns import (
    PROMPT_COLUMNS,
    ColumnMapping,
    FileRow,
    InvalidJudgements,
    Layout,
    Unreadable,
)
from stillme.findings.exchange.row_table import CHUNK, RatedEdit, RowsAsked, RowTable, new_assessments, provenance_of
from stillme.judges.ensemble import PAIRWISE
from stillme.runs import RecordedRun
from stillme.runs.store import AssessmentRow, EditRow, Store

STATES = ("edited", "refused", "failed")

_DEFAULTS = {"prompt": "all", "editor": "editor", "arm": "baseline", "state": "edited"}
_EDITED = STATES.index("edited")
_NOT_SAID = "rows"
"""The category of a prompt of which nothing is said."""

Cell = tuple[str, tuple[str, ...], str, str]
"""Editor, portraits, prompt and arm."""
Identity = tuple[str, tuple[str, ...], str, str, int | None]
"""Editor, portraits, prompt, arm and seed of an edit; the seed is None where it is not known."""


class NewEdits:
    """Edits by what rows say of them; those of a run of rows come first."""

    def __init__(self, layout: Layout, groups: Sequence[str], run: RecordedRun | None = None) -> None:
        self._layout = layout
        self.groups = tuple(dict.fromkeys([*(run.design.factors if run else ()), *groups]))
        self.portraits: dict[str, Portrait] = dict(run.design.portrait_by_id) if run else {}
        self.prompts: dict[str, Prompt] = dict(run.design.prompt_by_id) if run else {}
        self.editors: dict[str, int] = {}
        self.arms: dict[str, int] = {}
        self.requests: dict[Identity, int] = {}
        self.states = array("b")
        self._prompt_of: list[str] = []
        self._seeds: dict[Cell, list[int | None]] = {}
        self._described: dict[str, dict[str, str]] = {}
        """By prompt: what its first row says about it."""
        self._labelled: set[str] = set(self.portraits)
        if run:
            self._begin_with(run)

    def _begin_with(self, run: RecordedRun) -> None:
        known_seeds = {editor.name: bool(editor.seeds) for editor in run.design.editors}
        for editor in run.design.editors:
            self.editors[editor.name] = len(self.editors)
        for row in run.rows():
            request = row.request
            self.arms.setdefault(str(request.arm), len(self.arms))
            seed = request.seed if known_seeds[request.editor] else None
            self._edit((request.editor, request.portraits, request.prompt, str(request.arm)), seed)
            self.states.append(STATES.index(row.edit.outcome if row.edit else "failed"))
            self._prompt_of.append(request.prompt)

    @property
    def has_states(self) -> bool:
        """Whether the rows say what became of an edit; otherwise only edits that were made are in the file."""
        return self._layout.has("state") or "state" in self._layout.fixed

    @property
    def unlabelled(self) -> dict[str, int]:
        """How many portraits have no group, by the columns that have such."""
        counts = {
            group: sum(group not in portrait.attributes for portrait in self.portraits.values())
            for group in self.groups
        }
        return {group: count for group, count in counts.items() if count}

    def subcategory(self, edit: int) -> str:
        """Of its prompt; empty where rows do not say."""
        known = self.prompts[self._prompt_of[edit]].subcategory
        return "" if known == _NOT_SAID else known

    def find(self, row: FileRow, arm: str, *, has_scores: bool) -> int | None:
        """The edit of a row, new or known; None where it was refused or failed."""
        layout = self._layout
        cells = {name: layout.cell(row, name) or default for name, default in _DEFAULTS.items()}
        prompt = self._prompt(cells["prompt"], row)
        people = self._people(row, prompt)
        if (arm := arm or cells["arm"]) not in tuple(Arm):
            raise Unreadable(f"no arm {arm!r}; arms are {', '.join(Arm)}. Rename it in the file")
        seed = layout.cell(row, "seed")
        if seed and not seed.lstrip("-").isdecimal():
            raise Unreadable(f"seed = {seed!r} is not a whole number")
        if cells["state"] not in STATES:
            raise Unreadable(f"state = {cells['state']!r}; write {', '.join(STATES)}")
        self.editors.setdefault(cells["editor"], len(self.editors))
        self.arms.setdefault(arm, len(self.arms))
        edit = self._edit((cells["editor"], people, prompt.id, arm), int(seed) if seed else None)
        state = STATES.index(cells["state"])
        if edit == len(self.states):
            self.states.append(state)
            self._prompt_of.append(prompt.id)
        elif self.states[edit] != state:
            raise Unreadable(f"this edit is {cells['state']} here and {STATES[self.states[edit]]} in an earlier row")
        if state == _EDITED:
            return edit
        if has_scores:
            raise Unreadable(f"the edit is {cells['state']} and has scores; there is no picture to score")
        return None

    def _edit(self, cell: Cell, seed: int | None) -> int:
        """The edit of a cell; without a seed the only one that is known there."""
        seeds = self._seeds.setdefault(cell, [])
        if seed not in seeds and seeds:
            if seed is None and len(seeds) > 1:
                raise Unreadable(f"no seed; this edit has the seeds {', '.join(map(str, seeds))}")
            if seed is None or None in seeds:
                seed = seeds[0]
        if seed not in seeds:
            seeds.append(seed)
        return self.requests.setdefault((*cell, seed), len(self.requests))

    def _people(self, row: FileRow, prompt: Prompt) -> tuple[str, ...]:
        """The portraits of a row: one, or for a role prompt also two, written `a+b` with labels `Male+Female`."""
        layout = self._layout
        name = layout.cell(row, "portrait")
        if not name:
            raise Unreadable("no portrait; name its column with --map portrait=COLUMN")
        names = name.split("+") if prompt.stereotype else [name]
        given = [column for column in (*self.groups, "block") if layout.has(column) or column in layout.fixed]
        for place, portrait in enumerate(names):
            labels: dict[str, str] = {}
            for column in given:
                parts = layout.cell(row, column).split("+") if len(names) > 1 else [layout.cell(row, column)]
                # A role row that labels no one, or both with one word, labels the portraits elsewhere.
                if len(parts) == len(names):
                    labels[column] = parts[place]
            self._portrait(portrait, labels)
        return tuple(names)

    def _portrait(self, name: str, said: Mapping[str, str]) -> None:
        labels = {group: said[group] for group in self.groups if said.get(group)}
        known = self.portraits.get(name)
        if known is None:
            self.portraits[name] = Portrait(
                id=name,
                image=ImageFile(path=Path(), sha256=""),
                attributes=labels,
                label_origin="given with the rows",
                licence="not stated",
                block=said.get("block", ""),
            )
        elif not known.attributes and labels and name not in self._labelled:
            self.portraits[name] = replace(known, attributes=labels, block=said.get("block", known.block))
        else:
            before = {**known.attributes, "block": known.block}
            before = {column: before.get(column, "") for column in said}
            _same(f"portrait {name!r}", before, said, "a portrait belongs to one group and one block")
        if said:
            self._labelled.add(name)

    def _prompt(self, name: str, row: FileRow) -> Prompt:
        said = {column: self._layout.cell(row, column) for column in PROMPT_COLUMNS if self._layout.has(column)}
        if name not in self.prompts:
            self.prompts[name] = _described(name, said)
        _same(f"prompt {name!r}", self._described.setdefault(name, said), said, "give another prompt another name")
        return self.prompts[name]


@cache
def _papers() -> tuple[Mapping[str, Prompt], Mapping[str, Prompt]]:
    """The paper's prompts by text, and by id."""
    whole = (*prompts.diagnostic(), *prompts.roles(), *prompts.roles_counterbalance())
    printed = {prompt.text: prompt for prompt in prompts.roles_as_printed()}
    return printed | {prompt.text: prompt for prompt in whole}, {prompt.id: prompt for prompt in whole}


def is_papers(prompt: Prompt) -> bool:
    """Whether the paper has this prompt, word for word."""
    return prompt.text in _papers()[0]


def _described(name: str, said: Mapping[str, str]) -> Prompt:
    """A prompt of the paper by its text, or without any by its id; else what the row says of it."""
    by_text, by_id = _papers()
    text = said.get("prompt_text", "")
    known = by_text.get(text) if text else by_id.get(name)
    prompt = replace(known, id=name) if known else Prompt(id=name, text=text or name, category="", subcategory="")
    if (years := said.get("years", "")) and not years.lstrip("-").isdecimal():
        raise Unreadable(f"years = {years!r} is not a whole number; write by how many the prompt ages a person")
    if (stereotype := said.get("stereotype", "")) not in ("", "male", "female"):
        raise Unreadable(f"stereotype = {stereotype!r}; write male or female")
    return replace(
        prompt,
        category=said.get("category") or prompt.category or _NOT_SAID,
        subcategory=said.get("subcategory") or prompt.subcategory or _NOT_SAID,
        years=int(years) if years else prompt.years,
        target=said.get("target") or prompt.target,
        stereotype=stereotype or prompt.stereotype,
        pronoun=said.get("pronoun") or prompt.pronoun,
    )


def _same(what: str, before: Mapping[str, str], now: Mapping[str, str], why: str) -> None:
    for column in (*before, *now):
        was, now_is = before.get(column, ""), now.get(column, "")
        if was != now_is:
            raise Unreadable(f"{what} has {column} {now_is!r}, and {was!r} in an earlier row; {why}")


def imported_as(file: Path, mapping: ColumnMapping) -> dict[str, Json]:
    """A file, and how it was read: what a run of rows keeps of each import."""
    read: dict[str, Json] = {
        "map": dict(sorted(mapping.names.items())),
        "set": dict(sorted(mapping.fixed.items())),
        "where": {name: sorted(values) for name, values in sorted(mapping.where.items())},
        "unless": {name: sorted(values) for name, values in sorted(mapping.unless.items())},
        "ignore": sorted(mapping.ignored),
    }
    return {**provenance_of(file), **{name: part for name, part in read.items() if part}}


class RunOfRows:
    """A run that is ready to be written: everything is checked but for what the run already holds."""

    def __init__(
        self,
        table: RowTable,
        edits: NewEdits,
        file: Path,
        asked: RowsAsked,
        mapping: ColumnMapping,
        before: Design | None,
    ) -> None:
        self._table, self._edits, self._file = table, edits, file
        self._design = _design(table, edits, file, asked, mapping, before)
        # A mistake is found before anything is written.
        for identity in edits.requests:
            _expected(self._design, identity)

    def write(self, store: Store) -> int:
        """Write design, edits and scores; returns how many assessments were new."""
        design, provenance = self._design, provenance_of(self._file)
        identities = list(self._edits.requests)
        keys = [_request(design, identity).key for identity in identities]
        rated = [RatedEdit(key, _no_picture(key)) for key in keys]
        judges = {judge.name: judge for judge in design.judges}
        problems: list[Problem] = []

        def new_rows() -> Iterator[AssessmentRow]:
            return new_assessments(store, self._table, judges, rated, provenance, problems)

        if store.latest_audit() is not None:
            for _ in new_rows():
                pass
        if problems:
            raise InvalidJudgements(str(self._file), problems)
        store.record_audit(design.hash, design.resolved)
        for start in range(0, len(identities), CHUNK):
            chunk = [_request(design, identity) for identity in identities[start : start + CHUNK]]
            finished = store.finished("edit", [request.key for request in chunk])
            states = self._edits.states[start : start + CHUNK]
            store.add(
                [
                    _edit_row(request, STATES[state], provenance)
                    for request, state in zip(chunk, states, strict=True)
                    if request.key not in finished
                ]
            )
        written, rows = 0, new_rows()
        while chunk_of_rows := list(itertools.islice(rows, CHUNK)):
            store.add(chunk_of_rows)
            written += len(chunk_of_rows)
        # Last, so that a run that was interrupted is no run. In the order of the editors, as in every other run.
        order = sorted(range(len(keys)), key=lambda place: self._edits.editors[identities[place][0]])
        with store.transaction():
            plan = store.designs.add_plan(_recorded(design, identities[place], keys[place]) for place in order)
            store.designs.add(design.hash, design.as_json(), plan)
        return written


def _design(
    table: RowTable, edits: NewEdits, file: Path, asked: RowsAsked, mapping: ColumnMapping, before: Design | None
) -> Design:
    judges = _judges(table, asked, before)
    prompts, portraits = tuple(edits.prompts.values()), tuple(edits.portraits.values())
    analysis = _analysis(edits, judges, asked, before.analysis if before else Settings())
    title = asked.title or (before.title if before else f"rows of {file.name}")
    resolved: dict[str, Json] = {
        "title": title,
        "rows": [*(before.resolved["rows"] if before else ()), imported_as(file, mapping)],
        "groups": list(edits.groups),
        "people": sorted(judge.name for judge in judges if judge.capabilities.kind == "person"),
        "reference": dict(analysis.reference),
        "confidence": analysis.confidence,
        "ensemble": {"rule": analysis.rule, "combined": list(analysis.combined)},
    }
    if analysis.race_cut:
        resolved["race_cut"] = analysis.race_cut
    if not edits.has_states or (before and not before.resolved.get("states", True)):
        resolved["states"] = False
    papers = {**({editor.name: editor.paper for editor in before.editors} if before else {}), **asked.paper}
    for editor, paper in asked.paper.items():
        if editor not in edits.editors or setting().named(paper) is None:
            known = ", ".join(paper.plugins[0] for paper in setting().editors)
            raise StillmeError(
                f"--paper {editor}={paper} must be an editor of the rows ({', '.join(edits.editors)}) and one of the "
                f"paper's ({known})."
            )
    seeds = {
        editor: sorted({seed for name, *_, seed in edits.requests if name == editor and seed is not None})
        for editor in edits.editors
    }
    return Design(
        title=title,
        hash=digest({name: part for name, part in resolved.items() if name != "title"}),
        resolved=resolved,
        portraits=portraits,
        prompts=prompts,
        treatments=tuple((Arm(arm), prompt) for arm in edits.arms for prompt in prompts),
        editors=tuple(
            EditorRecord(
                name=name,
                spec=_editor_spec(name),
                seeds=tuple(seeds[name]),
                summary="edits that were imported as rows",
                paper=papers.get(name, ""),
            )
            for name in edits.editors
        ),
        judges=judges,
        analysis=analysis,
        roles=_roles(edits),
    )


def _judges(table: RowTable, asked: RowsAsked, before: Design | None) -> tuple[JudgeRecord, ...]:
    known = {judge.name: judge for judge in before.judges} if before else {}
    judges: list[JudgeRecord] = []
    for name in dict.fromkeys([*known, *table.judges]):
        record = known.get(name)
        kind = record.capabilities.kind if record else asked.kind(name) or "model"
        if record and asked.kind(name) not in (None, kind):
            raise StillmeError(f"{name!r} is a {kind} in this run; import the rows under another judge's name.")
        axes = {*(record.capabilities.axes if record else ()), *table.judges.get(name, ())}
        ordered = tuple(axis for axis in rubric.load().axes if axis in axes)
        judges.append(
            JudgeRecord(
                name=name,
                # Later rows may add axes; they are not another judge for that.
                spec=Spec(
                    use="imported",
                    version="1",
                    parameters={"source": name, "kind": kind},
                    unkeyed={"axes": list(ordered)},
                ),
                epochs=max(record.epochs if record else 1, table.epochs.get(name, 1)),
                capabilities=JudgeCapabilities(kind=kind, axes=ordered, given=True),
                summary="scores that were imported with the rows",
            )
        )
    return tuple(judges)


def _analysis(edits: NewEdits, judges: Sequence[JudgeRecord], asked: RowsAsked, before: Settings) -> Settings:
    models = [judge.name for judge in judges if judge.capabilities.kind == "model"]
    rule = asked.rule or before.rule
    primary = asked.primary or next(iter(before.combined), "")
    if asked.primary and asked.primary not in models:
        raise StillmeError(
            f"--primary {asked.primary!r} is not a model of these rows; they have {', '.join(models) or 'none'}."
        )
    if rule in PAIRWISE and len(models) > 2:
        raise StillmeError(
            f"--ensemble {rule} is for two models, and the rows have {', '.join(models)}. Import two of them with "
            "--where, or choose another rule."
        )
    if rule in PAIRWISE and len(models) == 2 and not primary:
        raise StillmeError(
            f"--ensemble {rule} needs --primary: which of {' and '.join(models)} decides beyond a point?"
        )
    return replace(
        before,
        factors=edits.groups,
        reference={**before.reference, **asked.reference},
        confidence=asked.confidence or before.confidence,
        race_cut=asked.race_cut or before.race_cut,
        rule=rule,
        combined=tuple(sorted(models, key=lambda name: name != primary)),
    )


def _roles(edits: NewEdits) -> RolesRecord | None:
    """Which people role prompts were asked with, and the labels of their genders."""
    counts = {len(people) for _, people, prompt, *_ in edits.requests if edits.prompts[prompt].stereotype}
    if not counts:
        return None
    genders = genders_of(list(edits.portraits.values()))
    if genders is None:
        raise StillmeError(
            "There are role prompts, and no group of the portraits has words for men and women, such as male and "
            "female. Name that column with --group; for two people it reads Male+Female."
        )
    layouts = tuple(name for name, count in (("role_pair", 2), ("role_single", 1)) if count in counts)
    return replace(genders, layouts=layouts)


def _editor_spec(name: str) -> Spec:
    return Spec(use="rows", version="1", parameters={"editor": name})


def _request(design: Design, identity: Identity) -> Request:
    editor, people, prompt, arm, seed = identity
    asked = design.prompt_by_id[prompt]
    return Request(
        portraits=tuple(design.portrait_by_id[name] for name in people),
        prompt=asked,
        arm=Arm(arm),
        instruction=asked.text,
        editor=_editor_spec(editor),
        seed=seed or 0,
    )


def _expected(design: Design, identity: Identity) -> int:
    """Which of two people the stereotype expects; 0 for one person alone."""
    _, people, prompt, *_ = identity
    roles = design.roles
    if len(people) < 2 or roles is None:
        return 0
    portraits = [design.portrait_by_id[name] for name in people]
    expected = expected_place(design.prompt_by_id[prompt], portraits, roles)
    if not expected:
        raise StillmeError(
            f"{'+'.join(people)} with {prompt}: one of the two must have {roles.gender} {roles.male!r} and the other "
            f"{roles.female!r}. Label them in the column {roles.gender}, as {roles.male}+{roles.female}."
        )
    return expected


def _recorded(design: Design, identity: Identity, key: str) -> RecordedRequest:
    editor, people, prompt, arm, seed = identity
    return RecordedRequest(
        editor=editor,
        key=key,
        portraits=people,
        prompt=prompt,
        arm=Arm(arm),
        instruction=design.prompt_by_id[prompt].text,
        seed=seed or 0,
        expected_place=_expected(design, identity),
    )


def _edit_row(request: Request, state: str, provenance: Mapping[str, str]) -> EditRow:
    outcome: EditOutcome = Edited(image=b"", effective=dict(provenance))
    if state == "refused":
        outcome = Refused(message="refused, as the rows say", effective=dict(provenance))
    elif state == "failed":
        outcome = Failed(error="failed, as the rows say", retryable=False)
    image = _no_picture(request.key) if state == "edited" else None
    return EditRow(request=request, outcome=outcome, image=image, attempts=1, seconds=0.0, cost=0.0)


def _no_picture(key: str) -> str:
    """Stands for the hash of a picture that is not in the run."""
    return digest(["no picture", key])
