"""Write rows of scores as a run without an audit, or as further rows of such a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stillme.audit.config import RolesSection
from stillme.audit.design import Design, EditorRecord, JudgeRecord, RecordedRequest, RolesRecord
from stillme.audit.labels import genders_of
from stillme.audit.roles import expected_place
from stillme.core import rubric
from stillme.core.errors import Problem, StillmeError
from stillme.core.paper import setting
from stillme.core.protocols import JudgeCapabilities
from stillme.core.types import Arm, Edited, EditOutcome, Failed, Json, Refused, Request, Settings, Spec, digest
from stillme.findings.exchange.appending import CHUNK, RatedEdit, new_assessments, provenance_of
from stillme.findings.exchange.columns import ColumnMapping, InvalidJudgements
from stillme.findings.exchange.new_edits import STATES, Identity, NewEdits
from stillme.findings.exchange.row_table import RowsAsked, RowTable
from stillme.judges.ensemble import PAIRWISE
from stillme.runs.store import AssessmentRow, EditRow, Store


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
            f"--primary {asked.primary!r} is no model of these rows; they have {', '.join(models) or 'none'}."
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
    return RolesRecord(layouts=layouts, gender=genders.factor, male=genders.male, female=genders.female)


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
    if len(people) < 2 or design.roles is None:
        return 0
    roles = RolesSection(gender=design.roles.gender, male=design.roles.male, female=design.roles.female)
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
