"""What curators did, in order: an append-only log next to the pools.

Everything else (what is ticked, who chose whom, how far each curator is) is derived from the log, so that a crash loses
nothing that was written, and undoing is one more line.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, Literal

import numpy as np

from stillme.core.errors import StillmeError
from stillme.core.types import Json, digest
from stillme.curation.pools import Cell, Pools
from stillme.web.database import append_only, open_database

LOG = "curation.sqlite"

Kind = Literal[
    "open",
    "tick",
    "untick",
    "tick_all",
    "reject",
    "restore",
    "choose",
    "unchoose",
    "none",
    "undo",
    "compare",
    "settle",
    "rule",
    "invite",
]
CHOOSING: frozenset[Kind] = frozenset({"tick", "untick", "tick_all", "reject", "restore", "choose", "unchoose", "none"})
"""What a curator does before seeing what others chose."""
UNDOABLE = CHOOSING | {"settle"}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pools (key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS action (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    curator TEXT NOT NULL,
    cell TEXT NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL,
    token TEXT NOT NULL UNIQUE
);
""" + append_only("action")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One line of the log."""

    id: int
    at: str
    """UTC, ISO 8601, milliseconds."""
    curator: str
    cell: Cell
    kind: Kind
    detail: Mapping[str, Json]


class Log:
    """The log of one folder of pools. May be used by several threads, and by several processes at once."""

    def __init__(self, pools: Pools) -> None:
        self._database = open_database(pools.folder / LOG, _SCHEMA)
        self._lock = threading.Lock()
        self._read: list[Action] = []
        # Tied to these candidates: decisions on others are not taken over.
        with self._database.writing() as connection:
            connection.execute("INSERT INTO pools SELECT ? WHERE NOT EXISTS (SELECT 1 FROM pools)", (pools.key,))
            key = connection.value("SELECT key FROM pools")
        if key != pools.key:
            self.close()
            raise StillmeError(
                f"{pools.folder / LOG} holds decisions on other candidates. Move it away, or restore those candidates."
            )

    def append(
        self, curator: str, cell: Cell, kind: Kind, detail: Mapping[str, Json] | None = None, *, token: str = ""
    ) -> None:
        """Write one line; on return it is on disk. The same `token` again changes nothing: a retry counts once."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (at, curator, json.dumps(cell), kind, json.dumps(detail or {}, ensure_ascii=False))
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO action (at, curator, cell, kind, detail, token) VALUES (?, ?, ?, ?, ?, ?)",
                (*row, token or secrets.token_hex(16)),
            )

    def actions(self) -> Sequence[Action]:
        """All lines so far."""
        with self._lock, self._database.reading() as connection:
            last = self._read[-1].id if self._read else 0
            columns = "id, at, curator, cell, kind, detail"
            for row in connection.execute(f"SELECT {columns} FROM action WHERE id > ? ORDER BY id", (last,)):
                values: dict[str, Any] = {**row, "cell": tuple(json.loads(row["cell"]))}
                self._read.append(Action(**values | {"detail": json.loads(row["detail"])}))
            return tuple(self._read)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def order_for(curator: str, cell: Cell, pools: Pools) -> list[str]:
    """The candidates of a cell in this curator's own random order, independent of pools and labels."""
    seed = int(digest([curator, cell, pools.key]), 16)
    ids = sorted(candidate.id for candidate in pools.cells[cell])
    return [ids[place] for place in np.random.default_rng(seed).permutation(len(ids))]


State = Literal["open", "agreed", "voted", "settled", "contested", "empty"]


