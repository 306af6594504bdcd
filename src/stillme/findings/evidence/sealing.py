"""Write a run into one file that names every one of its bytes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.files import SUMS, sha256_of, sums_of, whole, write_json, write_whole
from stillme.findings.calibration import calibrated
from stillme.findings.evidence.bundle import (
    ABOUT,
    FORMAT,
    IMAGES,
    REPORT,
    SIGNATURE,
    pack,
    require_suffix,
    signature_of,
)
from stillme.findings.evidence.checks import row_stage, write_tables_of
from stillme.runs import RecordedRun
from stillme.runs.store.exported import codebook
from stillme.runs.store.ledger_copy import copy_ledger
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
            _check(sealed, run.folder)
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


def _check(run: RecordedRun, folder: Path) -> None:
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
