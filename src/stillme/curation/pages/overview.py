"""The grid of cells: how far everybody is, which cells a filter leaves, and who agrees with whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from stillme.curation.pages.desk import Desk
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
    """Which cells are looked at."""

    show: str = "all"
    levels: Mapping[str, str]
    """Of an attribute, the one level wanted."""

    @classmethod
    def of(cls, desk: Desk, query: Mapping[str, str]) -> Filter:
        """Read a page's address; what it does not know is left out."""
        show = query.get("show", "all")
        levels = {name: query[name] for name, known in desk.pools.design.levels.items() if query.get(name, "") in known}
        return cls(show=show if show in FILTERS else "all", levels=levels)

    @property
    def query(self) -> str:
        """The end of an address that keeps this filter."""
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
    others: int
    """Other curators who decided."""
    matches: bool

    @property
    def words(self) -> str:
        """The tile's state for whoever does not see it."""
        mine = {"chosen": "decided by you", "nobody": "you found nobody fit", "begun": "begun", "": "not begun"}
        parts = [f"{self.candidates} candidates", mine[self.mine]]
        if self.others:
            parts.append(f"decided by {self.others} other{'s' if self.others > 1 else ''}")
        if self.state == "contested":
            parts.append("curators disagree")
        return ", ".join(parts)


def tiles(desk: Desk, curator: str, chosen: Filter) -> list[Tile]:
    """Every cell, with whether the filter leaves it."""
    standing = desk.standing
    names = list(desk.pools.design.levels)
    found: list[Tile] = []
    for number, cell in enumerate(desk.cells, start=1):
        opinion, outcome = standing.opinion(curator, cell), standing.outcomes[cell]
        mine = (
            "nobody"
            if opinion.nobody is not None
            else "chosen"
            if opinion.decided(desk.pools.design.per_cell)
            else "begun"
            if opinion.ticked or opinion.rejected or opinion.chosen
            else ""
        )
        wanted = {
            "all": True,
            "todo": mine in ("", "begun") and bool(desk.pools.cells[cell]),
            "mine": mine in ("chosen", "nobody"),
            "contested": outcome.state == "contested",
            "empty": outcome.state == "empty" or not desk.pools.cells[cell],
        }[chosen.show]
        here = all(chosen.levels.get(name, level) == level for name, level in zip(names, cell, strict=True))
        found.append(
            Tile(
                number=number,
                cell=cell,
                candidates=len(desk.pools.cells[cell]),
                mine=mine,
                state=outcome.state,
                others=len(set(outcome.votes) - {curator}),
                matches=wanted and here,
            )
        )
    return found


def grid(desk: Desk, found: Sequence[Tile]) -> list[tuple[tuple[str, ...], list[Tile]]]:
    """Rows of tiles: the last attribute runs across, the others down."""
    across = len(list(desk.pools.design.levels.values())[-1])
    return [(found[start].cell[:-1], list(found[start : start + across])) for start in range(0, len(found), across)]


def neighbours(found: Sequence[Tile], number: int) -> tuple[int | None, int | None]:
    """The cells before and after this one that the filter leaves; it begins again at the end."""
    numbers = [tile.number for tile in found if tile.matches]
    before = [each for each in numbers if each < number] or [each for each in numbers if each > number]
    after = [each for each in numbers if each > number] or [each for each in numbers if each < number]
    return (before[-1] if before else None), (after[0] if after else None)


def progress(desk: Desk) -> Mapping[str, int]:
    """Cells that each curator has decided."""
    counted = Counter(name for outcome in desk.standing.outcomes.values() for name in outcome.votes)
    return {name: counted[name] for name in desk.standing.curators}
