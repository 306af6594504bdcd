"""Write a run into one file that names every one of its bytes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme import __version__, rubric
from stillme.audit.load import FILE
from stillme.calibration import calibrated
from stillme.errors import StillmeError
from stillme.evidence import archive, signing
from stillme.evidence.audit_file import audit_file_differences
from stillme.evidence.bundle import (
    ABOUT,
    DESIGN,
    FORMAT,
    IMAGES,
    REPORT,
    REQUESTS,
    ROWS,
    as_run,
    read_json,
    request_rows,
)
from stillme.evidence.hashes import Contents, inventory
from stillme.evidence.recomputing import recompute
from stillme.evidence.row_checks import relabelled_in
from stillme.evidence.verifying import row_stage
from stillme.exchange import write_rows
from stillme.files import SUMS, sha256_of, sums_of, whole, write_json, write_json_lines, write_whole
from stillme.results import Run
from stillme.store.exported import codebook, rows_of, tables_in
from stillme.store.pictures import suffix_of

_PACKAGES = ("numpy", "scipy", "onnxruntime", "opencv-python-headless", "pillow", "pydantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A bundle on disk."""

    file: Path
    root: str
    """The one hash that names all of it. Publish it; whoever has the bundle can check against it."""
    files: int
    bytes: int
    signature: Path | None = None
    left_out: str = ""
    """Why audit.toml is not in it, although there is one."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "file": str(self.file),
            "root": self.root,
            "files": self.files,
            "bytes": self.bytes,
            "signature": str(self.signature) if self.signature else None,
            "left_out": self.left_out or None,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [
            f"Sealed {self.files:,} files in {self.file} ({self.bytes / 1e6:,.1f} MB)",
            f"root {self.root}",
            *([f"signature {self.signature}"] if self.signature else []),
            *([self.left_out] if self.left_out else []),
            f"Next, on any machine: stillme verify {self.file} --root {self.root}",
        ]
        return "\n".join(lines)


def seal(run: Run, file: Path, *, with_images: bool = False, key: Path | None = None) -> Sealed:
    """Write a run into `file`; the same rows give the same bytes.

    With `key`, a private key of OpenSSH, a signature is written beside it.
    """
    if run.design.of_rows:
        raise StillmeError(
            f"{run.folder} was made of imported rows: it has no audit and no pictures that a bundle could prove. "
            "Share the file of rows, or `stillme export`."
        )
    suffix = archive.require_suffix(file)
    with tempfile.TemporaryDirectory(prefix="stillme-seal-") as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        left_out = _write(run, folder)
        members = dict(_images(run, Path(name) / IMAGES)) if with_images else {}
        if (run.folder / REPORT).is_file():
            members[REPORT] = run.folder / REPORT
        # From the rows just written, not from the run, which may have grown.
        with as_run(folder, Path(name) / "run") as sealed:
            recompute(sealed, folder)
            members |= {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
            about = _about(sealed, folder, frozenset(members))
            members[ABOUT] = write_json(folder / ABOUT, about)
            _check(sealed, folder, about, frozenset(members))
        sums = sums_of({name: sha256_of(path) for name, path in members.items()})
        members[SUMS] = write_whole(folder / SUMS, sums)
        signature = signing.signature_of(sums, key) if key else None
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as draft:
            archive.pack(draft, members, suffix)
    return Sealed(
        file=file,
        root=hashlib.sha256(sums.encode()).hexdigest(),
        files=len(members),
        bytes=file.stat().st_size,
        signature=write_whole(file.with_name(file.name + signing.SUFFIX), signature) if signature else None,
        left_out=left_out,
    )


def _write(run: Run, folder: Path) -> str:
    """Write rows and configuration, and return why audit.toml is left out, if it is."""
    (folder / ROWS).mkdir()
    # Another process may be adding rows: all that is sealed is of one moment.
    with run.store.snapshot():
        tables = tables_in(run.store)
        for table in tables:
            write_rows(folder / ROWS / f"{table.name}.jsonl", "jsonl", table, rows_of(run.store, table))
        write_json_lines(folder / REQUESTS, request_rows(run))
    write_json(folder / DESIGN, calibrated(run).as_json())
    write_json(folder / "configurations.json", list(run.store.configurations()))
    write_whole(folder / "codebook.md", codebook(tables))
    write_whole(folder / "README.md", _README)
    if not (run.folder / FILE).is_file():
        return ""
    data = (run.folder / FILE).read_bytes()
    changed = next(audit_file_differences(data.decode("utf-8", "replace"), run.design.resolved), None)
    if changed:
        return f"{FILE} is left out, as it has changed since the run was recorded ({changed}); {DESIGN} has what was."
    write_whole(folder / FILE, data)
    return ""


def _about(run: Run, folder: Path, names: frozenset[str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "title": run.title,
        "audit": run.design.hash,
        "stillme": __version__,
        "rubric": rubric.load().version,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "relabelled": sorted(relabelled_in(folder, run)),
        **inventory(folder, names),
    }


def _check(run: Run, folder: Path, about: Mapping[str, Any], names: frozenset[str]) -> None:
    """Nothing is sealed that `verify` would not accept."""
    contents = Contents(folder=folder, names=names, sums=b"", hashes={}, about=about)
    difference = next(row_stage(contents, run, read_json(folder, DESIGN)), None)
    if difference:
        raise StillmeError(
            f"The run cannot be sealed, as `stillme verify` would not accept it: {difference}. "
            f"`stillme export {run.folder.name}` writes its rows as they are."
        )


def _images(run: Run, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Sources and edits of what the run asks, by hash; those that are kept elsewhere are brought to `scratch`."""
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
| `evidence.json` | which stillme made this, with which versions |
| `audit.toml`, `design.json` | what was asked, as written and as resolved |
| `configurations.json` | every configuration that ever wrote rows into this run |
| `rows/requests.jsonl` | every request of the audit |
| `rows/edits.jsonl`, `rows/judgements.jsonl` | what came of them, with raw answers; `codebook.md` explains them |
| `tables/` | the numbers, computed from these rows |
| `report.html` | the report that was in the run folder, if there was one |
| `images/` | portraits and edits by hash, if they were asked for |

`stillme verify FILE` checks it offline. Without stillme: `sha256sum -c SHA256SUMS` checks every file, and
`sha256sum SHA256SUMS` gives the root. The report, this page and `codebook.md` are covered by their hashes only.
"""
