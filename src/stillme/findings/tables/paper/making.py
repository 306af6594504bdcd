"""Make the tables that are asked for, from an audit and its rows, with the paper's number in the cells of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stillme.core.errors import StillmeError, UnknownName
from stillme.core.paper import Published
from stillme.core.types import Arm
from stillme.estimates import EditState
from stillme.findings.calibration import standing_of
from stillme.findings.tables.paper import diagnosis, people
from stillme.findings.tables.paper import source as source_rows
from stillme.findings.tables.paper.diagnosis import AXES
from stillme.findings.tables.paper.source import BASELINE, FEATURE, Source, axis_title
from stillme.findings.tables.paper.table import Cell, Count, Number, PaperTable, TableRow, Words
from stillme.judges.ensemble import primary_of
from stillme.runs import RecordedRun, participants
from stillme.runs.paper_names import PaperNames, paper_names, published_text

Make = Callable[[Source], PaperTable]

_DIAGNOSIS: Mapping[int, Make] = {4: diagnosis.table_4, 19: diagnosis.table_19, 20: diagnosis.table_20}
_MITIGATION: Mapping[int, Make] = {5: diagnosis.table_5, 21: diagnosis.table_21, 26: diagnosis.table_26}
_CASES: Mapping[int, Make] = {24: source_rows.table_24, 25: source_rows.table_25}
_PEOPLE: Mapping[int, Make] = {6: people.table_6, 18: people.table_18}
_TITLES: Mapping[int, str] = {
    4: "Mean scores by editor",
    5: "Change of race change by a feature prompt",
    6: "Models and people",
    7: "How often role edits follow the stereotype",
    13: "The experiments of this audit",
    17: "Participants of the human study",
    18: "Distribution of the rated outputs",
    19: "Success, soft erasure and race change by editor",
    20: "Race change by group and editor",
    21: "Changes by a feature prompt",
    24: "Edits that were ignored",
    25: "Edits that changed the person",
    26: "Race change without and with a feature prompt",
}
_UNDESCRIBED = (
    "no participants are described; give Prolific's demographic export to `stillme study close --demographics FILE`"
)
NUMBERS: tuple[int, ...] = tuple(_TITLES)
_BY_GROUP = (5, 20, 21, 26)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which tables, and about what."""

    numbers: tuple[int, ...] = ()
    """By default all; Table 7 only where the audit has role prompts, Table 17 where participants are described."""
    factor: str = ""
    """The attribute that stands where the paper has race; by default the audit's first factor."""
    judge: str = ""
    """Whose scores; by default the ensemble's, else those of the first judge that answers."""


def make_tables(run: RecordedRun, chosen: Chosen | None = None) -> list[PaperTable]:
    """The chosen tables of a run, in the paper's order."""
    chosen = chosen or Chosen()
    for number in chosen.numbers:
        if number not in NUMBERS:
            raise StillmeError(f"There is no table {number}. Choose from {', '.join(map(str, NUMBERS))}.")
    source = _source(run, chosen)
    has = {7: _has_roles(source), 17: bool(participants.read(run.folder))}
    numbers = chosen.numbers or [number for number in NUMBERS if has.get(number, True)]
    names = paper_names(run.design)
    made = [_table(run, source, number) for number in NUMBERS if number in numbers]
    if 6 in numbers and source.people and source.has(BASELINE) and source.has(FEATURE):
        # What the paper says of the same raters in a sentence.
        made.insert([table.number for table in made].index(6) + 1, people.appendix_g6(_alone(source)))
    return [with_paper(table, names) for table in made]


def check_names(run: RecordedRun, chosen: Chosen) -> None:
    """Say which attribute or judge there is not."""
    attributes = dict.fromkeys(name for portrait in run.design.portraits for name in portrait.attributes)
    if chosen.factor and chosen.factor not in attributes:
        hint = f"The portraits have {', '.join(attributes)}."
        raise UnknownName.among("attribute", chosen.factor, attributes, hint)
    judges = list(dict.fromkeys(score.judge for score in run.results.scores))
    if chosen.judge and chosen.judge not in judges:
        raise UnknownName.among("judge", chosen.judge, judges, f"The audit has {', '.join(judges)}.")


