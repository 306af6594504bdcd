"""Write a run into one file that names every one of its bytes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme import __version__, rubric
from stillme.audit import Audit
from stillme.calibration import standing_of
from stillme.errors import StillmeError
from stillme.evidence import archive
from stillme.evidence.design import describe, request_rows
from stillme.evidence.recomputing import ABOUT, DESIGN, FORMAT, REQUESTS, ROWS, recompute
from stillme.exchange import codebook, rows_of, tables_in, whole, write_rows
from stillme.stages import described
from stillme.store import Store

REPORT = "report.html"
_PACKAGES = ("numpy", "scipy", "onnxruntime", "opencv-python-headless", "pillow", "pydantic")
_CONFIGURATIONS = "SELECT hash, resolved, stillme, at FROM audit ORDER BY rowid"


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


def seal(path: Path, out: Path | None, file: Path, *, with_images: bool = False) -> Sealed:
    """Write the run of the audit at `path` into `file`; the same rows give the same bytes."""
    archive.require_suffix(file)
    loaded = described.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    with tempfile.TemporaryDirectory(prefix="stillme-seal-") as name, Store.reading(loaded.folder) as store:
        folder = Path(name)
        _write(loaded, store, folder)
        members = {each.relative_to(folder).as_posix(): each for each in folder.rglob("*") if each.is_file()}
        if (loaded.folder / REPORT).is_file():
            members[REPORT] = loaded.folder / REPORT
        if with_images:
            members |= dict(_images(loaded, store))
        sums = archive.sums_of({name: archive.hash_of(each) for name, each in members.items()})
        members[archive.SUMS] = folder / archive.SUMS
        members[archive.SUMS].write_text(sums, "utf-8", newline="\n")
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as partial:
            archive.pack(partial, members)
    root = hashlib.sha256(sums.encode()).hexdigest()
    return Sealed(file=file, root=root, files=len(members), bytes=file.stat().st_size)


def _write(loaded: Audit, store: Store, folder: Path) -> None:
    (folder / ROWS).mkdir()
    standing = standing_of(loaded)
    tables = tables_in(store)
    for table in tables:
        write_rows(folder / ROWS / f"{table.name}.jsonl", "jsonl", table, rows_of(store, table))
    with (folder / REQUESTS).open("w", encoding="utf-8", newline="\n") as stream:
        for row in request_rows(loaded):
            stream.write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")
    _save(folder / DESIGN, describe(loaded, standing))
    _save(folder / ABOUT, _about(loaded))
    _save(folder / "configurations.json", list(_configurations(store)))
    (folder / "audit.toml").write_bytes(loaded.file.read_bytes())
    (folder / "codebook.md").write_text(codebook(tables), "utf-8", newline="\n")
    (folder / "README.md").write_text(_README, "utf-8", newline="\n")
    # From the rows just written, not from the run: another process may be adding to it.
    recompute(folder, folder)


def _about(loaded: Audit) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "title": loaded.config.title,
        "audit": loaded.hash,
        "stillme": __version__,
        "rubric": rubric.load().version,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _configurations(store: Store) -> Iterator[dict[str, Any]]:
    """Every configuration that ever wrote rows here."""
    for hash_, resolved, version, at in store.query(_CONFIGURATIONS):
        yield {"hash": hash_, "resolved": json.loads(resolved), "stillme": version, "at": at}


def _images(loaded: Audit, store: Store) -> Iterator[tuple[str, Path]]:
    """Sources and edits of this configuration, by hash."""
    for portrait in loaded.portraits:
        yield f"portraits/{portrait.image.sha256}{portrait.image.path.suffix}", portrait.image.path
    for named in loaded.editors:
        requests = loaded.requests(named)
        for stored in store.edits([request.key for request in requests]).values():
            path = store.pictures.find(stored.image) if stored.image else None
            if stored.image and path is None:
                raise StillmeError(
                    f"The picture {stored.image} is missing from {store.pictures.folder}. "
                    "Put it back, or seal without --with-images."
                )
            if path is not None:
                yield f"images/{path.name}", path


def _save(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8", newline="\n")


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
| `images/`, `portraits/` | the pictures by hash, if they were asked for |

`stillme verify FILE` checks all of it offline. Without stillme: `sha256sum -c SHA256SUMS` checks every file, and
`sha256sum SHA256SUMS` gives the root.
"""
