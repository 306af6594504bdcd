"""Which pictures become portraits: the outcome of curation, or all pictures of a user's folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stillme.curation.candidate_pictures import inspect
from stillme.curation.criteria import load_criteria
from stillme.curation.outcomes import Outcome, Tally
from stillme.curation.pools import Pools
from stillme.curation.sampling import Cell
from stillme.curation.sources import path_fault, read_within
from stillme.errors import InvalidPortraits, Problem, StillmeError, UnreadableImage
from stillme.portraits.folder import NO_ROWS, TABLE, TERMS, attributes_of, table_rows

_HINTS = {
    "licence": "under which terms the picture may be used, such as CC0-1.0 or 'own study, not to be shared'",
    "label_origin": "who gave the labels: self-description, annotators, a model",
    "consent": "what the person agreed to, such as 'signed form 2026-03', or why none is needed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One picture that becomes a portrait."""

    id: str
    path: Path
    sha256: str
    """Of the source file; empty where it was not recorded before."""
    source: str
    attributes: Mapping[str, str]
    licence: str
    label_origin: str
    consent: str
    block: str = ""
    pools: tuple[int, ...] = ()
    chosen_by: tuple[str, ...] = ()
    criteria: Mapping[str, int] | None = None
    """By criterion, how many of those who chose it had ticked it; None without curation."""
    state: str = ""
    """How the choice came about: agreed, voted, settled."""


def select(pools: Pools, tally: Tally) -> tuple[tuple[Selected, ...], tuple[tuple[Cell, Outcome], ...]]:
    """The chosen candidates, and the cells that have none."""
    selected: list[Selected] = []
    without: list[tuple[Cell, Outcome]] = []
    for cell, outcome in tally.outcomes.items():
        if not outcome.chosen:
            without.append((cell, outcome))
        for number, candidate_id in enumerate(outcome.chosen, start=1):
            candidate = pools.by_id[candidate_id]
            name = "_".join(slug(level) for level in cell)
            ticks = tally.ticks(cell, candidate_id)
            selected.append(
                Selected(
                    id=name if pools.design.per_cell == 1 else f"{name}_{number}",
                    path=candidate.path,
                    sha256=candidate.sha256,
                    source=candidate.source,
                    attributes=candidate.attributes,
                    licence=candidate.licence,
                    label_origin=candidate.label_origin,
                    consent=candidate.consent,
                    pools=candidate.pools,
                    chosen_by=tally.choosers(cell, candidate_id),
                    criteria={criterion.key: ticks.get(criterion.key, 0) for criterion in load_criteria().all},
                    state=outcome.state,
                )
            )
    if repeated := [id_ for id_, count in Counter(portrait.id for portrait in selected).items() if count > 1]:
        raise StillmeError(
            f"Two cells would share the id {repeated[0]!r}; give their levels names that differ in letters."
        )
    return tuple(selected), tuple(without)


def read_own(folder: Path, table: Path | None, given: Mapping[str, str]) -> tuple[Selected, ...]:
    """All pictures of a user's folder. `given` answers for rows that leave licence, label_origin or consent empty."""
    if not folder.is_dir():
        raise StillmeError(f"{folder} is not a folder. Name one with pictures and a {TABLE}.")
    file = folder / TABLE if table is None else table if table.is_file() else folder / table
    problems: list[Problem] = []
    selected: dict[str, Selected] = {}
    columns: set[str] = set()
    unanswered: dict[str, list[str]] = {name: [] for name in TERMS}
    for place, cells in table_rows(file):
        columns.update(cells)
        for name in TERMS:
            if not (cells.get(name) or given.get(name)):
                unanswered[name].append(place)
        if fault := path_fault(cells["file"]) or _fault(folder, cells["file"]):
            problems.append(Problem(place=place, message=fault))
            continue
        id_ = cells.get("id") or Path(cells["file"]).stem
        if slug(id_) in {slug(other) for other in selected}:
            problems.append(Problem(place=place, message=f"the id {id_!r} is used twice; ids must differ in letters"))
            continue
        selected[id_] = Selected(
            id=id_,
            path=folder / cells["file"],
            sha256=cells.get("sha256", ""),
            source=cells["file"],
            attributes=attributes_of(cells),
            block=cells.get("block", ""),
            licence=cells.get("licence") or given.get("licence", ""),
            label_origin=cells.get("label_origin") or given.get("label_origin", ""),
            consent=cells.get("consent") or given.get("consent", ""),
        )
    problems = [*_questions(columns, unanswered), *problems]
    if not selected and not problems:
        problems.append(NO_ROWS)
    if problems:
        raise InvalidPortraits(str(file), problems)
    return tuple(selected.values())


def slug(text: str) -> str:
    """A name that every file system takes: `East Asian` → `east-asian`, `70+` → `70plus`."""
    plain = re.sub(r"[^\w.-]+", "-", text.lower().replace("+", "plus")).strip("-.")
    return plain or "unnamed"


def _fault(folder: Path, file: str) -> str:
    try:
        inspect(read_within(folder, file), file)
    except UnreadableImage as error:
        return str(error)
    return ""


def _questions(columns: set[str], unanswered: Mapping[str, list[str]]) -> list[Problem]:
    problems: list[Problem] = []
    for name, places in unanswered.items():
        if not places:
            continue
        option = f"--{name.replace('_', '-')}"
        missing = f"{name!r} is empty in {len(places)} rows" if name in columns else f"has no column {name!r}"
        message = f"{missing}; say {_HINTS[name]}, row by row, or once for all with `{option} TEXT`"
        problems.append(Problem(place=places[0] if name in columns else "line 1", message=message))
    return problems
