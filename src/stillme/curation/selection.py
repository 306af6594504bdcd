"""Which pictures become portraits: the outcome of curation, or all pictures of a user's folder."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stillme.core.errors import StillmeError, UnreadableImage
from stillme.curation.decisions import Outcome, Tally
from stillme.curation.measuring import load_criteria
from stillme.curation.pools import Cell, Pools
from stillme.curation.sources import Fault, Faults, Problems, add_unreadable, inspect, path_fault, read_within
from stillme.portraits.folder import NO_ROWS, OWN_COLUMNS, TABLE, TERMS, attributes_of, table_rows

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


def read_own(
    folder: Path, table: Path | None, given: Mapping[str, str], say: Callable[[str], None]
) -> tuple[Selected, ...]:
    """All pictures of a user's folder. `given` answers for rows that leave licence, label_origin or consent empty."""
    if not folder.is_dir():
        raise StillmeError(f"{folder} is not a folder. Name one with pictures and a {TABLE}.")
    file = folder / TABLE if table is None else table if table.is_file() else folder / table
    faults, outside = Faults(), list[tuple[str, str]]()
    selected: dict[str, Selected] = {}
    columns: dict[str, None] = {}
    unanswered: dict[str, list[str]] = {name: [] for name in TERMS}
    for place, cells in table_rows(file):
        columns |= dict.fromkeys(cells)
        for name in TERMS:
            if not (cells.get(name) or given.get(name)):
                unanswered[name].append(place)
        if fault := path_fault(cells["file"]):
            outside.append((place, fault))
            continue
        id_ = cells.get("id") or Path(cells["file"]).stem
        if slug(id_) in selected:
            faults.add("same id", f"{id_} ({place})")
            continue
        selected[slug(id_)] = Selected(
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
    _add_unreadable(folder, selected.values(), faults)
    problems = Problems(str(file))
    for name, places in unanswered.items():
        if places:
            place = places[0] if name in columns else "line 1"
            problems.add(place, _question(name, len(places), name in columns), once=name)
    for sentence in faults.sentences:
        problems.add("", sentence)
    for place, fault in outside:
        problems.add(place, fault)
    if not columns:
        problems.add(NO_ROWS.place, NO_ROWS.message)
    problems.raise_if_any()
    for name in (name for name in columns if name not in OWN_COLUMNS):
        if empty := [portrait.source for portrait in selected.values() if name not in portrait.attributes]:
            say(Faults(Fault(kind="empty", name=file, of=name) for file in empty).sentences[0])
    return tuple(selected.values())


def slug(text: str) -> str:
    """A name that every file system takes: `East Asian` → `east-asian`, `70+` → `70plus`."""
    plain = re.sub(r"[^\w.-]+", "-", text.lower().replace("+", "plus")).strip("-.")
    return plain or "unnamed"


def _add_unreadable(folder: Path, selected: Iterable[Selected], faults: Faults) -> None:
    """Whatever cannot be found first: it costs little, and nobody waits for pictures that will not be used."""
    chosen = list(selected)
    if absent := [portrait for portrait in chosen if not portrait.path.is_file()]:
        errors = map(partial(_error, folder), absent)
    else:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as workers:
            errors = list(workers.map(partial(_error, folder), chosen))
    for portrait, error in zip(absent or chosen, errors, strict=True):
        if error:
            add_unreadable(faults, portrait.source, error)


def _error(folder: Path, portrait: Selected) -> UnreadableImage | None:
    try:
        inspect(read_within(folder, portrait.source), portrait.source)
    except UnreadableImage as error:
        return error
    return None


def _question(name: str, rows: int, has_column: bool) -> str:
    option = f"--{name.replace('_', '-')}"
    missing = f"{name!r} is empty in {rows:,} rows" if has_column else f"has no column {name!r}"
    return f"{missing}; say {_HINTS[name]}, row by row, or once for all with `{option} TEXT`"
