"""A folder of candidates: drawn from a source, kept byte for byte, with the record of the draw.

pools.json        the design, its source and seed, the candidates, cells that fell short, pictures passed over
pictures/         the files as they were, named by their SHA-256
passed_over.csv   every row and file that was left out, and why; only where there are any
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from stillme import __version__
from stillme.core.errors import StillmeError, UnknownName, UnreadableImage
from stillme.core.files import write_csv, write_whole
from stillme.core.types import digest
from stillme.curation.sources import Faults, FolderSource, SourceRow, add_unreadable, inspect

Cell = tuple[str, ...]
"""One level of each attribute, in the design's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDesign:
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

    def __str__(self) -> str:
        held = "pools share them" if self.found and not self.empty_pools else "some pools have none"
        return f"{', '.join(self.cell)}: {self.found} of {self.wanted}; {held if self.found else 'empty'}"


Pooled = Mapping[Cell, tuple[tuple[SourceRow, ...], ...]]
"""By cell, one tuple of rows per pool, pool 1 first."""


def draw(
    rows: Iterable[SourceRow], design: PoolDesign, *, usable: Callable[[SourceRow], bool] = lambda _: True
) -> tuple[Pooled, tuple[Shortfall, ...]]:
    """Fill every cell of every pool. `usable` is asked only of rows that would be taken; others are passed over."""
    queues: dict[Cell, list[SourceRow]] = {cell: [] for cell in design.cells}
    for row in rows:
        cell = design.cell_of(row.attributes)
        if cell is not None:
            queues[cell].append(row)
    wanted = design.pools * design.per_cell
    pools: dict[Cell, tuple[tuple[SourceRow, ...], ...]] = {}
    shortfalls: list[Shortfall] = []
    for cell, queue in queues.items():
        taken: list[SourceRow] = []
        for row in sorted(queue, key=lambda row: digest([design.seed, cell, row.file])):
            if len(taken) == wanted:
                break
            if usable(row):
                taken.append(row)
        pools[cell] = _distributed(taken, design)
        if len(taken) < wanted:
            short = tuple(pool for pool, held in enumerate(pools[cell], start=1) if len(held) < design.per_cell)
            shortfalls.append(Shortfall(cell=cell, found=len(taken), wanted=wanted, empty_pools=short))
    return pools, tuple(shortfalls)


def _distributed(taken: Sequence[SourceRow], design: PoolDesign) -> tuple[tuple[SourceRow, ...], ...]:
    per_pool = min(design.per_cell, len(taken))
    return tuple(
        tuple(taken[(pool * design.per_cell + place) % len(taken)] for place in range(per_pool))
        for pool in range(design.pools)
    )


def levels_of(rows: Iterable[SourceRow], by: Sequence[str]) -> dict[str, tuple[str, ...]]:
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
PICTURES = "pictures"
PASSED_OVER = "passed_over.csv"
NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(SourceRow):
    """One picture that may become the portrait of its cell."""

    id: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    suffix: Annotated[str, Field(pattern=r"^\.[a-z]+$")]
    pools: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Pools:
    """All candidates of a draw."""

    stillme: str = __version__
    made: str
    source: str
    design: PoolDesign
    shortfalls: tuple[Shortfall, ...]
    passed_over: tuple[str, ...]
    """Rows and pictures that would have been taken but cannot be used, one sentence for each kind."""
    candidates: tuple[Candidate, ...]
    folder: Path = Path()
    """Where they are."""

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

    def path_of(self, candidate: Candidate) -> Path:
        """Where a candidate's picture is."""
        return self.folder / PICTURES / f"{candidate.sha256}{candidate.suffix}"

    def write(self, folder: Path) -> None:
        """Write the record into the folder of the pictures."""
        record = {**asdict(self), "folder": ""}
        write_whole(folder / RECORD, json.dumps(record, indent=1, ensure_ascii=False))


