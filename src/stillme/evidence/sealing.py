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

from stillme import __version__, rubric
from stillme.audit.load import FILE
from stillme.calibration import calibrated
from stillme.evidence import archive
from stillme.evidence.bundle import ABOUT, DESIGN, FORMAT, REQUESTS, ROWS, as_run, request_rows
from stillme.evidence.recomputing import recompute
from stillme.exchange import write_rows
from stillme.files import SUMS, sha256_of, sums_of, whole, write_json, write_json_lines, write_whole
from stillme.results import Run
from stillme.store.exported import codebook, rows_of, tables_in

REPORT = "report.html"
_PACKAGES = ("numpy", "scipy", "onnxruntime", "opencv-python-headless", "pillow", "pydantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A bundle on disk."""

    file: Path
    root: str
    """The one hash that names all of it. Publish it; whoever has the bundle can check against it."""
    files: int
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"file": str(self.file), "root": self.root, "files": self.files, "bytes": self.bytes}

    def as_text(self) -> str:
        """For people."""
        return (
            f"Sealed {self.files:,} files in {self.file} ({self.bytes / 1e6:,.1f} MB)\n"
            f"root {self.root}\n"
            f"Check it anywhere with: stillme verify {self.file} --root {self.root}"
        )


def seal(run: Run, file: Path, *, with_images: bool = False) -> Sealed:
    """Write a run into `file`; the same rows give the same bytes."""
    archive.require_suffix(file)
    with tempfile.TemporaryDirectory(prefix="stillme-seal-") as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        _write(run, folder, Path(name) / "run")
        members = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        if (run.folder / REPORT).is_file():
            members[REPORT] = run.folder / REPORT
        if with_images:
            members |= dict(_images(run))
        sums = sums_of({name: sha256_of(path) for name, path in members.items()})
        members[SUMS] = write_whole(folder / SUMS, sums)
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as draft:
            archive.pack(draft, members, archive.require_suffix(file))
    root = hashlib.sha256(sums.encode()).hexdigest()
    return Sealed(file=file, root=root, files=len(members), bytes=file.stat().st_size)


def _write(run: Run, folder: Path, scratch: Path) -> None:
    (folder / ROWS).mkdir()
    # Another process may be adding rows: all that is sealed is of one moment.
    with run.store.snapshot():
        tables = tables_in(run.store)
        for table in tables:
            write_rows(folder / ROWS / f"{table.name}.jsonl", "jsonl", table, rows_of(run.store, table))
        write_json_lines(folder / REQUESTS, request_rows(run))
    write_json(folder / DESIGN, calibrated(run).as_json())
    write_json(folder / ABOUT, _about(run))
    write_json(folder / "configurations.json", list(run.store.configurations()))
    if (run.folder / FILE).is_file():
        write_whole(folder / FILE, (run.folder / FILE).read_bytes())
    write_whole(folder / "codebook.md", codebook(tables))
    write_whole(folder / "README.md", _README)
    # From the rows just written, not from the run, which may have grown.
    with as_run(folder, scratch) as sealed:
        recompute(sealed, folder)


def _about(run: Run) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "title": run.title,
        "audit": run.design.hash,
        "stillme": __version__,
        "rubric": rubric.load().version,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _images(run: Run) -> Iterator[tuple[str, Path]]:
    """Sources and edits of what the run asks, by hash."""
    hashes = dict.fromkeys(portrait.image.sha256 for portrait in run.design.portraits)
    hashes |= dict.fromkeys(row.image for row in run.rows() if row.image)
    for sha256 in hashes:
        path = run.picture(sha256)
        yield f"images/{path.parent.name}/{path.name}", path


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

`stillme verify FILE` checks all of it offline. Without stillme: `sha256sum -c SHA256SUMS` checks every file, and
`sha256sum SHA256SUMS` gives the root.
"""
