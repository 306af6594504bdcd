"""Check that a finished data set is still what was written: every file by its hash, every picture by its content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from stillme import images
from stillme.curation.versions import MANIFEST, versions_of
from stillme.errors import StillmeError, UnreadableImage
from stillme.files import SUMS, read_sums, sha256_of
from stillme.portraits.folder import load

_NOT_METADATA = frozenset({"interlace", "gamma", "dpi"})
"""What Pillow reports of every PNG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One version, and what is wrong with it."""

    folder: Path
    files: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"folder": str(self.folder), "files": self.files, "problems": list(self.problems)}


def verify(home: Path) -> list[Verified]:
    """Check every version in `home`, or the one that it is."""
    versions = versions_of(home)
    if not versions:
        raise StillmeError(f"{home} holds no finished portraits. `stillme portraits finalize` or `import` makes them.")
    return [_verify(folder) for folder in versions]


def _verify(folder: Path) -> Verified:
    try:
        hashes = read_sums((folder / SUMS).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        hashes = {}
    except StillmeError as error:
        return Verified(folder=folder, files=0, problems=(str(error),))
    return Verified(folder=folder, files=len(hashes), problems=tuple(_problems(folder, hashes)))


def _problems(folder: Path, hashes: Mapping[str, str]) -> Iterator[str]:
    if not hashes:
        yield f"{SUMS} is missing or empty."
        return
    for name, sha256 in hashes.items():
        try:
            now = sha256_of(folder / name)
        except OSError as error:
            yield f"{name} cannot be read ({error.strerror})."
            continue
        if now != sha256:
            yield f"{name} has changed since it was written."
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {SUMS}
    yield from (f"{name} was added later." for name in sorted(on_disk - set(hashes)))
    yield from _portraits(folder)


def _portraits(folder: Path) -> Iterator[str]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        recorded = {entry["id"]: entry["sha256"] for entry in manifest["portraits"]}
        size = int(manifest["size"])
        portraits = load(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{MANIFEST} cannot be read ({error})."
        return
    except StillmeError as error:
        yield str(error)
        return
    if {portrait.id: portrait.image.sha256 for portrait in portraits} != recorded:
        yield f"{MANIFEST} and portraits.csv name different pictures."
    for portrait in portraits:
        try:
            rgb = images.read_rgb(portrait.image.path)
        except UnreadableImage as error:
            yield str(error)
            continue
        if rgb.shape[:2] != (size, size):
            yield f"{portrait.id} is {rgb.shape[1]} × {rgb.shape[0]}, not {size} × {size}."
        # Not through `images`: what else the file holds.
        with Image.open(portrait.image.path) as picture:
            if kept := sorted(str(name) for name in set(picture.info) - _NOT_METADATA):
                yield f"{portrait.id} carries metadata ({', '.join(kept)})."