def load_pools(folder: Path) -> Pools:
    """Read a folder that `sample` wrote."""
    try:
        read = TypeAdapter(Pools).validate_json((folder / RECORD).read_bytes())
    except FileNotFoundError:
        raise StillmeError(
            f"{folder} holds no candidate pools ({RECORD} is missing). `stillme portraits sample` makes them."
        ) from None
    except (OSError, ValidationError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise StillmeError(f"{folder / RECORD} cannot be read ({why}). Draw the pools again.") from None
    return replace(read, folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions:
    """What to draw from a source."""

    by: tuple[str, ...] = ()
    """The attributes to cross; by default those of the source's own design."""
    only: Mapping[str, tuple[str, ...]]
    """The levels to take of an attribute, or the values to keep of another column."""
    pools: int = 7
    per_cell: int = 1
    seed: int = 0


def sample(source: FolderSource, folder: Path, options: SampleOptions) -> Pools:
    """Draw pools from `source` into a new `folder`, which appears only when it is complete."""
    _refuse_existing(folder)
    faults = Faults()
    rows = list(source.rows(faults))
    if not rows:
        raise _nothing_left(source, faults, "It has no rows.")
    design = _design(source, rows, options)
    rows = [row for row in rows if all(row.attributes.get(name) in levels for name, levels in options.only.items())]
    for name in design.levels:
        for row in rows:
            if not row.attributes.get(name):
                faults.add("empty", row.file, column=name)
    with _new_folder(folder) as draft:
        copier = _PictureCopier(source, draft / PICTURES, faults)
        pooled, shortfalls = draw(rows, design, usable=copier.copy)
        candidates = [
            copier.candidate(row, cell, [place for place, pool in enumerate(pools, start=1) if row in pool], design)
            for cell, pools in pooled.items()
            for row in {row.file: row for pool in pools for row in pool}.values()
        ]
        if not candidates:
            raise _nothing_left(source, faults, f"None of {len(rows):,} rows is in a cell of the design.")
        # Ordered by id, which is a hash: neither pools nor the queue show in the file.
        candidates.sort(key=lambda candidate: candidate.id)
        pools = Pools(
            folder=folder,
            design=design,
            source=source.title,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            candidates=tuple(candidates),
            shortfalls=shortfalls,
            passed_over=faults.sentences,
        )
        pools.write(draft)
        if faults:
            write_csv(draft / PASSED_OVER, ("kind", "name", "column", "why"), map(asdict, faults))
    return pools


class _PictureCopier:
    """Copies usable pictures and counts the others."""

    def __init__(self, source: FolderSource, folder: Path, faults: Faults) -> None:
        self._source = source
        self._folder = folder
        self._faults = faults
        self._copied: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}
        folder.mkdir()

    def copy(self, row: SourceRow) -> bool:
        """Copy a row's picture; False, with the reason noted, where it cannot be used."""
        try:
            data = self._source.read(row)
            sha256 = hashlib.sha256(data).hexdigest()
            if sha256 in self._names:
                # Before decoding: a table may list one picture under very many names.
                self._faults.add("repeated", row.file, f"{row.file} is {self._names[sha256]}")
                return False
            suffix = inspect(data, row.file)
        except UnreadableImage as error:
            add_unreadable(self._faults, row.file, error)
            return False
        (self._folder / f"{sha256}{suffix}").write_bytes(data)
        self._names[sha256] = row.file
        self._copied[row.file] = (sha256, suffix)
        return True

    def candidate(self, row: SourceRow, cell: Cell, pools: Sequence[int], design: PoolDesign) -> Candidate:
        """The candidate of a copied row."""
        sha256, suffix = self._copied[row.file]
        return Candidate(
            id=digest([sha256, cell])[:12],
            sha256=sha256,
            suffix=suffix,
            pools=tuple(pools),
            file=row.file,
            # Only what the design crosses: candidates were not chosen by the file's other columns.
            attributes={name: row.attributes[name] for name in design.levels},
            licence=row.licence or NOT_STATED,
            label_origin=row.label_origin or NOT_STATED,
            consent=row.consent or NOT_STATED,
        )


def _nothing_left(source: FolderSource, faults: Faults, otherwise: str) -> StillmeError:
    reasons = " ".join(faults.sentences) or otherwise
    return StillmeError(f"{source.title} has no usable picture, so nothing was written. {reasons}")


def _design(source: FolderSource, rows: Sequence[SourceRow], options: SampleOptions) -> PoolDesign:
    by = options.by or tuple(source.levels)
    if not by:
        known = sorted({name for row in rows for name in row.attributes})
        raise StillmeError(
            f"No attributes to cross. Name them with `--by`; this source has {', '.join(known) or 'none'}."
        )
    occurring = levels_of(rows, tuple(dict.fromkeys([*by, *options.only])))
    levels = {name: source.levels.get(name) or occurring[name] for name in by}
    known = {name: tuple(dict.fromkeys([*source.levels.get(name, ()), *occurring[name]])) for name in occurring}
    return PoolDesign(
        levels=restricted(levels, options.only, known),
        pools=options.pools,
        per_cell=options.per_cell,
        seed=options.seed,
    )


@contextmanager
def _new_folder(folder: Path) -> Generator[Path]:
    """A folder to fill under another name; it takes its own name when it is complete, or is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield draft
        draft.chmod(0o755)
        _refuse_existing(folder)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _refuse_existing(folder: Path) -> None:
    if folder.exists():
        raise StillmeError(f"{folder} already exists. Choose another folder, or remove it first.")
