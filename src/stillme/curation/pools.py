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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.curation.sampling import Cell, Design, Shortfall
from stillme.curation.sources import path_fault
from stillme.errors import InvalidPortraits, Problem, StillmeError
from stillme.files import unmarked, write_csv, write_whole
from stillme.types import Json, digest

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
