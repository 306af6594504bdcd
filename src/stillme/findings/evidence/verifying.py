"""Check a bundle offline: every hash, every row, every number."""

from __future__ import annotations

import csv
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.audit.design import UnreadableDesign
from stillme.core.errors import StillmeError
from stillme.core.files import SUMS
from stillme.core.types import plain
from stillme.findings.evidence.bundle import SIGNATURE, Contents, Difference, is_signed_by, one_line
from stillme.findings.evidence.checks import row_stage, table_differences, write_tables_of
from stillme.runs import RecordedRun
from stillme.runs.store.ledger_copy import require_ledger
from stillme.runs.store.opening import LEDGER

_SHOWN = 10


class BundleVerdict(StrEnum):
    """What may be said of a bundle."""

    AUTHENTIC = "authentic and consistent"
    """It has the published root, or the signature of a known key, and every check passed."""
    CONSISTENT = "internally consistent, not authenticated"
    """Every check passed. Whether all of it was replaced, only a root or a signature can say."""
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

    @property
    def consistent(self) -> bool:
        """Whether everything is as it was sealed, and every number follows from the rows."""
        return not self.differences

    @property
    def verdict(self) -> BundleVerdict:
        """The result in a few words."""
        if not self.consistent:
            return BundleVerdict.INCONSISTENT
        return BundleVerdict.AUTHENTIC if self.authenticated else BundleVerdict.CONSISTENT

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        derived = {"verdict": self.verdict, "consistent": self.consistent, "verified_by": __version__}
        return plain(asdict(self) | derived)

    def as_text(self) -> str:
        """For people: the first difference in full, the others below."""
        lines = [f"{self.file}: {one_line(self.title)}", f"root {self.root}"]
        if self.sealed_by != __version__:
            lines.append(
                f"Sealed by stillme {one_line(self.sealed_by)}, verified by {__version__}: a differing number may come "
                "from that. Install the other version to be sure."
            )
        if self.consistent:
            verdict = str(self.verdict)
            lines.append(
                f"{verdict[0].upper()}{verdict[1:]}: {self.files:,} files have the hashes that were sealed, and "
                f"{self.cells:,} cells of the tables follow from the rows."
            )
            if not self.authenticated:
                lines.append("Compare with the published root (--root HEX), or check the signature (--key PUBKEY).")
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

    With `root`, or a public `key` and the signature next to the file, also whether this is the bundle that was sealed.
    """
    if root is not None and not re.fullmatch(r"[0-9a-f]{64}", root := root.strip().lower()):
        raise StillmeError(f"A root has 64 hexadecimal digits; {root!r} is none. `stillme export --bundle` prints it.")
    with tempfile.TemporaryDirectory(prefix="stillme-verify-") as name:
        scratch = Path(name)
        contents = Contents.of(file, scratch / "bundle")
        found = _Found(differences=[*_authenticity(file, contents, root, key), *contents.differences()])
        if not found.differences:
            _check(contents, scratch, found)
        return Verification(
            file=file,
            root=contents.root,
            title=found.title,
            sealed_by=contents.sealed_by,
            files=len(contents.hashes),
            cells=found.cells,
            authenticated=(root is not None or key is not None) and found.reached is not Reached.HASHES,
            reached=found.reached,
            differences=tuple(found.differences),
        )


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the checks found so far."""

    differences: list[Difference]
    title: str = ""
    reached: Reached = Reached.HASHES
    cells: int = 0


def _authenticity(file: Path, contents: Contents, root: str | None, key: Path | None) -> Iterator[Difference]:
    if root is not None and root != contents.root:
        yield Difference(file=SUMS, what="another root than expected", expected=root, found=contents.root)
    if key is not None:
        signature = file.with_name(file.name + SIGNATURE)
        if not is_signed_by(contents.sums, signature, key):
            yield Difference(file=signature.name, what=f"is not a signature of this bundle by {key.name}")


def _check(contents: Contents, scratch: Path, found: _Found) -> None:
    """The rows, and if they fit, the tables computed from them."""
    found.reached = Reached.ROWS
    try:
        require_ledger(contents.folder / LEDGER)
        with RecordedRun.open(contents.folder) as run:
            found.title = run.title
            found.differences.extend(row_stage(run, contents.names))
            if not found.differences:
                write_tables_of(run, scratch)
                found.cells, found.differences = table_differences(contents.folder / "tables", scratch / "tables")
                found.reached = Reached.TABLES
    except (StillmeError, UnreadableDesign) as error:
        found.differences.append(Difference(file=LEDGER, what=str(error)))
    except _NOT_ROWS as error:
        # It holds what stillme never writes; where exactly does not matter any more.
        found.differences.append(Difference(file=LEDGER, what=f"rows and design do not fit: {error!r}"))


_NOT_ROWS = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),
    *(csv.Error, sqlite3.Error),
)
