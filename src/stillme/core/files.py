"""Files that are written whole or not at all, the formats that several rooms write, and what is kept for this user."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import secrets
import tomllib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, cast

from stillme.core.errors import StillmeError
from stillme.core.types import Json

SUMS = "SHA256SUMS"
BUNDLE_SUFFIX = ".zip"
"""What a run in a file may be called."""
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""How a formula begins; after apostrophes too, so that a marked cell is marked once more and both come back."""
_SUSPECT = frozenset("'=+-@\t\r")
"""The first characters that `_FORMULA` matches."""


@contextmanager
def whole(path: Path, drafts: Path | None = None) -> Generator[Path]:
    """A file to write under another name; it takes `path` when all of it is on disk, or never.

    Readers see the old file or the new one. A crash leaves the old one, and at most a hidden leftover beside it, or in
    the folder `drafts` of the same disk.
    """
    draft = (drafts or path.parent) / f".{path.name}.{secrets.token_hex(6)}"
    draft.touch(exist_ok=False)  # unlike tempfile's, readable like any other file
    try:
        yield draft
        # The rename must not reach the disk before the content does.
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno:
            error.filename = str(path)  # that a disk is full is said without the file
        draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: str | bytes, drafts: Path | None = None) -> Path:
    """Write a text (as UTF-8, newlines as they are) or bytes whole or not at all."""
    with whole(path, drafts) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def packaged_toml(package: str, *names: str) -> dict[str, Any]:
    """A TOML file that comes with stillme, by the names below a package."""
    return tomllib.loads(files(package).joinpath(*names).read_text("utf-8"))


def write_json(path: Path, value: Json) -> Path:
    """Write JSON that the same value always gives byte for byte."""
    return write_whole(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Json]]) -> Path:
    """Write one JSON object a line, streaming."""
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return path


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> Path:
    """Write a table, streaming; what a spreadsheet would run as a formula is marked as text."""
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        _write_csv(stream, columns, rows)
    return path


def wrong_separator(columns: Sequence[str] | None) -> str:
    """What is wrong with a CSV whose header is one column: spreadsheets write semicolons in some countries."""
    signs = {";": "semicolons", "\t": "tabs"}
    found = next((name for sign, name in signs.items() if columns and len(columns) == 1 and sign in columns[0]), "")
    return f"separates its columns by {found}; save it as CSV with commas" if found else ""


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The same table as a text."""
    buffer = io.StringIO()
    _write_csv(buffer, columns, rows)
    return buffer.getvalue()


def _write_csv(stream: io.TextIOBase, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([harmless(name) for name in columns])
    known = set(columns)
    for row in rows:
        if not row.keys() <= known:
            raise ValueError(f"a row has {sorted(row.keys() - known)}, for which there are no columns")
        cells = [row.get(name, "") for name in columns]
        writer.writerow([harmless(cell) if isinstance(cell, str) else cell for cell in cells])


def harmless(cell: str) -> str:
    """Mark as text what a spreadsheet would run as a formula; numbers stay numbers. `unmarked` gives it back."""
    # Nearly every cell begins with none of these, and tables have millions of cells.
    if cell[:1] not in _SUSPECT:
        return cell
    return "'" + cell if _FORMULA.match(cell) and not _is_number(cell) else cell


def unmarked(cell: str) -> str:
    """A cell as it was before `harmless`."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def is_bundle(path: Path) -> bool:
    """Whether a path that stands for a run is a bundle, not a folder or an audit.toml."""
    return path.suffix == BUNDLE_SUFFIX and path.is_file()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def policy_source(text: str) -> str:
    """How a page's content security policy names an inline style or script: by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def sums_of(hashes: Mapping[str, str]) -> str:
    """`hash  name` lines, sorted by name, as `sha256sum -c` reads them."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(hashes.items()))


def read_sums(text: str) -> dict[str, str]:
    """Names to hashes; a line that is no sum, or names a file outside, is an error."""
    hashes: dict[str, str] = {}
    for line in text.splitlines():
        sha256, _, name = line.partition("  ")
        if len(sha256) != 64 or not is_inside(name):
            raise StillmeError(f"{SUMS} has a line that is not a sum: {line[:100]!r}. It was not written by stillme.")
        hashes[name] = sha256
    return hashes


def is_inside(name: str) -> bool:
    """Whether a relative name stays below its folder, on every system."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


_RECENT = 50
"""Runs that are remembered."""


def data_folder() -> Path:
    """For what cannot be had again for nothing, such as calibrations."""
    return _folder("XDG_DATA_HOME", Path(".local") / "share")


def cache_folder() -> Path:
    """For what only saves time."""
    return _folder("XDG_CACHE_HOME", Path(".cache"))


def remember_run(folder: Path) -> None:
    """Note where a run is, so that `stillme plan` can look up how long its edits took."""
    others = [path for path in recent_runs() if path != folder.resolve()]
    # A note that cannot be written costs an estimate, not a run.
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(_notes(), [str(path) for path in (folder.resolve(), *others)][:_RECENT])


def recent_runs() -> list[Path]:
    """Where runs were made on this machine, the latest first; those that are gone are left out."""
    with suppress(OSError, ValueError):
        noted = json.loads(_notes().read_text("utf-8"))
        if isinstance(noted, list):
            return [Path(path) for path in cast("list[str]", noted) if Path(path).is_dir()]
    return []


def _folder(variable: str, below: Path) -> Path:
    if chosen := os.environ.get("STILLME_HOME"):
        return Path(chosen)
    return Path(os.environ.get(variable) or Path.home() / below) / "stillme"


def _notes() -> Path:
    return cache_folder() / "runs.json"
