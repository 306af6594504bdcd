"""A table of finished edits: which file shows which portrait under which prompt, and what was refused."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stillme.core.errors import did_you_mean
from stillme.core.types import Arm

_NEEDED = ("file", "portrait", "prompt")
_YES, _NO = frozenset({"1", "true", "yes", "x"}), frozenset({"", "0", "false", "no"})
_SHOWN = 3

Cell = tuple[str, str, str, int]
"""Portrait (two are joined by `+`), prompt, arm and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One row."""

    line: int
    file: str
    refused: bool
    note: str


class Manifest:
    """A CSV with the columns file, portrait and prompt; arm, seed, refused and note may be left out or empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def entries(self) -> Mapping[Cell, ManifestEntry]:
        """The rows by what they show."""
        return self._read[0]

    def problems(self) -> Iterator[str]:
        """One sentence per kind of mistake, with the first rows that have it."""
        yield from self._read[1]

    @cached_property
    def _read(self) -> tuple[Mapping[Cell, ManifestEntry], list[str]]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as stream:
                reader = csv.DictReader(stream)
                columns = [name.strip() for name in reader.fieldnames or ()]
                reader.fieldnames = columns
                rows = [(reader.line_num, row) for row in reader]
        except FileNotFoundError:
            return {}, [f"`manifest` {self.path} does not exist; correct its path"]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            return {}, [f"`manifest` {self.path} cannot be read ({error}); save it as CSV in UTF-8"]
        if missing := [name for name in _NEEDED if name not in columns]:
            close = did_you_mean(missing[0], columns)
            return {}, [
                f"`manifest` {self.path} has no column {missing[0]!r}.{close} Its columns: {', '.join(columns)}"
            ]
        entries: dict[Cell, ManifestEntry] = {}
        mistakes: dict[str, list[str]] = {}
        for line, row in rows:
            cells = {name: (value or "").strip() for name, value in row.items() if isinstance(value, str | None)}
            try:
                cell, entry = _parsed(line, cells)
                if other := entries.get(cell):
                    raise _Mistake("name the same edit as another row; remove one", f"{line} and {other.line}")
                entries[cell] = entry
            except _Mistake as mistake:
                mistakes.setdefault(mistake.what, []).append(mistake.where)
        return entries, [
            f"`manifest` {self.path}: {len(where):,} rows {what} (line {', '.join(where[:_SHOWN])}"
            f"{', …' if len(where) > _SHOWN else ''})"
            for what, where in mistakes.items()
        ]


class _Mistake(Exception):
    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.what, self.where = what, where


def _parsed(line: int, cells: Mapping[str, str]) -> tuple[Cell, ManifestEntry]:
    arm, seed, refused = (
        cells.get("arm") or Arm.BASELINE.value,
        cells.get("seed") or "0",
        cells.get("refused", "").lower(),
    )
    if not (cells["portrait"] and cells["prompt"]):
        raise _Mistake("have no portrait or prompt; fill them in", str(line))
    if arm not in [known.value for known in Arm]:
        raise _Mistake(f"have an unknown arm; write {', '.join(known.value for known in Arm)}", f"{line}: {arm!r}")
    if not seed.removeprefix("-").isdecimal():
        raise _Mistake("have a seed that is not a whole number", f"{line}: {seed!r}")
    if refused not in _YES | _NO:
        raise _Mistake("say neither yes nor no under `refused`; write yes, or nothing", f"{line}: {refused!r}")
    if not cells["file"] and refused in _NO:
        raise _Mistake("name no file and are not refused; fill in `file`, or write yes under `refused`", str(line))
    entry = ManifestEntry(line=line, file=cells["file"], refused=refused in _YES, note=cells.get("note", ""))
    return (cells["portrait"], cells["prompt"], arm, int(seed)), entry
