"""A folder of candidates: drawn from a source, kept byte for byte, with the record of the draw.

pools.json        the design, its source and seed, cells that fell short, pictures passed over
candidates.csv    one line per candidate; its id tells neither pool nor file
pictures/         the files as they were, named by their SHA-256
passed_over.csv   every row and file that was left out, and why; only where there are any
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.core.errors import InvalidPortraits, Problem, StillmeError, UnknownName
from stillme.core.files import unmarked, write_csv, write_whole
from stillme.core.types import Json, digest
from stillme.curation.sources import Row, path_fault

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


RECORD = "pools.json"
CANDIDATES = "candidates.csv"
PICTURES = "pictures"
PASSED_OVER = "passed_over.csv"
NOT_STATED = "not stated"
_FORMAT = 1
_OWN = ("id", "picture", "sha256", "pools", "source", "licence", "label_origin", "consent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One picture that may become the portrait of its cell."""

    id: str
    path: Path
    sha256: str
    pools: tuple[int, ...]
    source: str
    """Its name where it came from."""
    attributes: Mapping[str, str]
    licence: str
    label_origin: str
    consent: str


@dataclass(frozen=True, kw_only=True)
class Pools:
    """All candidates of a draw."""

    folder: Path
    design: Design
    source: str
    made: str
    candidates: tuple[Candidate, ...]
    shortfalls: tuple[Shortfall, ...]
    passed_over: tuple[str, ...]
    """Rows and pictures that would have been taken but cannot be used, one sentence for each kind."""

    @cached_property
    def cells(self) -> Mapping[Cell, tuple[Candidate, ...]]:
        """The candidates by cell; cells without any are included."""
        by_cell: dict[Cell, list[Candidate]] = {cell: [] for cell in self.design.cells}
        for candidate in self.candidates:
            cell = self.design.cell_of(candidate.attributes)
            if cell is not None:
                by_cell[cell].append(candidate)
        return {cell: tuple(candidates) for cell, candidates in by_cell.items()}

    @cached_property
    def by_id(self) -> Mapping[str, Candidate]:
        """Every candidate by its id."""
        return {candidate.id: candidate for candidate in self.candidates}

    @cached_property
    def key(self) -> str:
        """The hash of the candidates: decisions belong to one draw."""
        return digest([sorted(self.by_id), {name: list(levels) for name, levels in self.design.levels.items()}])


def load_pools(folder: Path) -> Pools:
    """Read a folder that `drawing.sample` wrote."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text("utf-8"))
        if record["format"] > _FORMAT:
            raise StillmeError(f"{folder} was written by a newer stillme ({record['stillme']}); upgrade this one.")
        design = Design(
            levels={name: tuple(levels) for name, levels in record["design"]["levels"].items()},
            pools=record["design"]["pools"],
            per_cell=record["design"]["per_cell"],
            seed=record["design"]["seed"],
        )
        shortfalls = tuple(
            Shortfall(
                cell=tuple(entry["cell"]),
                found=entry["found"],
                wanted=entry["wanted"],
                empty_pools=tuple(entry["empty_pools"]),
            )
            for entry in record["shortfalls"]
        )
        text = (folder / CANDIDATES).read_text("utf-8")
    except FileNotFoundError as error:
        raise StillmeError(
            f"{folder} holds no candidate pools ({Path(error.filename).name} is missing). "
            "`stillme portraits sample` makes them."
        ) from None
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StillmeError(f"{folder / RECORD} cannot be read ({error}). Draw the pools again.") from None
    return Pools(
        folder=folder,
        design=design,
        source=record["source"],
        made=record["made"],
        candidates=_candidates(folder, text),
        shortfalls=shortfalls,
        passed_over=tuple(record["passed_over"]),
    )


def write_pools(folder: Path, pools: Pools) -> None:
    """Write the record and the table into the folder of the pictures."""
    attributes = list(pools.design.levels)
    rows = (
        {
            "id": candidate.id,
            "picture": f"{PICTURES}/{candidate.path.name}",
            "sha256": candidate.sha256,
            "pools": " ".join(map(str, candidate.pools)),
            "source": candidate.source,
            "licence": candidate.licence,
            "label_origin": candidate.label_origin,
            "consent": candidate.consent,
            **candidate.attributes,
        }
        for candidate in pools.candidates
    )
    write_csv(folder / CANDIDATES, [*_OWN, *attributes], rows)
    record: dict[str, Json] = {
        "format": _FORMAT,
        "stillme": __version__,
        "made": pools.made,
        "source": pools.source,
        "design": asdict(pools.design),
        "shortfalls": [asdict(shortfall) for shortfall in pools.shortfalls],
        "passed_over": list(pools.passed_over),
    }
    write_whole(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False))


def _candidates(folder: Path, text: str) -> tuple[Candidate, ...]:
    table = folder / CANDIDATES
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if missing := [name for name in _OWN if name not in (reader.fieldnames or ())]:
        hint = f"has no column {missing[0]!r}; draw the pools again"
        raise InvalidPortraits(str(table), [Problem(place="line 1", message=hint)])
    candidates: list[Candidate] = []
    problems: list[Problem] = []
    for marked in reader:
        cells = {unmarked(name): unmarked(cell) for name, cell in marked.items()}
        if fault := path_fault(cells["picture"]):
            problems.append(Problem(place=f"line {reader.line_num}", message=fault))
            continue
        candidates.append(
            Candidate(
                id=cells["id"],
                path=folder / cells["picture"],
                sha256=cells["sha256"],
                pools=tuple(int(pool) for pool in cells["pools"].split()),
                source=cells["source"],
                attributes={name: value for name, value in cells.items() if name not in _OWN},
                licence=cells["licence"],
                label_origin=cells["label_origin"],
                consent=cells["consent"],
            )
        )
    if problems:
        raise InvalidPortraits(str(table), problems)
    return tuple(candidates)
