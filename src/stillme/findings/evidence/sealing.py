"""Write a run into one file that names every one of its bytes, and check such a file offline: hashes, rows, numbers."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import platform
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
from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.files import SUMS, sha256_of, sums_of, whole, write_json, write_whole
from stillme.core.types import plain
from stillme.findings.calibration import calibrated
from stillme.findings.evidence.bundle import (
    ABOUT,
    FORMAT,
    IMAGES,
    REPORT,
    SIGNATURE,
    Contents,
    Difference,
    is_signed_by,
    one_line,
    pack,
    require_suffix,
    signature_of,
)
from stillme.findings.evidence.checks import row_stage, table_differences, write_tables_of
from stillme.runs import RecordedRun
from stillme.runs.store.exported import codebook
from stillme.runs.store.merging import copy_ledger, require_ledger
from stillme.runs.store.opening import LEDGER
from stillme.runs.store.pictures import suffix_of

_PACKAGES = ("numpy", "scipy", "onnxruntime", "opencv-python-headless", "pillow", "pydantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A bundle on disk."""

    file: Path
    root: str
    """The one hash that names all of it. Publish it: a bundle with the same root is the same bundle."""
    files: int
    bytes: int
    signature: Path | None = None

    def as_text(self) -> str:
        """For people."""
        lines = [
            f"Sealed {self.files:,} files in {self.file} ({self.bytes / 1e6:,.1f} MB)",
            f"root {self.root}",
            *([f"signature {self.signature}"] if self.signature else []),
        ]
        return "\n".join(lines)


def seal(run: RecordedRun, file: Path, *, with_images: bool = False, key: Path | None = None) -> Sealed:
    """Write a run into `file`; the same rows give the same bytes.

    With `key`, a private key of OpenSSH, a signature is written next to it.
    """
    if run.design.of_rows:
        raise StillmeError(
            f"{run.folder} was made of imported rows: it has no audit and no pictures that a bundle could prove. "
            "Share the file of rows, or `stillme export`."
        )
    require_suffix(file)
    with tempfile.TemporaryDirectory(prefix="stillme-seal-") as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        copy_ledger(run.store, folder, calibrated(run).as_json())
        members = dict(_images(run, Path(name) / IMAGES)) if with_images else {}
        if (run.folder / REPORT).is_file():
            members[REPORT] = run.folder / REPORT
        # From the rows that were copied, not from the run, which may have grown.
        with RecordedRun.open(folder) as sealed:
            write_tables_of(sealed, folder)
            _require_verifiable(sealed, run.folder)
        write_whole(folder / "README.md", f"{_README}\n{codebook()}")
        write_json(folder / ABOUT, _about())
        members |= {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        sums = sums_of({name: sha256_of(path) for name, path in members.items()})
        members[SUMS] = write_whole(folder / SUMS, sums)
        signature = signature_of(sums, key) if key else None
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as draft:
            pack(draft, members)
    return Sealed(
        file=file,
        root=hashlib.sha256(sums.encode()).hexdigest(),
        files=len(members),
        bytes=file.stat().st_size,
        signature=write_whole(file.with_name(file.name + SIGNATURE), signature) if signature else None,
    )


def _about() -> dict[str, Any]:
    return {
        "format": FORMAT,
        "stillme": __version__,
        "rubric": rubric.load().version,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _require_verifiable(run: RecordedRun, folder: Path) -> None:
    """Nothing is sealed that `verify` would not accept."""
    if difference := next(row_stage(run, frozenset()), None):
        raise StillmeError(
            f"The run cannot be sealed, as `stillme verify` would not accept it: {difference}. "
            f"`stillme export {folder.name}` writes its rows as they are."
        )


def _images(run: RecordedRun, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Sources and edits of what the run asks, by hash; those that are kept elsewhere are fetched into `scratch`."""
    hashes = dict.fromkeys(portrait.image.sha256 for portrait in run.design.portraits)
    hashes |= dict.fromkeys(row.image for row in run.rows() if row.image)
    for sha256 in hashes:
        path = run.picture(sha256)
        if run.store.pictures.place.addresses:
            # A copy that is shared by all runs may make room for another before all of them are packed.
            data = path.read_bytes()
            path = scratch / sha256[:2] / f"{sha256}{suffix_of(data)}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        yield f"{IMAGES}/{path.parent.name}/{path.name}", path


_README = """\
# Evidence of a stillme audit

| file | what |
|---|---|
| `SHA256SUMS` | the hash of every other file; its own hash is the root that was printed when this was sealed |
| `evidence.json` | the versions of stillme, Python and packages that made this |
| `stillme.sqlite` | a copy of the run's database: what was asked, requests, edits and answers; no rater is named |
| `tables/` | the numbers, computed from these rows |
| `report.html` | the report that was in the run folder, if there was one |
| `images/` | portraits and edits by hash, if they were asked for |

`stillme verify FILE` checks it offline. Without stillme, `sha256sum -c SHA256SUMS` checks every file,
`sha256sum SHA256SUMS` gives the root, and any SQLite reads the rows.
"""


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
