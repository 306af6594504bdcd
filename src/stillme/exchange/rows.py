"""A run from rows of scores alone: no audit.toml, no editor and no picture is needed.

Every reader works on such a run: estimates, tables, statistics, report (without pictures), compare and gate. Rows are
read once and kept as codes and numbers, so that memory grows by a few bytes for each score.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stillme import rubric
from stillme.design import Analysis, Design, EditorRecord, JudgeRecord, RecordedRequest, assessment_key
from stillme.errors import Problem, StillmeError, did_you_mean
from stillme.exchange.columns import ColumnMapping, InvalidJudgements, Layout, Unreadable
from stillme.exchange.matching import pseudonym
from stillme.exchange.table_files import Row, columns_of, read
from stillme.files import sha256_of
from stillme.protocols import JudgeCapabilities
from stillme.store import AssessmentRow, EditRow, Store
from stillme.types import (
    Abstained,
    Arm,
    Assessment,
    Edited,
    EditOutcome,
    Failed,
    ImageFile,
    Json,
    Portrait,
    Prompt,
    Rated,
    Rating,
    Refused,
    Request,
    Spec,
    digest,
)

_PROMPT_COLUMNS = ("prompt_text", "category", "subcategory")
MORE_COLUMNS = ("judge", "block", "state", *_PROMPT_COLUMNS)
"""Columns of rows that need no audit, beside those of judgements: `state` says what became of the edit."""

_DEFAULTS = {"prompt": "all", "editor": "editor", "arm": "baseline", "seed": "0", "judge": "judge", "state": "edited"}
_STATES = ("edited", "refused", "failed")
_EDITED = _STATES.index("edited")
_CHUNK = 2_000
_RATED, _ABSTAINED, _FAILED = range(3)


def _no_watch(_rows: int) -> None:
    pass


Identity = tuple[str, str, str, str, int]
"""Editor, portrait, prompt, arm and seed of an edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """What the user says about the rows."""

    groups: tuple[str, ...]
    """Columns of the portraits' attributes, whose groups are compared."""
    people: tuple[str, ...] = ()
    """The judges that are people."""
    reference: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    title: str = ""
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSummary:
    """What became of the rows."""

    file: Path
    into: Path
    edits: int
    refused: int
    failed: int
    scores: int
    abstained: int
    portraits: int
    unlabelled: Mapping[str, int]
    """By group column: how many portraits say nothing there. They are in no group."""
    editors: tuple[str, ...]
    judges: tuple[str, ...]
    has_states: bool
    """Whether the rows say which edits were refused or failed."""
    left_out: int
    unread: tuple[str, ...]
    already: bool
    """Whether the run was there already, made of the same rows."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        names = ("edits", "refused", "failed", "scores", "abstained", "portraits", "has_states", "left_out", "already")
        return {name: getattr(self, name) for name in names} | {
            "file": str(self.file),
            "into": str(self.into),
            "editors": list(self.editors),
            "judges": list(self.judges),
            "unread_columns": list(self.unread),
            "unlabelled": dict(self.unlabelled),
        }

    def as_text(self) -> str:
        """For people."""
        if self.already:
            return f"{self.into} holds exactly these rows already; nothing was changed."
        lost = f" ({self.refused:,} refused, {self.failed:,} failed)" if self.has_states else ""
        lines = [
            f"{self.edits:,} edits of {self.portraits:,} portraits by {', '.join(self.editors)}{lost}",
            f"{self.scores:,} scores by {', '.join(self.judges) or 'nobody'} ({self.abstained:,} abstained)",
        ]
        lines += [
            f"{count:,} of {self.portraits:,} portraits have no {group}; they count for everyone and in no group of it."
            for group, count in self.unlabelled.items()
        ]
        if not self.has_states:
            lines.append("There is no column `state`, so refusals and failures are not known and not estimated.")
        if self.left_out:
            lines.append(f"{self.left_out:,} rows were left out by --where.")
        if self.unread:
            lines.append(f"Columns that were not read: {', '.join(self.unread)}.")
        return "\n".join(lines)


def import_rows(
    file: Path,
    into: Path,
    asked: RowsAsked,
    mapping: ColumnMapping,
    *,
    watch: Callable[[int], None] = _no_watch,
) -> RowsSummary:
    """Make the run `into` of the rows in `file`: all of them, or none."""
    layout = Layout(columns_of(file), mapping, str(file), more=(*MORE_COLUMNS, *asked.groups))
    for group in asked.groups:
        if group not in layout.columns and group not in mapping.names:
            near = did_you_mean(group, layout.columns)
            raise StillmeError(f"{file} has no column {group!r}.{near} It has {', '.join(layout.columns)}.")
    table = _Table(layout, asked)
    problems: list[Problem] = []
    rows = left_out = 0
    for row in read(file):
        if not layout.selects(row):
            left_out += 1
            continue
        rows += 1
        try:
            table.add(row)
        except Unreadable as error:
            problems.append(Problem(place=row.place, message=str(error)))
        if rows % 100_000 == 0:
            watch(rows)
    if not rows:
        raise StillmeError(f"{file} has no rows" + (" that match --where." if left_out else "."))
    if problems:
        raise InvalidJudgements(str(file), problems)
    _require_names(table, asked)
    written = _written(table, file, into, asked, mapping)
    states, outcomes = np.asarray(table.states), np.asarray(table.outcome)
    return RowsSummary(
        file=file,
        into=into,
        edits=len(states),
        refused=int((states == _STATES.index("refused")).sum()),
        failed=int((states == _STATES.index("failed")).sum()),
        scores=int((outcomes == _RATED).sum()),
        abstained=int((outcomes == _ABSTAINED).sum()),
        portraits=len(table.portraits),
        unlabelled=table.unlabelled,
        editors=tuple(table.editors),
        judges=tuple(table.judges),
        has_states=table.has_states,
        left_out=left_out,
        unread=layout.unread,
        already=not written,
    )


def _require_names(table: _Table, asked: RowsAsked) -> None:
    """What the user names must be in the rows: a run whose reference does not exist could never be estimated."""
    for name in asked.people:
        if name not in table.judges:
            near = did_you_mean(name, table.judges)
            raise StillmeError(f"No row is by a judge {name!r}.{near} The rows have {', '.join(table.judges)}.")
    for factor, level in asked.reference.items():
        if factor not in asked.groups:
            near = did_you_mean(factor, asked.groups)
            raise StillmeError(f"--reference names {factor!r}, which is no --group.{near}")
        levels = sorted({portrait.attributes.get(factor, "") for portrait in table.portraits.values()} - {""})
        if level not in levels:
            near = did_you_mean(level, levels)
            raise StillmeError(f"No portrait has {factor} {level!r}.{near} The rows have {', '.join(levels)}.")


class _Table:
    """The rows as codes and numbers."""

    def __init__(self, layout: Layout, asked: RowsAsked) -> None:
        self._layout, self._asked = layout, asked
        self.portraits: dict[str, Portrait] = {}
        self.prompts: dict[str, Prompt] = {}
        self.editors: dict[str, int] = {}
        self.arms: dict[str, int] = {}
        self.judges: dict[str, set[str]] = {}
        """By name: the axes that the judge answers."""
        self.raters: dict[str, dict[str, int]] = {}
        """By judge: its raters, or its numbered answers."""
        self.requests: dict[Identity, int] = {}
        self.states = array("b")
        self.axes = tuple(rubric.load().axes)
        self._axis_codes = {axis: code for code, axis in enumerate(self.axes)}
        self._judge_codes: dict[str, int] = {}
        # One entry a score.
        self.edits, self.by, self.rater = array("i"), array("h"), array("i")
        self.axis, self.outcome, self.scores = array("h"), array("b"), array("d")
        self._seen: set[int] = set()
        self._described: dict[str, dict[str, str]] = {}
        """By prompt: what its first row says about it."""
        self._prompts_described = any(layout.has(column) for column in _PROMPT_COLUMNS)

    def add(self, row: Row) -> None:
        """Take a row in, or raise `Unreadable`."""
        layout = self._layout
        cells = {name: layout.cell(row, name) or default for name, default in _DEFAULTS.items()}
        portrait = self._portrait(row)
        self._prompt(cells["prompt"], row)
        if cells["arm"] not in tuple(Arm):
            raise Unreadable(f"no arm {cells['arm']!r}; arms are {', '.join(Arm)}. Rename it in the file")
        if not cells["seed"].lstrip("-").isdecimal():
            raise Unreadable(f"seed = {cells['seed']!r} is not a whole number")
        if cells["state"] not in _STATES:
            raise Unreadable(f"state = {cells['state']!r}; write {', '.join(_STATES)}")
        self.editors.setdefault(cells["editor"], len(self.editors))
        self.arms.setdefault(cells["arm"], len(self.arms))
        identity = (cells["editor"], portrait, cells["prompt"], cells["arm"], int(cells["seed"]))
        edit = self.requests.setdefault(identity, len(self.requests))
        state = _STATES.index(cells["state"])
        if edit == len(self.states):
            self.states.append(state)
        elif self.states[edit] != state:
            raise Unreadable(f"this edit is {cells['state']} here and {_STATES[self.states[edit]]} in an earlier row")
        if state == _EDITED:
            self._rate(row, edit, cells["judge"])
        elif layout.has_scores(row):
            raise Unreadable(
                f"the edit is {cells['state']} and has scores; there is no picture that they could be about"
            )

    def _rate(self, row: Row, edit: int, judge: str) -> None:
        layout = self._layout
        code = self._judge_codes.setdefault(judge, len(self._judge_codes))
        axes, raters = self.judges.setdefault(judge, set()), self.raters.setdefault(judge, {})
        name = layout.said_by(row)
        if raters and ("" in raters) == bool(name):
            raise Unreadable(
                f"some rows of {judge!r} name a rater or epoch and others do not; fill it in for all of them"
            )
        rater = raters.setdefault(name, len(raters))
        for axis, rating in layout.ratings(row):
            place = self._axis_codes[axis]
            answer = hash((edit, code, rater, place))
            if answer in self._seen:
                how = "name the raters in a column `rater`, or number the answers in `epoch`"
                raise Unreadable(f"{axis} of this edit by {judge!r} is in an earlier row; {how}")
            self._seen.add(answer)
            axes.add(axis)
            self.edits.append(edit)
            self.by.append(code)
            self.rater.append(rater)
            self.axis.append(place)
            self.outcome.append(_outcome(rating))
            self.scores.append(rating.score if isinstance(rating, Rated) else float("nan"))

    @property
    def unlabelled(self) -> dict[str, int]:
        """How many portraits have no group, by the columns that have such."""
        counts = {
            group: sum(group not in portrait.attributes for portrait in self.portraits.values())
            for group in self._asked.groups
        }
        return {group: count for group, count in counts.items() if count}

    @property
    def has_states(self) -> bool:
        """Whether rows say what became of an edit; otherwise only edits that were made are in the file."""
        return self._layout.has("state") or "state" in self._layout.fixed

    @property
    def has_raters(self) -> bool:
        """Whether answers are told apart by who gave them."""
        return self._layout.has("rater")

    def rating(self, entry: int) -> Rating:
        """One entry as it is kept in the ledger."""
        match self.outcome[entry]:
            case 0:
                return Rated(score=self.scores[entry], evidence="")
            case 1:
                return Abstained(reason="no reason given")
            case _:
                return Failed(error="no reason given", retryable=False)

    def _portrait(self, row: Row) -> str:
        layout = self._layout
        name = layout.cell(row, "portrait")
        if not name:
            raise Unreadable("no portrait; name its column with --map portrait=COLUMN")
        labels = {group: value for group in self._asked.groups if (value := layout.cell(row, group))}
        known = self.portraits.get(name)
        if known is None:
            self.portraits[name] = Portrait(
                id=name,
                image=ImageFile(path=Path(), sha256=""),
                attributes=labels,
                label_origin="given with the rows",
                licence="not stated",
                block=layout.cell(row, "block"),
            )
        else:
            before = {**known.attributes, "block": known.block}
            now = {**labels, "block": layout.cell(row, "block")}
            _same(f"portrait {name!r}", before, now, "a portrait belongs to one group and one block")
        return name

    def _prompt(self, name: str, row: Row) -> None:
        if name in self.prompts and not self._prompts_described:
            return
        cells = {column: self._layout.cell(row, column) for column in _PROMPT_COLUMNS}
        if name not in self.prompts:
            self.prompts[name] = Prompt(
                id=name,
                text=cells["prompt_text"] or name,
                category=cells["category"] or "rows",
                subcategory=cells["subcategory"] or "rows",
            )
            self._described[name] = cells
        _same(f"prompt {name!r}", self._described[name], cells, "give another prompt another name")


def _same(what: str, before: Mapping[str, str], now: Mapping[str, str], why: str) -> None:
    for column in (*before, *now):
        was, now_is = before.get(column, ""), now.get(column, "")
        if was != now_is:
            raise Unreadable(f"{what} has {column} {now_is!r}, and {was!r} in an earlier row; {why}")


def _outcome(rating: Rating) -> int:
    match rating:
        case Rated():
            return _RATED
        case Abstained():
            return _ABSTAINED
        case _:
            return _FAILED


def _written(table: _Table, file: Path, into: Path, asked: RowsAsked, mapping: ColumnMapping) -> bool:
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
                rows.append(_edit_row(request, _STATES[table.states[edit]], provenance))
            store.add_edits(rows)
        for assessments in _assessments(table, design, keys, provenance):
            store.add_assessments(assessments)
        # Last, so that a run that was interrupted is no run.
        with store.transaction():
            plan = store.designs.add_plan(_recorded(identity, keys[edit], design) for identity, edit in ordered)
            store.designs.add(design.hash, design.as_json(), plan)
    return True


def _design(table: _Table, asked: RowsAsked, mapping: ColumnMapping, provenance: Mapping[str, str]) -> Design:
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
        "seed": asked.seed,
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
            seed=asked.seed,
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
    image = no_picture(request.key) if state == "edited" else None
    return EditRow(request=request, outcome=outcome, image=image, attempts=1, seconds=0.0, cost=0.0)


def no_picture(key: str) -> str:
    """Stands for the hash of a picture that nobody has."""
    return digest(["no picture", key])


def _assessments(
    table: _Table, design: Design, keys: Sequence[str], provenance: Mapping[str, str]
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
                key=assessment_key(keys[edit], no_picture(keys[edit]), record.spec.key, rater),
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
