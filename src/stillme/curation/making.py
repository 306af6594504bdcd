"""What `stillme portraits` does: sample, import, finalize."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillme.core.errors import StillmeError, UnreadableImage
from stillme.curation.decisions import LOG, CurationTally, Log, Outcome
from stillme.curation.measuring import SimilarPair, check_missing, find_similar, hints, load_criteria
from stillme.curation.pools import NOT_STATED, Cell, Pools, SampleOptions, load_pools, sample
from stillme.curation.sources import (
    Fault,
    Faults,
    FolderSource,
    Problems,
    SourceRow,
    add_unreadable,
    inspect,
    path_fault,
    read_within,
)
from stillme.curation.versions import Crop, Curation, Selected, WrittenVersion, slug, write_version
from stillme.portraits.folder import NO_ROWS, OWN_COLUMNS, TABLE, TERMS, attributes_of, table_rows

Watch = Callable[[int, int], None]

_PAIRS_LISTED = 8
_WHY = {
    "open": "not decided yet",
    "contested": "curators disagree and no one settled it",
    "empty": "no candidate fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Pools that were drawn and measured."""

    pools: Pools
    doubts: Mapping[str, int]
    """By criterion, how many candidates an instrument doubts."""
    alike: tuple[SimilarPair, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": self.pools.folder,
            "source": self.pools.source,
            "cells": len(self.pools.design.cells),
            "candidates": len(self.pools.candidates),
            "shortfalls": self.pools.shortfalls,
            "passed_over": self.pools.passed_over,
            "doubts": self.doubts,
            "alike": self.alike,
        }

    def as_text(self) -> str:
        """For people."""
        pools = self.pools
        size = f"{pools.design.pools} pools over {len(pools.design.cells)} cells"
        lines = [f"{len(pools.candidates)} candidates in {size}, from {pools.source}.", *pools.passed_over]
        if pools.shortfalls:
            lines += [f"{len(pools.shortfalls)} cells have fewer candidates than asked for:"]
            lines += [f"  {shortfall}" for shortfall in pools.shortfalls]
        if self.doubts:
            lines.append(
                "Instruments doubt: " + ", ".join(f"{name} {count}" for name, count in self.doubts.items()) + "."
            )
        if self.alike:
            lines.append(f"{len(self.alike)} pairs of candidates look alike; curators see a warning:")
            lines += [
                f"  {pair.first} and {pair.second} show {pair.words} ({pair.distance:g})"
                for pair in self.alike[:_PAIRS_LISTED]
            ]
            lines += [f"  … and {len(self.alike) - _PAIRS_LISTED} more"] if len(self.alike) > _PAIRS_LISTED else []
        if unstated := [
            name for name in TERMS if any(getattr(candidate, name) == NOT_STATED for candidate in pools.candidates)
        ]:
            lines.append(f"Not stated for some candidates: {', '.join(unstated)}. The dataset card will say so.")
        return "\n".join(lines)


def sample_pools(
    source: FolderSource,
    folder: Path,
    options: SampleOptions,
    *,
    check: bool,
    watch: Watch | None = None,
) -> Sampled:
    """Draw pools, then measure every candidate."""
    pools = sample(source, folder, options)
    if not check:
        return Sampled(pools=pools, doubts={}, alike=())
    checks = check_missing(pools, watch=watch)
    doubts = Counter(
        hint.criterion.title
        for candidate in pools.candidates
        for hint in hints(checks[candidate.sha256].values)
        if hint.state != "fine"
    )
    alike = find_similar({candidate.id: checks[candidate.sha256] for candidate in pools.candidates})
    return Sampled(pools=pools, doubts=doubts, alike=alike)


def import_portraits(
    folder: Path,
    home: Path,
    *,
    table: Path | None,
    given: Mapping[str, str],
    crop: Crop,
    say: Callable[[str], None] = lambda _: None,
    watch: Watch | None = None,
) -> WrittenVersion:
    """Make a data set of all of a user's own pictures."""
    return write_version(home, read_own(folder, table, given, say), crop, source=folder.resolve().name, watch=watch)


