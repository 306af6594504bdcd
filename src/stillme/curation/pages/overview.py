"""The grid of cells: how far every curator is, and which cells a filter keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from stillme.curation.pages.workspace import Workspace
from stillme.curation.sampling import Cell

FILTERS = {
    "all": "all cells",
    "todo": "not decided by me",
    "mine": "decided by me",
    "contested": "curators disagree",
    "empty": "no candidate fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which cells are shown."""

    show: str = "all"
    levels: Mapping[str, str]
    """The level asked for, by attribute."""

    @classmethod
    def of(cls, workspace: Workspace, query: Mapping[str, str]) -> Filter:
        """Read a page's query; unknown values are ignored."""
        show = query.get("show", "all")
        levels = {
            name: query[name] for name, known in workspace.pools.design.levels.items() if query.get(name, "") in known
        }
        return cls(show=show if show in FILTERS else "all", levels=levels)

    @property
    def query(self) -> str:
        """The query that keeps this filter."""
        chosen = ({"show": self.show} if self.show != "all" else {}) | dict(self.levels)
        return "?" + urlencode(chosen) if chosen else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One cell of the grid."""

    number: int
    cell: Cell
    candidates: int
    mine: str
    """`chosen`, `nobody`, `begun`, or nothing."""
    state: str
    """Of the cell, as far as this curator may know it."""
    others: int
    """Other curators who decided."""
    matches: bool

    @property
    def words(self) -> str:
        """The tile's state, for screen readers."""
        mine = {"chosen": "decided by you", "nobody": "you found nobody fit", "begun": "begun", "": "not begun"}
        parts = [f"{self.candidates} candidates", mine[self.mine]]
        if self.others:
            parts.append(f"decided by {self.others} other{'s' if self.others > 1 else ''}")
        if self.state == "contested":
            parts.append("curators disagree")
        return ", ".join(parts)


def tiles(workspace: Workspace, curator: str, chosen: Filter) -> list[Tile]:
    """Every cell, and whether the filter keeps it."""
    tally = workspace.tally
    names = list(workspace.pools.design.levels)
    every_tile: list[Tile] = []
    for number, cell in enumerate(workspace.cells, start=1):
        opinion, state = tally.opinion(curator, cell), tally.seen_state(curator, cell)
        mine = (
            "nobody"
            if opinion.nobody is not None
            else "chosen"
            if opinion.decided(workspace.pools.design.per_cell)
            else "begun"
            if opinion.ticked or opinion.rejected or opinion.chosen
            else ""
        )
        shown = {
            "all": True,
            "todo": mine in ("", "begun") and bool(workspace.pools.cells[cell]),
            "mine": mine in ("chosen", "nobody"),
            "contested": state == "contested",
            "empty": state == "empty" or mine == "nobody" or not workspace.pools.cells[cell],
        }[chosen.show]
        here = all(chosen.levels.get(name, level) == level for name, level in zip(names, cell, strict=True))
        every_tile.append(
            Tile(
                number=number,
                cell=cell,
                candidates=len(workspace.pools.cells[cell]),
                mine=mine,
                state=state,
                others=len(set(tally.outcomes[cell].votes) - {curator}),
                matches=shown and here,
            )
        )
    return every_tile


def grid(workspace: Workspace, cells: Sequence[Tile]) -> list[tuple[tuple[str, ...], list[Tile]]]:
    """Rows of tiles: the last attribute runs across, the others down."""
    across = len(list(workspace.pools.design.levels.values())[-1])
    return [(cells[start].cell[:-1], list(cells[start : start + across])) for start in range(0, len(cells), across)]


def neighbours(cells: Sequence[Tile], number: int) -> tuple[int | None, int | None]:
    """The cells before and after this one that the filter keeps; it wraps around."""
    numbers = [tile.number for tile in cells if tile.matches]
    lower, higher = [other for other in numbers if other < number], [other for other in numbers if other > number]
    before, after = lower or higher, higher or lower
    return (before[-1] if before else None), (after[0] if after else None)


def progress(workspace: Workspace) -> Mapping[str, int]:
    """Cells that each curator has decided."""
    counted = Counter(name for outcome in workspace.tally.outcomes.values() for name in outcome.votes)
    return {name: counted[name] for name in workspace.tally.invited}


def compared_cells(workspace: Workspace, curator: str) -> list[Cell]:
    """Where this curator has seen whether others agree."""
    return [cell for cell in workspace.cells if workspace.tally.opinion(curator, cell).compared]