@dataclass(slots=True, kw_only=True)
class Opinion:
    """What one curator has done in one cell, after all undoing."""

    order: list[str] = field(default_factory=list[str])
    """The order of the candidates on the screen."""
    ticked: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    rejected: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict[str, tuple[tuple[str, ...], str]])
    """Candidate → reasons, and words of the curator's own."""
    chosen: list[str] = field(default_factory=list[str])
    none_fits: str | None = None
    """Why no candidate fits; None where one does, or nothing was decided."""
    compared: bool = False
    """The curator has seen whether others agree; from then on the choice is final."""

    def decided(self, per_cell: int) -> bool:
        """Whether the curator has decided the cell."""
        return self.none_fits is not None or len(self.chosen) == per_cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result for one cell over all curators."""

    state: State
    chosen: tuple[str, ...]
    votes: Mapping[str, tuple[str, ...]]
    """By curator who decided, the candidates; empty where none fits."""
    reason: str = ""
    """Why the cell stays empty, or the note of the curator who settled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorAgreement:
    """How often curators chose the same, against chance."""

    who: str
    cells: int
    """Decided by at least two of them; counted once for every pair."""
    alike: float
    """Share of equal choices."""
    expected: float
    """What chance gives."""
    kappa: float | None
    """1 is full agreement, 0 is chance; None where there is nothing to compare."""


