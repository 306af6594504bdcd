"""Draw candidates from a source into a new folder of pools."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stillme.core.errors import StillmeError, UnreadableImage
from stillme.core.files import write_csv
from stillme.core.types import digest
from stillme.curation.pools import (
    NOT_STATED,
    PASSED_OVER,
    PICTURES,
    Candidate,
    Cell,
    Design,
    Pools,
    draw,
    levels_of,
    load_pools,
    restricted,
    write_pools,
)
from stillme.curation.sources import Faults, Row, Source, add_unreadable, inspect


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


def sample(source: Source, folder: Path, options: SampleOptions) -> Pools:
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
                faults.add("empty", row.file, of=name)
    with _new_folder(folder) as draft:
        copier = _PictureCopier(source, draft / PICTURES, faults)
        drawn = draw(rows, design, usable=copier.copy)
        candidates = [
            copier.candidate(row, cell, [place for place, pool in enumerate(pools, start=1) if row in pool], design)
            for cell, pools in drawn.pools.items()
            for row in {row.file: row for pool in pools for row in pool}.values()
        ]
        if not candidates:
            raise _nothing_left(source, faults, f"None of {len(rows):,} rows is in a cell of the design.")
        # Ordered by id, which is a hash: neither pools nor the queue show in the file.
        candidates.sort(key=lambda candidate: candidate.id)
        drawn_pools = Pools(
            folder=folder,
            design=design,
            source=source.title,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            candidates=tuple(candidates),
            shortfalls=drawn.shortfalls,
            passed_over=faults.sentences,
        )
        write_pools(draft, drawn_pools)
        if faults:
            write_csv(
                draft / PASSED_OVER,
                ("kind", "name", "column", "why"),
                ({"kind": fault.kind, "name": fault.name, "column": fault.of, "why": fault.why} for fault in faults),
            )
    return load_pools(folder)


class _PictureCopier:
    """Copies usable pictures and counts the others."""

    def __init__(self, source: Source, folder: Path, faults: Faults) -> None:
        self._source = source
        self._folder = folder
        self._faults = faults
        self._copied: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}
        folder.mkdir()

    def copy(self, row: Row) -> bool:
        """Copy a row's picture; False, with the reason noted, where it cannot be used."""
        try:
            data = self._source.read(row)
            sha256 = hashlib.sha256(data).hexdigest()
            if sha256 in self._names:
                # Before decoding: a table may list one picture under very many names.
                self._faults.add("repeated", row.file, f"{row.file} is {self._names[sha256]}")
                return False
            suffix = inspect(data, row.file).suffix
        except UnreadableImage as error:
            add_unreadable(self._faults, row.file, error)
            return False
        (self._folder / f"{sha256}{suffix}").write_bytes(data)
        self._names[sha256] = row.file
        self._copied[row.file] = (sha256, suffix)
        return True

    def candidate(self, row: Row, cell: Cell, pools: Sequence[int], design: Design) -> Candidate:
        """The candidate of a copied row."""
        sha256, suffix = self._copied[row.file]
        return Candidate(
            id=digest([sha256, cell])[:12],
            path=self._folder / f"{sha256}{suffix}",
            sha256=sha256,
            pools=tuple(pools),
            source=row.file,
            # Only what the design crosses: candidates were not chosen by the file's other columns.
            attributes={name: row.attributes[name] for name in design.levels},
            licence=row.licence or NOT_STATED,
            label_origin=row.label_origin or NOT_STATED,
            consent=row.consent or NOT_STATED,
        )


def _nothing_left(source: Source, faults: Faults, otherwise: str) -> StillmeError:
    reasons = " ".join(faults.sentences) or otherwise
    return StillmeError(f"{source.title} has no usable picture, so nothing was written. {reasons}")


def _design(source: Source, rows: Sequence[Row], options: SampleOptions) -> Design:
    by = options.by or tuple(source.levels)
    if not by:
        known = sorted({name for row in rows for name in row.attributes})
        raise StillmeError(
            f"No attributes to cross. Name them with `--by`; this source has {', '.join(known) or 'none'}."
        )
    occurring = levels_of(rows, tuple(dict.fromkeys([*by, *options.only])))
    levels = {name: source.levels.get(name) or occurring[name] for name in by}
    known = {name: tuple(dict.fromkeys([*source.levels.get(name, ()), *occurring[name]])) for name in occurring}
    return Design(
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
