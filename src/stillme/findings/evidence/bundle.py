"""What a bundle is made of. Unpacked, it is a run folder like any other."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from stillme.core.errors import StillmeError
from stillme.core.files import SUMS, read_sums, sha256_of, sums_of
from stillme.core.types import Json
from stillme.findings.evidence import archive
from stillme.runs import Run
from stillme.runs.store.ledger_copy import require_ledger
from stillme.runs.store.opening import LEDGER

FORMAT = 4
"""Of the bundle; counts up when an older stillme could not read it any more."""
ABOUT = "evidence.json"
IMAGES = "images"
REPORT = "report.html"
_NEEDED = (ABOUT, LEDGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """An unpacked bundle: what it says of itself, and the hashes of its files."""

    folder: Path
    names: frozenset[str]
    sums: bytes
    hashes: Mapping[str, str]
    about: Mapping[str, Json]
    """evidence.json; empty where it cannot be read."""

    @classmethod
    def of(cls, file: Path, folder: Path) -> Contents:
        """Unpack a bundle into a new `folder`; one of another format is refused."""
        names = archive.unpack(file, folder)
        if SUMS not in names:
            raise StillmeError(f"{file} has no {SUMS}, so it is not an evidence bundle of stillme.")
        sums = (folder / SUMS).read_bytes()
        return cls(
            folder=folder,
            names=frozenset(names),
            sums=sums,
            hashes=read_sums(sums.decode("utf-8", "replace")),
            about=_about(folder),
        )

    @property
    def root(self) -> str:
        """The hash of SHA256SUMS, which names every byte of the bundle."""
        return hashlib.sha256(self.sums).hexdigest()

    @property
    def sealed_by(self) -> str:
        """The version of stillme that made it."""
        return str(self.about.get("stillme", "an unknown version"))

    def differences(self) -> Iterator[Difference]:
        """Files that are missing, were added, or have other bytes than were sealed."""
        if self.sums != sums_of(self.hashes).encode():
            yield Difference(file=SUMS, what="has a name twice, or is not written as stillme writes it")
        for name in sorted({*self.hashes, *_NEEDED}):
            path, sha256 = self.folder / name, self.hashes.get(name)
            if name not in self.names:
                yield Difference(file=name, what="is missing")
            elif sha256 and (actual := sha256_of(path)) != sha256:
                yield Difference(file=name, what="is not the file that was sealed", expected=sha256, found=actual)
            elif sha256 and name.startswith(f"{IMAGES}/") and path.stem != sha256:
                yield Difference(file=name, what="is named by another hash", expected=path.stem, found=sha256)
        for name in sorted(self.names - set(self.hashes) - {SUMS}):
            yield Difference(file=name, what="was added after sealing")


def _about(folder: Path) -> Mapping[str, Json]:
    try:
        about: Json = json.loads((folder / ABOUT).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(about, dict):
        return {}
    known = cast("dict[str, Json]", about)
    if known.get("format") != FORMAT:
        raise StillmeError(
            f"The bundle has format {known.get('format')!r}, this stillme reads {FORMAT}. "
            f"It was sealed by stillme {known.get('stillme')!r}: install that version to verify it."
        )
    return known


@contextmanager
def opened_bundle(file: Path) -> Generator[Run]:
    """The run in a bundle, for as long as the block lasts. Whether its numbers are right only `verify` says."""
    with tempfile.TemporaryDirectory(prefix="stillme-bundle-") as name, Run.open(unpacked_run(file, Path(name))) as run:
        run.opened_from = file
        yield run


def unpacked_run(file: Path, scratch: Path) -> Path:
    """Unpack a bundle into a run folder below `scratch`, and check every hash."""
    folder = scratch / file.stem
    contents = Contents.of(file, folder)
    if difference := next(contents.differences(), None):
        raise StillmeError(f"{file} is not what was sealed: {difference}. `stillme verify {file}` shows all of it.")
    require_ledger(folder / LEDGER)
    return folder


def one_line(text: str) -> str:
    """Text from a bundle as one line: line breaks and control characters would let it print a verdict of its own."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it should be, and where."""

    file: str
    what: str
    row: int | None = None
    """Counted from 1, without a header."""
    column: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        place = self.file + (f", row {self.row}" if self.row else "") + (f", {self.column}" if self.column else "")
        values = f": expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        return one_line(f"{place} ({self.what}){values}")
