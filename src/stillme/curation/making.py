"""The verbs of `stillme portraits`: sample, import, finalize, each from what the user says to what is on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.curation.card import About, Curation
from stillme.curation.checks import check_missing
from stillme.curation.criteria import hints
from stillme.curation.decisions import Action, Log, has_log
from stillme.curation.drawing import Wanted, sample
from stillme.curation.evenness import compare_with_blind
from stillme.curation.likeness import Alike, find_alike
from stillme.curation.outcomes import Outcome, Standing
from stillme.curation.pools import NOT_STATED, Pools, load_pools
from stillme.curation.sampling import Cell, Shortfall
from stillme.curation.selection import ASKED, read_own, select
from stillme.curation.sources import Source
from stillme.curation.squares import Crop
from stillme.curation.versions import Written, write_version
from stillme.errors import StillmeError

Watch = Callable[[int, int], None]

_PAIRS = 8
"""Pairs listed one by one."""
_WHY = {
    "open": "not decided yet",
    "contested": "curators disagree and nobody settled it",
    "empty": "no candidate fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Pools that were drawn and looked at."""

    pools: Pools
    doubts: Mapping[str, int]
    """Per criterion, candidates of which an instrument has a doubt."""
    alike: tuple[Alike, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": str(self.pools.folder),
            "source": self.pools.source,
            "cells": len(self.pools.design.cells),
            "candidates": len(self.pools.candidates),
            "shortfalls": [
                {"cell": list(each.cell), "found": each.found, "wanted": each.wanted} for each in self.pools.shortfalls
            ],
            "passed_over": list(self.pools.passed_over),
            "doubts": dict(self.doubts),
            "alike": [
                {"first": pair.first, "second": pair.second, "kind": pair.kind, "distance": pair.distance}
                for pair in self.alike
            ],
        }

    def as_text(self) -> str:
        """For people."""
        pools = self.pools
        size = f"{pools.design.pools} pools over {len(pools.design.cells)} cells"
        lines = [f"{len(pools.candidates)} candidates in {size}, from {pools.source}."]
        if pools.shortfalls:
            lines += [f"{len(pools.shortfalls)} cells have fewer candidates than asked for:"]
            lines += [f"  {shortfall_text(each)}" for each in pools.shortfalls]
        if self.doubts:
            lines.append(
                "Instruments doubt: " + ", ".join(f"{name} {count}" for name, count in self.doubts.items()) + "."
            )
        if self.alike:
            lines.append(f"{len(self.alike)} pairs of candidates look alike; curators are told:")
            lines += [
                f"  {pair.first} and {pair.second} show {pair.words} ({pair.distance:g})"
                for pair in self.alike[:_PAIRS]
            ]
            lines += [f"  … and {len(self.alike) - _PAIRS} more"] if len(self.alike) > _PAIRS else []
        if silent := [name for name in ASKED if any(getattr(each, name) == NOT_STATED for each in pools.candidates)]:
            lines.append(f"Not stated for some candidates: {', '.join(silent)}. The dataset card will say so.")
        return "\n".join([*lines, f"Next: stillme curate {pools.folder}"])


def sample_pools(
    source: Source, folder: Path, wanted: Wanted, *, check: bool, say: Callable[[str], None], watch: Watch | None = None
) -> Sampled:
    """Draw pools, then have the instruments look at every candidate."""
    pools = sample(source, folder, wanted, say=say)
    if not check:
        return Sampled(pools=pools, doubts={}, alike=())
    checks = check_missing(pools, watch=watch)
    doubts = Counter(
        hint.criterion.title
        for candidate in pools.candidates
        for hint in hints(checks[candidate.sha256].values)
        if hint.state != "fine"
    )
    return Sampled(
        pools=pools, doubts=doubts, alike=find_alike({each.id: checks[each.sha256] for each in pools.candidates})
    )


def import_portraits(
    folder: Path, home: Path, *, table: Path | None, given: Mapping[str, str], crop: Crop, watch: Watch | None = None
) -> Written:
    """Make a data set of a user's own pictures, all of them."""
    selected = read_own(folder, table, given)
    return write_version(home, selected, _about(home, folder.resolve().name, None), crop, watch=watch)


def finalize(folder: Path, home: Path, *, crop: Crop, partial: bool, watch: Watch | None = None) -> Written:
    """Make a data set of what the curators chose."""
    pools = load_pools(folder)
    if not has_log(folder):
        raise StillmeError(f"Nobody has curated {folder} yet. `stillme curate {folder}` opens it.")
    log = Log(pools)
    try:
        actions = tuple(log.actions())
    finally:
        log.close()
    standing = Standing(pools, actions)
    selected, without = select(pools, standing)
    undecided = [(cell, outcome) for cell, outcome in without if outcome.state != "empty"]
    if undecided and not partial:
        shown = "\n".join(f"  - {', '.join(cell)}: {why(outcome)}" for cell, outcome in undecided[:10])
        more = f"\n  … and {len(undecided) - 10} more" if len(undecided) > 10 else ""
        raise StillmeError(
            f"{len(undecided)} of {len(pools.design.cells)} cells are undecided; nothing was written:\n{shown}{more}\n"
            f"Decide them with `stillme curate {folder}`, or leave them out with --partial."
        )
    about = _about(home, pools.source, _told(pools, standing, without, actions))
    return write_version(home, selected, about, crop, watch=watch)


def shortfall_text(shortfall: Shortfall) -> str:
    """`Black, Female, 70+: 4 of 7; pools share them`."""
    held = "pools share them" if shortfall.found and not shortfall.empty_pools else "some pools have none"
    return (
        f"{', '.join(shortfall.cell)}: {shortfall.found} of {shortfall.wanted}; {held if shortfall.found else 'empty'}"
    )


def why(outcome: Outcome) -> str:
    """Why a cell has no portrait."""
    words = _WHY[outcome.state]
    return f"{words} ({outcome.reason})" if outcome.reason else words


def _told(
    pools: Pools, standing: Standing, without: tuple[tuple[Cell, Outcome], ...], actions: tuple[Action, ...]
) -> Curation:
    decided = Counter(curator for outcome in standing.outcomes.values() for curator in outcome.votes)
    return Curation(
        levels=pools.design.levels,
        pools=compare_with_blind(standing.pools()),
        places=compare_with_blind(standing.places()),
        shortfalls=tuple(map(shortfall_text, pools.shortfalls)),
        passed_over=pools.passed_over,
        missing=tuple((cell, why(outcome)) for cell, outcome in without),
        curators={name: decided[name] for name in standing.curators},
        agreement=tuple(
            (" and ".join(each.curators), each.cells, each.observed, each.kappa)
            for each in standing.agreement()
            if each.cells
        ),
        states=Counter(outcome.state for outcome in standing.outcomes.values()),
        actions=actions,
    )


def _about(home: Path, source: str, curation: Curation | None) -> About:
    return About(
        title=home.resolve().name,
        version="",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        stillme=__version__,
        source=source,
        method="",
        curation=curation,
    )