def finalize(folder: Path, home: Path, *, crop: Crop, partial: bool, watch: Watch | None = None) -> WrittenVersion:
    """Make a data set of what the curators chose."""
    pools = load_pools(folder)
    if not (folder / LOG).is_file():
        raise StillmeError(f"No one has curated {folder} yet. `stillme portraits curate {folder}` opens it.")
    log = Log(pools)
    try:
        actions = tuple(log.actions())
    finally:
        log.close()
    tally = CurationTally(pools, actions)
    selected, without = select(pools, tally)
    undecided = [(cell, outcome) for cell, outcome in without if outcome.state != "empty"]
    if undecided and not partial:
        shown = "\n".join(f"  - {', '.join(cell)}: {why(outcome)}" for cell, outcome in undecided[:10])
        more = f"\n  … and {len(undecided) - 10} more" if len(undecided) > 10 else ""
        raise StillmeError(
            f"{len(undecided)} of {len(pools.design.cells)} cells are undecided; nothing was written:\n{shown}{more}\n"
            f"Decide them with `stillme portraits curate {folder}`, or leave them out with --partial."
        )
    curation = _curation(pools, tally, selected, without)
    return write_version(home, selected, crop, source=pools.source, curation=curation, actions=actions, watch=watch)


def why(outcome: Outcome) -> str:
    """Why a cell has no portrait."""
    words = _WHY[outcome.state]
    return f"{words} ({outcome.reason})" if outcome.reason else words


def _curation(
    pools: Pools, tally: CurationTally, selected: Sequence[Selected], without: Sequence[tuple[Cell, Outcome]]
) -> Curation:
    decided = Counter(curator for outcome in tally.outcomes.values() for curator in outcome.votes)
    return Curation(
        levels=pools.design.levels,
        # Plain dictionaries: `asdict` would count the pairs of a counter.
        pools=dict(Counter(pool for portrait in selected for pool in portrait.pools)),
        shortfalls=tuple(map(str, pools.shortfalls)),
        passed_over=pools.passed_over,
        missing=tuple((cell, why(outcome)) for cell, outcome in without),
        curators={name: decided[name] for name in tally.curators},
        agreement=tuple(pair for pair in tally.agreement() if pair.cells),
        outcomes=dict(Counter(outcome.state for outcome in tally.outcomes.values())),
    )


_HINTS = {
    "licence": "under which terms the picture may be used, such as CC0-1.0 or 'own study, not to be shared'",
    "label_origin": "who gave the labels: self-description, annotators, a model",
    "consent": "what the person agreed to, such as 'signed form 2026-03', or why none is needed",
}


def select(pools: Pools, tally: CurationTally) -> tuple[tuple[Selected, ...], tuple[tuple[Cell, Outcome], ...]]:
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
                    row=candidate,
                    path=pools.path_of(candidate),
                    sha256=candidate.sha256,
                    pools=candidate.pools,
                    chosen_by=tally.choosers(cell, candidate_id),
                    criteria={criterion.key: ticks.get(criterion.key, 0) for criterion in load_criteria().criteria},
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
            row=SourceRow(
                file=cells["file"],
                attributes=attributes_of(cells),
                **{name: cells.get(name) or given.get(name, "") for name in TERMS},
            ),
            path=folder / cells["file"],
            sha256=cells.get("sha256", ""),
            block=cells.get("block", ""),
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
        if empty := [portrait.row.file for portrait in selected.values() if name not in portrait.row.attributes]:
            say(Faults(Fault(kind="empty", name=file, column=name) for file in empty).sentences[0])
    return tuple(selected.values())


def _add_unreadable(folder: Path, selected: Iterable[Selected], faults: Faults) -> None:
    """Whatever cannot be found first: it costs little, and no time goes into pictures that will not be used."""
    chosen = list(selected)
    if absent := [portrait for portrait in chosen if not portrait.path.is_file()]:
        errors = map(partial(_error, folder), absent)
    else:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as workers:
            errors = list(workers.map(partial(_error, folder), chosen))
    for portrait, error in zip(absent or chosen, errors, strict=True):
        if error:
            add_unreadable(faults, portrait.row.file, error)


def _error(folder: Path, portrait: Selected) -> UnreadableImage | None:
    try:
        inspect(read_within(folder, portrait.row.file), portrait.row.file)
    except UnreadableImage as error:
        return error
    return None


def _question(name: str, rows: int, has_column: bool) -> str:
    option = f"--{name.replace('_', '-')}"
    missing = f"{name!r} is empty in {rows:,} rows" if has_column else f"has no column {name!r}"
    return f"{missing}; say {_HINTS[name]}, row by row, or once for all with `{option} TEXT`"