def _source(run: RecordedRun, chosen: Chosen) -> Source:
    check_names(run, chosen)
    design, results = run.design, run.results
    factor = chosen.factor or next(iter(design.factors), "")
    return Source(
        edits=results.edits,
        scores=results.scores,
        settings=run.settings,
        factor=factor,
        factors=tuple(dict.fromkeys([*([factor] if factor else []), *design.factors])),
        people=design.people,
        judge=chosen.judge,
        race_cut=design.analysis.race_cut,
        primary=primary_of(design.analysis.rule, design.analysis.combined),
        standing=standing_of(run),
        remarks=partial(_remarks, run),
    )


def _remarks(run: RecordedRun, keys: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """The first judge's evidence for these edits, by axis."""
    judges = [judge.spec.key for judge in run.judges]
    remarks: dict[str, dict[str, str]] = {}
    for spoken in sorted(
        (spoken for spoken in run.store.spoken(set(keys)) if spoken.judge in judges),
        key=lambda spoken: judges.index(spoken.judge),
    ):
        remarks.setdefault(spoken.edit, {}).setdefault(spoken.axis, spoken.text)
    return remarks


def _table(run: RecordedRun, source: Source, number: int) -> PaperTable:
    described = participants.read(run.folder) if number == 17 else []
    reason = _missing(source, number) if number != 17 or described else _UNDESCRIBED
    if reason:
        return PaperTable(number=number, caption=f"{_TITLES[number]}.", head=(), rows=(), absent=reason)
    if number == 17:
        return people.table_17(described)
    if number not in (7, 13):
        source = _alone(source)
    if number != 7:
        return {13: table_13, **_DIAGNOSIS, **_MITIGATION, **_PEOPLE, **_CASES}[number](source)
    section = run.design.roles
    table = diagnosis.table_7(source, run.genders)
    if table.rows:
        return table
    absent = diagnosis.unanswered(source, tuple(section.layouts) if section else ("role_single",))
    return PaperTable(number=7, caption=table.caption, head=(), rows=(), absent=absent)


def _alone(source: Source) -> Source:
    """Without role prompts, which are an experiment of their own; all of it where there are no others."""
    alone = np.array([not prompt.stereotype for prompt in source.edits.prompts], dtype=np.bool_)
    return source.where(alone[source.edits.prompt]) if alone.any() and not alone.all() else source


def _missing(source: Source, number: int) -> str:
    """What the audit would need for this table; empty where it has it."""
    for arm in (BASELINE, FEATURE) if number in _MITIGATION else () if number in (13, 17, 18) else (BASELINE,):
        if not source.has(arm):
            return f"the audit has no {arm} arm"
    if number in _BY_GROUP and not source.factor:
        return "the portraits have no attribute that groups them; name one with --by"
    if number == 6 and not source.people:
        return "no person has rated this audit's edits; add ratings with `stillme study` or `stillme import rows`"
    if number == 7 and not _has_roles(source):
        return "the audit has no role prompts"
    return ""


def _has_roles(source: Source) -> bool:
    return any(prompt.stereotype for prompt in source.edits.prompts)


_GOALS = {
    BASELINE: "Detect soft erasure and drift",
    FEATURE: "Test identity preservation",
    str(Arm.NOOP): "Measure what a request to change nothing changes",
}
_ROLES = "role prompts"


def table_13(source: Source) -> PaperTable:
    """A row for each arm of the edits of single people, and one for role prompts."""
    edits = source.edits
    is_role = np.array([bool(prompt.stereotype) for prompt in edits.prompts], dtype=np.bool_)[edits.prompt]
    rows = [
        _row(source, f"input vs. {arm}", _GOALS.get(arm, "Compare with the baseline"), here)
        for place, arm in enumerate(edits.arms)
        if (here := (edits.arm == place) & ~is_role).any()
    ]
    if is_role.any():
        rows.append(_row(source, _ROLES, "Gender stereotype analysis", is_role))
    return PaperTable(
        number=13,
        caption="The experiments of this audit.",
        head=("Comparison", "Goal", "Portraits", "Prompts", "Editors", "Requests", "Edited"),
        rows=tuple(rows),
    )


def _row(source: Source, label: str, goal: str, here: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> TableRow:
    edits = source.edits
    people = [edits.portrait[here]] + ([] if edits.second is None else [edits.second[here & (edits.second >= 0)]])
    counts = (
        len(np.unique(np.concatenate(people))),
        len(np.unique(edits.prompt[here])),
        len(np.unique(edits.editor[here])),
        int(np.count_nonzero(here)),
        int(np.count_nonzero(here & (edits.state == EditState.EDITED))),
    )
    return TableRow(label=label, cells=(Words(text=goal), *(Count(value=count) for count in counts)))


_AXES = {axis_title(axis): axis for axis in AXES}
_RATES = {"Edit Succ.": "success", "Soft Eras.": "soft_erasure", "Race Change": "race_changed"}
_CHANGES = {
    "Δ Race Change (↓)": "race_change",
    "Δ Race": "race_change",
    "Δ Gender": "gender_change",
    "Δ Skin": "skin_tone",
    "Δ": "race_change",
}
_ARMS = {"Baseline Drift": "baseline", "w/ Feature": "feature"}


def with_paper(table: PaperTable, names: PaperNames | None) -> PaperTable:
    """The table with what the paper has in the same cells, and why the two are not the same measurement."""
    if names is None:
        return table
    rows = tuple(
        replace(
            row,
            cells=tuple(
                _cell(cell, _number(table, row, column, names))
                for column, cell in zip(table.head[1:], row.cells, strict=True)
            ),
        )
        for row in table.rows
    )
    compared = any(isinstance(cell, Number) and cell.paper for row in rows for cell in row.cells)
    return replace(table, rows=rows, notes=(*table.notes, *(names.differences if compared else ())))


def _cell(cell: Cell, known: Published | None) -> Cell:
    return replace(cell, paper=published_text(known)) if known and isinstance(cell, Number) else cell


def _number(table: PaperTable, row: TableRow, column: str, names: PaperNames) -> Published | None:
    place = table.place
    if table.appendix:
        wanted = (
            {"judge": "people", "statistic": "change"} if row.section.startswith("people") else {"statistic": "bias"}
        )
        place = place if row.section.startswith("people") else "§5.3"
        return names.number(place, "all" if column == "all editors" else column, _AXES[row.label], **wanted)
    match table.number:
        case 4 | 6 if row.section != "models − people":
            wanted = {"judge": row.section} if table.number == 6 else {}
            return names.number(place, row.label, _AXES[column], **wanted)
        case 19 if column in _RATES:
            return names.number(place, row.label, _RATES[column])
        case 20:
            gap = {"statistic": "max - min"} if row.summary else {"group": row.label}
            return names.number(place, column, "race_changed", **gap)
        case 5 | 21 | 26 if not row.summary:
            wanted = {"group": row.label} | _mitigated(column)
            quantity = wanted.pop("quantity", "")
            return names.number(place, row.section, quantity, **wanted)
        case 7 if row.section == "two people":
            return names.number(place, row.label, "adherence", statistic=column.lower())
        case _:
            return None


def _mitigated(column: str) -> dict[str, str]:
    if arm := _ARMS.get(column):
        return {"quantity": "race_change", "arm": arm, "statistic": "mean"}
    return {"quantity": _CHANGES.get(column, ""), "statistic": "change"}
