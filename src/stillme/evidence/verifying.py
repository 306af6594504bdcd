"""Check a bundle offline: every hash, every key, every number."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.design import UnreadableDesign
from stillme.errors import StillmeError
from stillme.evidence import archive
from stillme.evidence.bundle import ABOUT, FORMAT, NEEDED, ROWS, Unreadable, as_run
from stillme.evidence.differences import Difference
from stillme.evidence.keys import wrong_keys
from stillme.evidence.recomputing import recompute
from stillme.files import SUMS, read_sums, sha256_of

_SHOWN = 10
_CLOSE = 1e-6
"""Relative: other processors and libraries add up in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is wrong with a bundle, if anything."""

    file: Path
    root: str
    title: str
    sealed_by: str
    files: int
    cells: int
    """Table cells that were computed again."""
    differences: tuple[Difference, ...]

    @property
    def sound(self) -> bool:
        """Whether everything is as it was sealed, and every number follows from the rows."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "file": str(self.file),
            "sound": self.sound,
            "root": self.root,
            "title": self.title,
            "sealed_by": self.sealed_by,
            "verified_by": __version__,
            "files": self.files,
            "cells": self.cells,
            "differences": [asdict(each) for each in self.differences],
        }

    def as_text(self) -> str:
        """For people: the first difference in full, the others below."""
        lines = [f"{self.file}: {self.title}", f"root {self.root}"]
        if self.sealed_by != __version__:
            lines.append(
                f"Sealed by stillme {self.sealed_by}, verified by {__version__}: a number that differs may come from "
                "that. Install the other version to be sure."
            )
        if self.sound:
            lines.append(
                f"Sound: {self.files:,} files are as they were sealed, and {self.cells:,} cells of the tables follow "
                "from the rows."
            )
            return "\n".join(lines)
        lines.append(f"NOT SOUND. The first difference: {self.differences[0]}")
        lines += [f"  also {each}" for each in self.differences[1:_SHOWN]]
        if len(self.differences) > _SHOWN:
            lines.append(f"  and {len(self.differences) - _SHOWN:,} more")
        return "\n".join(lines)


def verify(file: Path, root: str | None = None) -> Verification:
    """Check hashes, then keys, then numbers; with `root`, also that this is the very bundle that was sealed."""
    with tempfile.TemporaryDirectory(prefix="stillme-verify-") as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        names = archive.unpack(file, folder)
        if SUMS not in names:
            raise StillmeError(f"{file} has no {SUMS}, so it is no evidence bundle of stillme.")
        sums = (folder / SUMS).read_bytes()
        found_root = hashlib.sha256(sums).hexdigest()
        listed = read_sums(sums.decode("utf-8", "replace"))
        about = _about(folder)
        differences = [*_root(root, found_root), *_files(folder, names, listed)]
        gone = [needed for needed in NEEDED if not (folder / needed).is_file()]
        cells = 0
        if not gone:
            try:
                with as_run(folder, Path(name) / "run") as run:
                    differences += wrong_keys(folder, run, str(about.get("audit", "")))
                    recompute(run, Path(name))
                cells, wrong = _tables(folder / "tables", Path(name) / "tables")
                differences += wrong
            except (Unreadable, UnreadableDesign) as error:
                differences.append(Difference(file=ROWS, what=str(error)))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                # Somebody wrote into it what stillme never writes; where exactly does not matter any more.
                differences.append(Difference(file=ROWS, what=f"rows and design do not fit: {error!r}"))
        return Verification(
            file=file,
            root=found_root,
            title=str(about.get("title", "")),
            sealed_by=str(about.get("stillme", "an unknown version")),
            files=len(listed),
            cells=cells,
            differences=tuple(differences),
        )


def _about(folder: Path) -> Mapping[str, Any]:
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if about.get("format") != FORMAT:
        raise StillmeError(
            f"The bundle has format {about.get('format')}, this stillme reads {FORMAT}. "
            f"It was sealed by stillme {about.get('stillme')}: install that version to verify it."
        )
    return about


def _root(wanted: str | None, found: str) -> Iterator[Difference]:
    if wanted and wanted.strip().lower() != found:
        yield Difference(file=SUMS, what="another root than expected", expected=wanted, found=found)


def _files(folder: Path, names: list[str], listed: Mapping[str, str]) -> Iterator[Difference]:
    for name, sha256 in sorted(listed.items()):
        path = folder / name
        if not path.is_file():
            yield Difference(file=name, what="is missing")
        elif (found := sha256_of(path)) != sha256:
            yield Difference(file=name, what="is not the file that was sealed", expected=sha256, found=found)
        elif name.startswith("images/") and path.stem != sha256:
            yield Difference(file=name, what="is named by another hash", expected=path.stem, found=sha256)
    for name in sorted(set(names) - set(listed) - {SUMS}):
        yield Difference(file=name, what="was added after sealing")


def _tables(given: Path, computed: Path) -> tuple[int, list[Difference]]:
    cells = 0
    differences: list[Difference] = []
    for path in sorted(computed.glob("*.csv")):
        name = f"tables/{path.name}"
        if not (given / path.name).is_file():
            differences.append(Difference(file=name, what="is missing"))
            continue
        with (given / path.name).open(encoding="utf-8", newline="") as one, path.open(encoding="utf-8") as other:
            found, expected = list(csv.reader(one)), list(csv.reader(other))
        cells += sum(map(len, expected))
        differences += _cells(name, found, expected)
    return cells, differences


def _cells(name: str, found: list[list[str]], expected: list[list[str]]) -> Iterator[Difference]:
    heads = expected[0]
    if not found or found[0] != heads:
        yield Difference(
            file=name, what="has other columns", expected=", ".join(heads), found=", ".join(found[0] if found else [])
        )
        return
    for number, (there, should) in enumerate(zip(found[1:], expected[1:], strict=False), start=1):
        if len(there) != len(heads):
            yield Difference(file=name, row=number, what="has another number of cells")
            continue
        for head, cell, wanted in zip(heads, there, should, strict=True):
            if not _same(cell, wanted):
                yield Difference(
                    file=name, row=number, column=head, what=_named(heads, should), expected=wanted, found=cell
                )
    if len(found) != len(expected):
        yield Difference(
            file=name, what="has another number of rows", expected=str(len(expected) - 1), found=str(len(found) - 1)
        )


def _named(heads: list[str], row: list[str]) -> str:
    """Whose number it is, from the row itself."""
    known = dict(zip(heads, row, strict=True))
    parts = (known.get(name, "") for name in ("editor", "arm", "judge", "quantity", "factor", "group", "scope"))
    return " ".join(part for part in parts if part)


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=_CLOSE, abs_tol=1e-9)
    except ValueError:
        return False
