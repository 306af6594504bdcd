"""Write rows of scores as a run: its design, edits and assessments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from stillme import rubric
from stillme.design import Analysis, Design, EditorRecord, JudgeRecord, RecordedRequest, assessment_key
from stillme.errors import StillmeError
from stillme.exchange.columns import ColumnMapping
from stillme.exchange.matching import pseudonym
from stillme.exchange.row_table import STATES, Identity, RowsAsked, RowTable
from stillme.files import sha256_of
from stillme.protocols import JudgeCapabilities
from stillme.store import AssessmentRow, EditRow, Store
from stillme.types import Arm, Assessment, Edited, EditOutcome, Failed, Json, Refused, Request, Spec, digest

_CHUNK = 2_000


def write_run(table: RowTable, file: Path, into: Path, asked: RowsAsked, mapping: ColumnMapping) -> bool:
    """Write design, edits and scores; False where they are there already."""
    provenance = {"file": file.name, "sha256": sha256_of(file)}
    design = _design(table, asked, mapping, provenance)
    if Store.exists(into):
        with Store.reading(into) as store:
            audit, finished = store.latest_audit(), store.designs.latest() is not None
        if audit and audit.hash != design.hash:
            raise StillmeError(
                f"{into} holds another run: other rows, or the same file read in another way. Import into a new "
                "folder; rows of a run are never replaced."
            )
        if finished:
            return False
    into.mkdir(parents=True, exist_ok=True)
    with Store.writing(into) as store:
        store.record_audit(design.hash, design.resolved)
        keys = [""] * len(table.requests)
        # In the order of the editors, as in every other run.
        ordered = sorted(table.requests.items(), key=lambda item: table.editors[item[0][0]])
        for start in range(0, len(ordered), _CHUNK):
            rows: list[EditRow] = []
            for identity, edit in ordered[start : start + _CHUNK]:
                request = _request(design, identity)
                keys[edit] = request.key
                rows.append(_edit_row(request, STATES[table.states[edit]], provenance))
            store.add_edits(rows)
        for assessments in _assessments(table, design, keys, provenance):
            store.add_assessments(assessments)
        # Last, so that a run that was interrupted is no run.
        with store.transaction():
            plan = store.designs.add_plan(_recorded(identity, keys[edit], design) for identity, edit in ordered)
            store.designs.add(design.hash, design.as_json(), plan)
    return True


def _design(table: RowTable, asked: RowsAsked, mapping: ColumnMapping, provenance: Mapping[str, str]) -> Design:
    seeds = tuple(sorted({seed for *_, seed in table.requests}))
    judges = tuple(
        JudgeRecord(
            name=name,
            spec=_judge_spec(name, axes, asked),
            epochs=max(1, len(table.raters[name])),
            capabilities=JudgeCapabilities(
                kind="person" if name in asked.people else "model", axes=_ordered(axes), given=True
            ),
            summary="scores that were imported with the rows",
        )
        for name, axes in table.judges.items()
    )
    title = asked.title or f"rows of {provenance['file']}"
    resolved: dict[str, Json] = {
        "title": title,
        "rows": dict(provenance),
        "groups": list(asked.groups),
        "people": list(asked.people),
        "reference": dict(asked.reference),
        "confidence": asked.confidence,
    }
    if not table.has_states:
        resolved["states"] = False
    # The same file read in another way gives other rows.
    resolved |= {name: part for name, part in _as_read(mapping).items() if part}
    prompts = tuple(table.prompts.values())
    return Design(
        title=title,
        hash=digest({name: part for name, part in resolved.items() if name != "title"}),
        resolved=resolved,
        portraits=tuple(table.portraits.values()),
        prompts=prompts,
        treatments=tuple((Arm(arm), prompt) for arm in table.arms for prompt in prompts),
        editors=tuple(
            EditorRecord(name=name, spec=_editor_spec(name), seeds=seeds, summary="edits that were imported as rows")
            for name in table.editors
        ),
        judges=judges,
        analysis=Analysis(
            factors=asked.groups,
            reference=dict(asked.reference),
            confidence=asked.confidence,
            combined=tuple(judge.name for judge in judges if judge.capabilities.kind == "model"),
        ),
    )


def _as_read(mapping: ColumnMapping) -> dict[str, Json]:
    return {
        "map": dict(sorted(mapping.names.items())),
        "set": dict(sorted(mapping.fixed.items())),
        "where": {name: sorted(values) for name, values in sorted(mapping.where.items())},
        "unless": {name: sorted(values) for name, values in sorted(mapping.unless.items())},
        "ignore": sorted(mapping.ignored),
    }


def _editor_spec(name: str) -> Spec:
    return Spec(use="rows", version="1", parameters={"editor": name})


def _judge_spec(name: str, axes: set[str], asked: RowsAsked) -> Spec:
    kind = "person" if name in asked.people else "model"
    return Spec(use="imported", version="1", parameters={"source": name, "kind": kind, "axes": list(_ordered(axes))})


def _ordered(axes: set[str]) -> tuple[str, ...]:
    return tuple(name for name in rubric.load().axes if name in axes)


def _recorded(identity: Identity, key: str, design: Design) -> RecordedRequest:
    editor, portrait, prompt, arm, seed = identity
    return RecordedRequest(
        editor=editor,
        key=key,
        portraits=(portrait,),
        prompt=prompt,
        arm=Arm(arm),
        instruction=design.prompt_by_id[prompt].text,
        seed=seed,
    )


def _request(design: Design, identity: Identity) -> Request:
    editor, portrait, prompt, arm, seed = identity
    asked = design.prompt_by_id[prompt]
    return Request(
        portraits=(design.portrait_by_id[portrait],),
        prompt=asked,
        arm=Arm(arm),
        instruction=asked.text,
        editor=next(record.spec for record in design.editors if record.name == editor),
        seed=seed,
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
    """Stands for the hash of a picture that nobody has."""
    return digest(["no picture", key])


def _assessments(
    table: RowTable, design: Design, keys: Sequence[str], provenance: Mapping[str, str]
) -> Iterator[list[AssessmentRow]]:
    """All ratings of one edit by one rater are one assessment."""
    edits, judges, raters = (np.asarray(column) for column in (table.edits, table.by, table.rater))
    order = np.lexsort((np.asarray(table.axis), raters, judges, edits))
    same = np.ones(len(order), dtype=np.bool_)
    if len(order):
        columns = np.stack([edits[order], judges[order].astype(np.int32), raters[order]])
        same[1:] = (np.diff(columns, axis=1) != 0).any(axis=0)
    starts = np.flatnonzero(same)
    ends = np.append(starts, len(order))[1:]
    names = [{place: name for name, place in table.raters[judge.name].items()} for judge in design.judges]
    has_raters = table.has_raters
    chunk: list[AssessmentRow] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        entries: list[int] = order[start:end].tolist()
        edit, judge, rater = table.edits[entries[0]], table.by[entries[0]], table.rater[entries[0]]
        record = design.judges[judge]
        said_by = {"rater": name} if has_raters and (name := pseudonym(names[judge][rater])) else {}
        chunk.append(
            AssessmentRow(
                key=assessment_key(keys[edit], _no_picture(keys[edit]), record.spec.key, rater),
                edit=keys[edit],
                epoch=rater,
                judge=record.spec,
                assessment=Assessment(
                    ratings={table.axes[table.axis[entry]]: table.rating(entry) for entry in entries},
                    effective={**provenance, **said_by},
                ),
                attempts=1,
                seconds=0.0,
                cost=0.0,
            )
        )
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    yield chunk