class CurationTally:
    """The state of a curation, derived from its log."""

    def __init__(self, pools: Pools, actions: Sequence[Action]) -> None:
        self._pools = pools
        undone = {number for action in actions if action.kind == "undo" for number in [int(action.detail["action"])]}
        self._done = [action for action in actions if action.id not in undone and action.kind != "undo"]
        self._opinions: dict[tuple[str, Cell], Opinion] = defaultdict(Opinion)
        self._settled: dict[Cell, Action] = {}
        self.needed = 1
        """How many curators must have decided before a cell counts."""
        invited: dict[str, None] = {}
        for action in self._done:
            if action.kind == "invite":
                invited[str(action.detail["curator"])] = None
            else:
                self._apply(action)
        per_cell = pools.design.per_cell
        self.curators = tuple(dict.fromkeys(curator for curator, _ in self._opinions))
        self.invited = tuple(invited | dict.fromkeys(self.curators))
        """Who has a link, in order."""
        self._by_cell: dict[Cell, dict[str, Opinion]] = {cell: {} for cell in pools.design.cells}
        for (curator, cell), opinion in self._opinions.items():
            self._by_cell.setdefault(cell, {})[curator] = opinion
        self.outcomes: Mapping[Cell, Outcome] = {cell: self._outcome(cell, per_cell) for cell in pools.design.cells}

    def opinion(self, curator: str, cell: Cell) -> Opinion:
        """What this curator has done in this cell."""
        return self._opinions.get((curator, cell)) or Opinion()

    def last_action(self, curator: str, cell: Cell) -> Action | None:
        """The action that undo reverts; a choice that was compared with others' is not taken back."""
        undoable = frozenset({"settle"}) if self.opinion(curator, cell).compared else UNDOABLE
        own = (action for action in reversed(self._done) if action.curator == curator and action.cell == cell)
        return next((action for action in own if action.kind in undoable), None)

    def comparable(self, curator: str) -> list[Cell]:
        """Cells that this curator and enough others have decided, and that the curator has not compared yet."""
        enough = max(2, self.needed)
        return [
            cell
            for cell, outcome in self.outcomes.items()
            if curator in outcome.votes and len(outcome.votes) >= enough and not self.opinion(curator, cell).compared
        ]

    def seen_state(self, curator: str, cell: Cell) -> State:
        """A cell's state as far as this curator may know it."""
        return self.outcomes[cell].state if self.opinion(curator, cell).compared else "open"

    def agreement(self, cells: Collection[Cell] | None = None) -> Iterator[CuratorAgreement]:
        """For every pair of curators, and for all together where there are more than two; over these cells, or all."""
        over = self.outcomes if cells is None else {cell: self.outcomes[cell] for cell in cells}
        pairs = list(combinations(self.curators, 2))
        if len(pairs) > 1:
            yield self._agreement(self.curators, pairs, over)
        for pair in pairs:
            yield self._agreement(pair, [pair], over)

    def ticks(self, cell: Cell, candidate: str) -> Mapping[str, int]:
        """How many of those who chose a candidate had ticked each criterion."""
        counted: Counter[str] = Counter()
        for curator in self.choosers(cell, candidate):
            counted.update(self._opinions[curator, cell].ticked.get(candidate, ()))
        return counted

    def choosers(self, cell: Cell, candidate: str) -> tuple[str, ...]:
        """Who chose a candidate; the curator who settled the cell counts too."""
        settled = self._settled.get(cell)
        by_settling = (settled.curator,) if settled and candidate in settled.detail["candidates"] else ()
        chose = (name for name in self.curators if candidate in self.opinion(name, cell).chosen)
        return tuple(dict.fromkeys((*chose, *by_settling)))

    def _apply(self, action: Action) -> None:
        detail = action.detail
        if action.kind == "rule":
            self.needed = int(detail["curators"])
            return
        opinion = self._opinions[action.curator, action.cell]
        who = str(detail.get("candidate", ""))
        match action.kind:
            case "open":
                opinion.order = list(detail["order"])
            case "tick":
                opinion.ticked.setdefault(who, set()).add(detail["criterion"])
            case "tick_all":
                opinion.ticked.setdefault(who, set()).update(detail["criteria"])
            case "untick":
                opinion.ticked.setdefault(who, set()).discard(detail["criterion"])
            case "reject":
                opinion.rejected[who] = (tuple(detail["reasons"]), detail.get("note", ""))
                opinion.chosen = [other for other in opinion.chosen if other != who]
            case "restore":
                opinion.rejected.pop(who, None)
            case "choose":
                opinion.none_fits = None
                opinion.rejected.pop(who, None)
                kept = [other for other in opinion.chosen if other != who]
                # Choosing one more than the cell takes replaces the first of them.
                opinion.chosen = [*kept, who][-self._pools.design.per_cell :]
            case "unchoose":
                opinion.chosen = [other for other in opinion.chosen if other != who]
            case "none":
                opinion.chosen, opinion.none_fits = [], str(detail.get("note", ""))
            case "compare":
                opinion.compared = True
            case "settle":
                self._settled[action.cell] = action
            case "undo" | "invite":
                pass

    def _outcome(self, cell: Cell, per_cell: int) -> Outcome:
        opinions = {curator: opinion for curator, opinion in self._by_cell[cell].items() if opinion.decided(per_cell)}
        votes = {curator: tuple(sorted(opinion.chosen)) for curator, opinion in opinions.items()}
        if not self._pools.cells[cell]:
            return Outcome(state="empty", chosen=(), votes={}, reason="no picture was found")
        if len(votes) < self.needed or not votes:
            return Outcome(state="open", chosen=(), votes=votes)
        if cell in self._settled:
            detail = self._settled[cell].detail
            chosen, note = tuple(sorted(detail["candidates"])), str(detail.get("note", ""))
            return Outcome(state="settled" if chosen else "empty", chosen=chosen, votes=votes, reason=note)
        half = len(votes) / 2
        if sum(not chosen for chosen in votes.values()) > half:
            reasons = sorted({opinion.none_fits for opinion in opinions.values() if opinion.none_fits})
            return Outcome(state="empty", chosen=(), votes=votes, reason="; ".join(reasons))
        counted = Counter(candidate for chosen in votes.values() for candidate in chosen)
        approved = tuple(sorted(candidate for candidate, count in counted.items() if count > half))
        if len(approved) != per_cell:
            return Outcome(state="contested", chosen=(), votes=votes)
        return Outcome(state="agreed" if len(set(votes.values())) == 1 else "voted", chosen=approved, votes=votes)

    def _agreement(
        self, curators: Sequence[str], pairs: Iterable[tuple[str, str]], over: Mapping[Cell, Outcome]
    ) -> CuratorAgreement:
        per_cell = self._pools.design.per_cell
        same: list[float] = []
        chance: list[float] = []
        for first, second in pairs:
            for cell, outcome in over.items():
                if first in outcome.votes and second in outcome.votes:
                    a, b = set(outcome.votes[first]), set(outcome.votes[second])
                    same.append(float(a == b) if per_cell == 1 or not a or not b else len(a & b) / per_cell)
                    chance.append(min(1.0, per_cell / max(len(self._pools.cells[cell]), 1)))
        count = max(len(same), 1)
        alike, expected = sum(same) / count, sum(chance) / count
        kappa = (alike - expected) / (1 - expected) if same and expected < 1 else None
        return CuratorAgreement(
            who=" and ".join(curators), cells=len(same), alike=alike, expected=expected, kappa=kappa
        )
