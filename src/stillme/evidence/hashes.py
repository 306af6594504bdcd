"""Whether the files of an unpacked bundle are those that were sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stillme.errors import StillmeError
from stillme.evidence.bundle import ABOUT, FORMAT, IMAGES, NEEDED, ROWS, Unreadable, read_json
from stillme.evidence.differences import Difference
from stillme.files import SUMS, read_sums, sha256_of, sums_of
from stillme.types import Json

ABOUT_KEYS = frozenset(
    {"format", "title", "audit", "stillme", "rubric", "python", "packages", "relabelled", "files", "rows", "images"}
)
"""Of evidence.json."""


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
    def of(cls, file: Path, folder: Path, names: list[str]) -> Contents:
        """Read the sums and evidence.json; a bundle of another format is refused."""
        if SUMS not in names:
            raise StillmeError(f"{file} has no {SUMS}, so it is no evidence bundle of stillme.")
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

    def differences(self) -> Iterator[Difference]:
        """Files that are missing, were added, or have other bytes than were sealed."""
        if self.sums != sums_of(self.hashes).encode():
            yield Difference(file=SUMS, what="has a name twice, or is not written as stillme writes it")
        for name in sorted({*self.hashes, *NEEDED}):
            path, sha256 = self.folder / name, self.hashes.get(name)
            if name not in self.names:
                yield Difference(file=name, what="is missing")
            elif sha256 and (actual := sha256_of(path)) != sha256:
                yield Difference(file=name, what="is not the file that was sealed", expected=sha256, found=actual)
            elif sha256 and name.startswith(f"{IMAGES}/") and path.stem != sha256:
                yield Difference(file=name, what="is named by another hash", expected=path.stem, found=sha256)
        for name in sorted(self.names - set(self.hashes) - {SUMS}):
            yield Difference(file=name, what="was added after sealing")

    def counted(self) -> Iterator[Difference]:
        """What evidence.json says is there and is not, and keys that it should not or must have."""
        for key in sorted(ABOUT_KEYS ^ set(self.about)):
            yield Difference(file=ABOUT, column=key, what="is missing" if key in ABOUT_KEYS else "is no key of it")
        for part, value in inventory(self.folder, self.names).items():
            if self.about.get(part) != value:
                yield Difference(
                    file=ABOUT,
                    column=part,
                    what="does not list what is there",
                    expected=str(value),
                    found=str(self.about.get(part)),
                )


def inventory(folder: Path, names: frozenset[str]) -> dict[str, Json]:
    """The files of a bundle, its pictures and its rows, for evidence.json."""
    files = sorted(name for name in names if not name.startswith(f"{IMAGES}/") and name not in (SUMS, ABOUT))
    rows = {name: _lines(folder / name) for name in files if name.startswith(f"{ROWS}/")}
    return {"files": files, "rows": rows, "images": sum(name.startswith(f"{IMAGES}/") for name in names)}


def _lines(file: Path) -> int:
    with file.open("rb") as stream:
        return sum(1 for _ in stream)


def _about(folder: Path) -> Mapping[str, Json]:
    if not (folder / ABOUT).is_file():
        return {}
    try:
        about = read_json(folder, ABOUT)
    except Unreadable:
        return {}
    if about.get("format") != FORMAT:
        raise StillmeError(
            f"The bundle has format {about.get('format')}, this stillme reads {FORMAT}. "
            f"It was sealed by stillme {about.get('stillme')}: install that version to verify it."
        )
    return about
