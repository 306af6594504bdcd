"""Draw candidate pools over a factorial grid: the same rows and seed give the same pools, whatever the rows' order.

Every row has a place in its cell's queue: the hash of the seed, the cell and the file's name. Pool 1 takes the first
rows of the queue, pool 2 the next ones, and so on: pools are disjoint while the queue lasts, and pool 1 is the same
whether one pool is drawn or seven. Where a cell has fewer rows than all pools together need, later pools begin the
queue again: pools then share pictures, and the draw says so. A pool never holds a picture twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from stillme.curation.sources import Row
from stillme.errors import StillmeError, UnknownName
from stillme.types import digest

Cell = tuple[str, ...]
"""One level of each attribute, in the design's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What to draw."""

    levels: Mapping[str, tuple[str, ...]]
    """The attributes that are crossed, and the levels of each."""
    pools: int = 7
    per_cell: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.levels or not all(self.levels.values()):
            raise StillmeError("A draw needs at least one attribute with one level to cross; give `--by ATTRIBUTE`.")
        if self.pools < 1 or self.per_cell < 1:
            raise StillmeError("A draw needs at least one pool and one picture per cell.")

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every combination of levels."""
        return tuple(product(*self.levels.values()))

    def cell_of(self, attributes: Mapping[str, str]) -> Cell | None:
        """The cell that a picture with these labels belongs to; None if it is not in the design."""
        cell = tuple(attributes.get(name, "") for name in self.levels)
        return cell if all(level in levels for level, levels in zip(cell, self.levels.values(), strict=True)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A cell with too few usable pictures."""

    cell: Cell
    found: int
    """Usable pictures."""
    wanted: int
    """What all pools together ask for."""
    empty_pools: tuple[int, ...]
    """Pools that hold fewer pictures of this cell than asked; other shortfalls only make pools share pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Which pictures are in which pool."""

    pools: Mapping[Cell, tuple[tuple[Row, ...], ...]]
    """By cell, one tuple of rows per pool, pool 1 first."""
    shortfalls: tuple[Shortfall, ...]


def draw(rows: Iterable[Row], design: Design, *, usable: Callable[[Row], bool] | None = None) -> Draw:
    """Fill every cell of every pool. `usable` is asked only of rows that would be taken; others are passed over."""
    queues: dict[Cell, list[Row]] = {cell: [] for cell in design.cells}
    for row in rows:
        cell = design.cell_of(row.attributes)
        if cell is not None:
            queues[cell].append(row)
    wanted = design.pools * design.per_cell
    pools: dict[Cell, tuple[tuple[Row, ...], ...]] = {}
    shortfalls: list[Shortfall] = []
    for cell, queue in queues.items():
        taken: list[Row] = []
        for row in sorted(queue, key=lambda row: digest([design.seed, cell, row.file])):
            if len(taken) == wanted:
                break
            if usable is None or usable(row):
                taken.append(row)
        pools[cell] = _distributed(taken, design)
        if len(taken) < wanted:
            short = tuple(pool for pool, held in enumerate(pools[cell], start=1) if len(held) < design.per_cell)
            shortfalls.append(Shortfall(cell=cell, found=len(taken), wanted=wanted, empty_pools=short))
    return Draw(pools=pools, shortfalls=tuple(shortfalls))


def _distributed(taken: Sequence[Row], design: Design) -> tuple[tuple[Row, ...], ...]:
    per_pool = min(design.per_cell, len(taken))
    return tuple(
        tuple(taken[(pool * design.per_cell + place) % len(taken)] for place in range(per_pool))
        for pool in range(design.pools)
    )


def levels_of(rows: Iterable[Row], by: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The levels that occur in the rows, sorted, by attribute."""
    occurring: dict[str, set[str]] = {name: set() for name in by}
    known: set[str] = set()
    for row in rows:
        known.update(row.attributes)
        for name in by:
            if level := row.attributes.get(name):
                occurring[name].add(level)
    for name, levels in occurring.items():
        if not levels:
            raise UnknownName.among("attribute", name, known, f"This source has: {', '.join(sorted(known)) or 'none'}.")
    return {name: tuple(sorted(levels)) for name, levels in occurring.items()}


def restricted(
    levels: Mapping[str, tuple[str, ...]], only: Mapping[str, Sequence[str]], known: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """The levels that are asked for, in that order; a level that no row has is an error."""
    kept = dict(levels)
    for name, wanted in only.items():
        for level in wanted:
            if level not in known.get(name, ()):
                raise UnknownName.among(name, level, known.get(name, ()), f"Known: {', '.join(known.get(name, ()))}.")
        if name in kept:
            kept[name] = tuple(dict.fromkeys(wanted))
    return kept
