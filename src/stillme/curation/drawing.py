"""Draw candidates from a source into a new folder of pools."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stillme.curation.pictures import inspect
from stillme.curation.pools import NOT_STATED, PICTURES, Candidate, Pools, load_pools, write_pools
from stillme.curation.sampling import Cell, Design, draw, found_levels, restricted
from stillme.curation.sources import Row, Source
from stillme.errors import StillmeError, UnreadableImage
from stillme.types import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to draw from a source, as the user says it."""

    by: tuple[str, ...] = ()
    """The attributes to cross; the source's own design where there are none."""
    only: Mapping[str, tuple[str, ...]]
    """Of an attribute, the levels to take; of any other column, the values to keep."""
    pools: int = 7
    per_cell: int = 1
    seed: int = 0


def _quiet(_: str) -> None:
    """Say nothing."""


def sample(source: Source, folder: Path, wanted: Wanted, *, say: Callable[[str], None] = _quiet) -> Pools:
    """Draw pools from `source` into a new `folder`, which appears only when it is whole."""
    _refuse_existing(folder)
    rows = list(source.rows())
    design = _design(source, rows, wanted)
    rows = [row for row in rows if all(row.attributes.get(name) in levels for name, levels in wanted.only.items())]
    with _appearing(folder) as partial:
        keeper = _Keeper(source, partial / PICTURES, say)
        drawn = draw(rows, design, usable=keeper.keep)
        candidates = [
            keeper.candidate(row, cell, [place for place, pool in enumerate(pools, start=1) if row in pool], design)
            for cell, pools in drawn.pools.items()
            for row in {row.file: row for pool in pools for row in pool}.values()
        ]
        # In the order of their ids, which is no order: neither pools nor the queue show in the file.
        candidates.sort(key=lambda candidate: candidate.id)
        made = Pools(
            folder=folder,
            design=design,
            source=source.title,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            candidates=tuple(candidates),
            shortfalls=drawn.shortfalls,
            passed_over=tuple(keeper.passed_over),
        )
        write_pools(partial, made)
    return load_pools(folder)


class _Keeper:
    """Copies the pictures that are taken; remembers those that cannot be."""

    def __init__(self, source: Source, folder: Path, say: Callable[[str], None]) -> None:
        self._source = source
        self._folder = folder
        self._say = say
        self._kept: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}
        self.passed_over: list[str] = []
        folder.mkdir()

    def keep(self, row: Row) -> bool:
        """Copy a row's picture; False, with a sentence noted, where it cannot be used."""
        try:
            data = self._source.read(row)
            suffix = inspect(data, row.file).suffix
        except UnreadableImage as error:
            self._pass_over(str(error))
            return False
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 in self._names:
            self._pass_over(f"{row.file} is the same file as {self._names[sha256]}.")
            return False
        (self._folder / f"{sha256}{suffix}").write_bytes(data)
        self._names[sha256] = row.file
        self._kept[row.file] = (sha256, suffix)
        return True

    def candidate(self, row: Row, cell: Cell, pools: Sequence[int], design: Design) -> Candidate:
        """The candidate that a kept row became."""
        sha256, suffix = self._kept[row.file]
        return Candidate(
            id=digest([sha256, cell])[:12],
            path=self._folder / f"{sha256}{suffix}",
            sha256=sha256,
            pools=tuple(pools),
            source=row.file,
            # Only what the design crosses: a file's other columns are not what the portraits were chosen for.
            attributes={name: row.attributes[name] for name in design.levels},
            licence=row.licence or NOT_STATED,
            label_origin=row.label_origin or NOT_STATED,
            consent=row.consent or NOT_STATED,
        )

    def _pass_over(self, sentence: str) -> None:
        self.passed_over.append(sentence)
        self._say(f"Passed over: {sentence}")


def _design(source: Source, rows: Sequence[Row], wanted: Wanted) -> Design:
    by = wanted.by or tuple(source.levels)
    if not by:
        known = sorted({name for row in rows for name in row.attributes})
        raise StillmeError(
            f"Which attributes should be crossed? Give `--by` for each; this source has {', '.join(known) or 'none'}."
        )
    found = found_levels(rows, tuple(dict.fromkeys([*by, *wanted.only])))
    levels = {name: source.levels.get(name) or found[name] for name in by}
    known = {name: tuple(dict.fromkeys([*source.levels.get(name, ()), *found[name]])) for name in found}
    return Design(
        levels=restricted(levels, wanted.only, known), pools=wanted.pools, per_cell=wanted.per_cell, seed=wanted.seed
    )


@contextmanager
def _appearing(folder: Path) -> Generator[Path]:
    """A folder under another name while it is filled; it gets its own when it is whole, or is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield partial
        partial.chmod(0o755)
        _refuse_existing(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _refuse_existing(folder: Path) -> None:
    """A folder that is to be made must not be there."""
    if folder.exists():
        raise StillmeError(f"{folder} is already there. Choose another name, or remove it first.")
