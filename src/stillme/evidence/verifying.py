"""Check a bundle offline: every hash, every row, every number."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.audit.load import FILE
from stillme.design import UnreadableDesign
from stillme.errors import StillmeError
from stillme.evidence import archive, signing
from stillme.evidence.audit_file import audit_file_differences
from stillme.evidence.bundle import DESIGN, IMAGES, ROWS, Unreadable, as_run, read_json
from stillme.evidence.coverage import NotCovered, files_not_covered
from stillme.evidence.design_checks import design_differences
from stillme.evidence.differences import Difference
from stillme.evidence.hashes import Contents
from stillme.evidence.recomputing import recompute
from stillme.evidence.row_checks import row_differences
from stillme.evidence.table_checks import table_differences
from stillme.files import SUMS
from stillme.results import Run

_SHOWN = 10


class Verdict(StrEnum):
    """What may be said of a bundle."""

    AUTHENTIC = "authentic and consistent"
    """It has the published root, or the signature of a known key, and every check passed."""
    CONSISTENT = "internally consistent, not authenticated"
    """Every check passed; whether somebody made all of it anew, only a root or a signature can say."""
    INCONSISTENT = "NOT CONSISTENT"


class Reached(StrEnum):
    """How far the checks came: each stage trusts the one before, so that the first with a difference is the last."""

    HASHES = "hashes"
    ROWS = "rows"
    TABLES = "tables"


_STOPPED = {
    Reached.HASHES: "Stopped after the hashes: nothing is computed from files that are not what was sealed.",
    Reached.ROWS: "Stopped before the tables: nothing is computed from rows that do not fit.",
}


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
    authenticated: bool
    """Whether the root or a signature was given and is right."""
    reached: Reached
    differences: tuple[Difference, ...]
    not_verified: tuple[NotCovered, ...]
    """Files of which only the hash was checked."""

    @property
    def consistent(self) -> bool:
        """Whether everything is as it was sealed, and every number follows from the rows."""
        return not self.differences

    @property
    def verdict(self) -> Verdict:
        """The result in a few words."""
        if not self.consistent:
            return Verdict.INCONSISTENT
        return Verdict.AUTHENTIC if self.authenticated else Verdict.CONSISTENT

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "file": str(self.file),
            "verdict": str(self.verdict),
            "consistent": self.consistent,
            "authenticated": self.authenticated,
            "root": self.root,
            "title": self.title,
            "sealed_by": self.sealed_by,
            "verified_by": __version__,
            "files": self.files,
            "cells": self.cells,
            "reached": str(self.reached),
            "differences": [asdict(difference) for difference in self.differences],
            "not_verified": [{"file": entry.file, "reason": entry.reason} for entry in self.not_verified],
        }

    def as_text(self) -> str:
        """For people: the first difference in full, the others below."""
        lines = [f"{self.file}: {self.title}", f"root {self.root}"]
        if self.sealed_by != __version__:
            lines.append(
                f"Sealed by stillme {self.sealed_by}, verified by {__version__}: a number that differs may come from "
                "that. Install the other version to be sure."
            )
        if self.consistent:
            verdict = str(self.verdict)
            lines.append(
                f"{verdict[0].upper()}{verdict[1:]}: {self.files:,} files have the hashes that were sealed, and "
                f"{self.cells:,} cells of the tables follow from the rows."
            )
            if not self.authenticated:
                lines.append(
                    "Next: compare with the published root (--root HEX), or check the signature (--key PUBKEY)."
                )
            lines += [f"Not verified, hash only: {entry.file} ({entry.reason})" for entry in self.not_verified]
            return "\n".join(lines)
        lines.append(f"{self.verdict}. First difference: {self.differences[0]}")
        lines += [f"  also {difference}" for difference in self.differences[1:_SHOWN]]
        if len(self.differences) > _SHOWN:
            lines.append(f"  and {len(self.differences) - _SHOWN:,} more")
        if self.reached in _STOPPED:
            lines.append(_STOPPED[self.reached])
        return "\n".join(lines)


def verify(file: Path, root: str | None = None, key: Path | None = None) -> Verification:
    """Check hashes, then rows, then numbers.

    With `root`, or a public `key` and the signature beside the file, also whether this is the bundle that was sealed.
    """
    if root is not None and not re.fullmatch(r"[0-9a-f]{64}", root := root.strip().lower()):
        raise StillmeError(f"A root has 64 hexadecimal digits; {root!r} is none. `stillme export --bundle` prints it.")
    with tempfile.TemporaryDirectory(prefix="stillme-verify-") as name:
        scratch = Path(name)
        folder = scratch / "bundle"
        contents = Contents.of(file, folder, archive.unpack(file, folder))
        reached, cells = Reached.HASHES, 0
        differences = [*_authenticity(file, contents, root, key), *contents.differences()]
        if not differences:
            reached, cells, differences = _check(contents, scratch)
        return Verification(
            file=file,
            root=contents.root,
            title=str(contents.about.get("title", "")),
            sealed_by=str(contents.about.get("stillme", "an unknown version")),
            files=len(contents.hashes),
            cells=cells,
            authenticated=(root is not None or key is not None) and reached is not Reached.HASHES,
            reached=reached,
            differences=tuple(differences),
            not_verified=tuple(files_not_covered(contents.names)),
        )


def _authenticity(file: Path, contents: Contents, root: str | None, key: Path | None) -> Iterator[Difference]:
    if root is not None and root != contents.root:
        yield Difference(file=SUMS, what="another root than expected", expected=root, found=contents.root)
    if key is not None:
        signature = file.with_name(file.name + signing.SUFFIX)
        if not signing.is_signed_by(contents.sums, signature, key):
            yield Difference(file=signature.name, what=f"is no signature of this bundle by {key.name}")


def _check(contents: Contents, scratch: Path) -> tuple[Reached, int, list[Difference]]:
    """The rows, and if they fit, the tables computed from them."""
    differences: list[Difference] = []
    try:
        differences.extend(contents.counted())
        with as_run(contents.folder, scratch / "run") as run:
            differences.extend(row_stage(contents, run, read_json(contents.folder, DESIGN)))
            if not differences:
                recompute(run, scratch)
                cells, differences = table_differences(contents.folder / "tables", scratch / "tables")
                return Reached.TABLES, cells, differences
    except (Unreadable, UnreadableDesign) as error:
        differences.append(Difference(file=ROWS, what=str(error)))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, csv.Error) as error:
        # Somebody wrote into it what stillme never writes; where exactly does not matter any more.
        differences.append(Difference(file=ROWS, what=f"rows and design do not fit: {error!r}"))
    return Reached.ROWS, 0, differences


def row_stage(contents: Contents, run: Run, document: dict[str, Any]) -> Iterator[Difference]:
    """Everything but the tables: the design, audit.toml, the rows and the pictures' names."""
    yield from design_differences(run.design, contents.about)
    # Another version may know other keys.
    if contents.about.get("stillme") == __version__:
        rebuilt = run.design.as_json()
        for part in sorted({*document, *rebuilt}):
            if part not in rebuilt or _canonical(document.get(part)) != _canonical(rebuilt[part]):
                yield Difference(file=DESIGN, column=part, what="holds what stillme does not write")
    if FILE in contents.names:
        text = (contents.folder / FILE).read_text("utf-8")
        yield from audit_file_differences(text, run.design.resolved)
    yield from row_differences(contents.folder, run, frozenset(contents.about.get("relabelled", ())))
    pictures = [name for name in contents.names if name.startswith(f"{IMAGES}/")]
    if pictures:
        known = {portrait.image.sha256 for portrait in run.design.portraits} | {row.image for row in run.rows()}
        for name in sorted(name for name in pictures if Path(name).stem not in known):
            yield Difference(file=name, what="is a picture that no row names")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
