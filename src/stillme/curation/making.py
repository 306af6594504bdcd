"""What `stillme portraits` does: sample, import, finalize."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.core.errors import StillmeError
from stillme.curation.decisions import Action, Log, Outcome, Tally, has_log
from stillme.curation.drawing import SampleOptions, sample
from stillme.curation.measuring import SimilarPair, check_missing, find_similar, hints
from stillme.curation.pools import NOT_STATED, Cell, Pools, Shortfall, load_pools
from stillme.curation.selection import Selected, read_own, select
from stillme.curation.sources import Source
from stillme.curation.versions import About, Crop, Curation, Written, write_version
from stillme.portraits.folder import TERMS

Watch = Callable[[int, int], None]

_PAIRS_LISTED = 8
_WHY = {
    "open": "not decided yet",
    "contested": "curators disagree and nobody settled it",
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
            "folder": str(self.pools.folder),
            "source": self.pools.source,
            "cells": len(self.pools.design.cells),
            "candidates": len(self.pools.candidates),
            "shortfalls": [
                {"cell": list(shortfall.cell), "found": shortfall.found, "wanted": shortfall.wanted}
                for shortfall in self.pools.shortfalls
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
        lines = [f"{len(pools.candidates)} candidates in {size}, from {pools.source}.", *pools.passed_over]
        if pools.shortfalls:
            lines += [f"{len(pools.shortfalls)} cells have fewer candidates than asked for:"]
            lines += [f"  {shortfall_text(shortfall)}" for shortfall in pools.shortfalls]
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
        return "\n".join([*lines, f"Next: stillme portraits curate {pools.folder}"])


def sample_pools(
    source: Source,
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


def _quiet(_: str) -> None:
    """Say nothing."""


def import_portraits(
    folder: Path,
    home: Path,
    *,
    table: Path | None,
    given: Mapping[str, str],
    crop: Crop,
    say: Callable[[str], None] = _quiet,
    watch: Watch | None = None,
) -> Written:
    """Make a data set of all of a user's own pictures."""
    selected = read_own(folder, table, given, say)
    return write_version(home, selected, _about(home, folder.resolve().name, None), crop, watch=watch)


def finalize(folder: Path, home: Path, *, crop: Crop, partial: bool, watch: Watch | None = None) -> Written:
    """Make a data set of what the curators chose."""
    pools = load_pools(folder)
    if not has_log(folder):
        raise StillmeError(f"Nobody has curated {folder} yet. `stillme portraits curate {folder}` opens it.")
    log = Log(pools)
    try:
        actions = tuple(log.actions())
    finally:
        log.close()
    tally = Tally(pools, actions)
    selected, without = select(pools, tally)
    undecided = [(cell, outcome) for cell, outcome in without if outcome.state != "empty"]
    if undecided and not partial:
        shown = "\n".join(f"  - {', '.join(cell)}: {why(outcome)}" for cell, outcome in undecided[:10])
        more = f"\n  … and {len(undecided) - 10} more" if len(undecided) > 10 else ""
        raise StillmeError(
            f"{len(undecided)} of {len(pools.design.cells)} cells are undecided; nothing was written:\n{shown}{more}\n"
            f"Decide them with `stillme portraits curate {folder}`, or leave them out with --partial."
        )
    about = _about(home, pools.source, _curation(pools, tally, selected, without, actions))
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


def _curation(
    pools: Pools,
    tally: Tally,
    selected: Sequence[Selected],
    without: tuple[tuple[Cell, Outcome], ...],
    actions: tuple[Action, ...],
) -> Curation:
    decided = Counter(curator for outcome in tally.outcomes.values() for curator in outcome.votes)
    return Curation(
        levels=pools.design.levels,
        pools=Counter(pool for portrait in selected for pool in portrait.pools),
        shortfalls=tuple(map(shortfall_text, pools.shortfalls)),
        passed_over=pools.passed_over,
        missing=tuple((cell, why(outcome)) for cell, outcome in without),
        curators={name: decided[name] for name in tally.curators},
        agreement=tuple(
            (" and ".join(agreement.curators), agreement.cells, agreement.observed, agreement.kappa)
            for agreement in tally.agreement()
            if agreement.cells
        ),
        states=Counter(outcome.state for outcome in tally.outcomes.values()),
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
